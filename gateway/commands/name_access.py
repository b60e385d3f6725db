"""Finds the producer names for `seqgate names`: those of a running gateway, or what lies in a data directory."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from gateway.control import client
from gateway.control.errors import NotRunning
from gateway.control.messages import NamesRequest
from gateway.control.name_results import NameCounters, NameRow, UntoldPartition

RUNNING = "running"
STOPPED = "stopped"


class NameListing(msgspec.Struct, frozen=True):
    """All names asked for. `gateway` is "running" or "stopped"; of one that is stopped there are no counters."""

    gateway: str
    names: list[NameRow]
    untold: list[UntoldPartition]
    counters: NameCounters | None


def list_names(data_dir: Path, request: NamesRequest) -> NameListing:
    """Every name that the request asks for. Raises ControlError."""
    try:
        pages = list(client.name_pages(data_dir, request))
    except NotRunning:
        from gateway.control import stopped_names

        rows = stopped_names.list_names(data_dir, request, time.time_ns() // 1_000_000)
        return NameListing(STOPPED, rows, [], None)
    rows = [row for page in pages for row in page.names]
    untold = [row for page in pages for row in page.untold]
    return NameListing(RUNNING, rows, untold, pages[-1].counters)
