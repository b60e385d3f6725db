"""`seqgate sweep`: orphaned files and state."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import AsJson, Output, asks, flag, option
from seqgate.gateway.admin.options import DryRun, Opened, carried_out, gateway, parsed
from seqgate.gateway.admin.request import POSITION, STOPPED, ControlError, NotRunning, PagedRequest, Request
from seqgate.gateway.admin.tables import Block, Column, count, table
from seqgate.gateway.admin.tasks import TaskRow
from seqgate.gateway.admin.times import duration_ms

POLL_S: Final = 0.2
"""Time between two requests for the result of a sweep."""
DEFAULT_AGE: Final = "1h"


@asks(gateway)
def sweep(
    opened: Opened[Client],
    unknown: bool = flag("--unknown", "Remove files of no known name as well."),
    min_age: str = option(
        "--min-age",
        "TIME",
        "Ignore files that changed within this time: 30s, 5m, 2h.",
        show_default=True,
        default=DEFAULT_AGE,
    ),
    dry_run: DryRun = False,
    yes: bool = flag("--yes --remove", "Remove without asking; --remove is the old spelling."),
    as_json: AsJson = False,
) -> Output:
    """Find orphaned files and state, and remove them.

    Shows what it finds, and asks. With --json the command never asks: without --yes it only reports.

    In a running gateway: files and directories without a topic, a partition or a segment, temporary files
    that were never renamed, state of groups and transactions for topics that are gone, and objects of a
    bucket (--cluster). The gateway serves requests meanwhile. In a data directory that no gateway has open:
    only files.

    \b
    Kinds:
      partition without a topic        a partition's directory, but there is no such topic or partition
      segment without a partition      files that no partition knows; may hold records, never removed
      index without a segment          an index whose log file is gone
      snapshot without a segment       producer state beyond the end of a log, or of segments long deleted
      temporary file                   written to be renamed, and never renamed
      left to be deleted               renamed to be deleted, but nothing waits to delete it
      unknown                          no name that is used here; removed only with --unknown
      ... without a topic              offsets, share groups and transactions of topics that are gone
      object of the bucket             with --cluster: what a crash amid an upload left, and no manifest names

    Exits with 1 when orphaned files or state remain.
    """  # noqa: D301 - \b keeps the lines of the list apart
    min_age_ms = parsed(duration_ms, min_age, "--min-age")
    with opened as client:
        page = carried_out(
            lambda execute: _sweep(
                client, SweepRequest(remove=execute, unknown=unknown and execute, min_age_ms=min_age_ms)
            ),
            _text,
            "Remove them?",
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            is_needed=lambda planned: planned.leaks,
        )
    return Output(page, _text(page), code=1 if any(not leak.removed for leak in page.leaks) else 0)


def _sweep(client: Client, request: SweepRequest) -> SweepPage:
    """Sweep a running gateway or a data directory, and wait until the sweep ends. Raises ControlError."""
    try:
        task = client.ask(request)
    except NotRunning:
        from seqgate.gateway.admin.sweep import live  # noqa: PLC0415 - slow to import

        return live.sweep(client.data_dir, request, time.time_ns() // 1_000_000, _print_progress)
    while True:
        page = client.ask(SweepResultRequest(task.number))
        if page.task.ended:
            break
        _print_progress(page.task.done, page.task.total)
        time.sleep(POLL_S)
    if page.task.failure is not None:
        raise ControlError(f"the sweep failed: {page.task.failure}")
    return page


def _print_progress(done: int, total: int | None) -> None:
    """Print the progress of the sweep on a terminal; the next output overwrites the line."""
    if sys.stderr.isatty() and (total is None or done % 100 == 0):
        of = "" if total is None else f" of {total:,}"
        print(f"\r{done:,}{of} checked", end="\r", file=sys.stderr, flush=True)


def _text(page: SweepPage) -> Iterator[Block]:
    if page.leaks:
        yield table(LeakRow, page.leaks, "kind place size_bytes outcome")
        kinds = Counter(leak.kind for leak in page.leaks)
        yield ", ".join(f"{number} × {kind}" for kind, number in kinds.items())
    else:
        yield "No orphaned files or state found."
    if page.gateway == STOPPED:
        yield "The gateway is stopped: only files were compared, not what groups and transactions hold."


# The requests about sweeps, and what `seqgate sweep --json` prints.


class LeakRow(msgspec.Struct, frozen=True):
    """A leak: an orphaned file, directory or state.

    `place` is a path in the data directory, or the owner of the state. `size_bytes` is None where a leak has
    no size of its own. `removed`: the leak is gone, or waits for deletion. `removable`: a sweep may remove
    the leak.
    """

    kind: Annotated[str, Column("kind")]
    place: Annotated[str, Column("what")]
    size_bytes: Annotated[int | None, Column("size", count, "")]
    removable: bool
    removed: bool

    @property
    def outcome(self) -> Annotated[str, Column("")]:
        """The result in words: `removed`, `check it by hand`, or nothing for what a sweep can remove."""
        if self.removed:
            return "removed"
        return "" if self.removable else "check it by hand"


class SweepPage(msgspec.Struct, frozen=True):
    """A page of the `total` leaks (orphaned files, directories and state) that a sweep found.

    `gateway` is "running" or "stopped". A sweep of a stopped gateway finds only files and directories.
    """

    gateway: str
    task: TaskRow
    total: int
    leaks: list[LeakRow]


class SweepRequest(Request[TaskRow], tag="sweep"):
    """Begin a sweep. With `remove` it removes leaks of known kinds, with `unknown` also files of no known
    name. Files that changed less than `min_age_ms` ago are not leaks.
    """

    remove: bool = False
    unknown: bool = False
    min_age_ms: int = duration_ms(DEFAULT_AGE)


class SweepResultRequest(PagedRequest[SweepPage], tag="sweep.result"):
    """The leaks that a sweep has found so far, from leak `position` on; the task number names the sweep."""

    rows = "leaks"
    key = POSITION
    number: int
    position: int = 0
