"""Finds the transactional ids for `seqgate transactions`: those of a running gateway, or what lies in a data directory."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from gateway.control import client
from gateway.control.errors import NotRunning
from gateway.control.messages import ListTransactionsRequest
from gateway.control.transaction_results import TransactionDescription, TransactionRow

RUNNING = "running"
STOPPED = "stopped"


class TransactionListing(msgspec.Struct, frozen=True):
    """All transactional ids asked for. `gateway` is "running" or "stopped"; see `TransactionPage`."""

    gateway: str
    transactions: list[TransactionRow]
    offline_partitions: list[int]


def list_transactions(data_dir: Path, request: ListTransactionsRequest) -> TransactionListing:
    """Every id that passes the filters. Raises ControlError."""
    try:
        pages = list(client.transaction_pages(data_dir, request))
    except NotRunning:
        from gateway.control import stopped_transactions

        return TransactionListing(
            STOPPED, stopped_transactions.list_transactions(data_dir, request, _now_ms()), []
        )
    rows = [row for page in pages for row in page.transactions]
    return TransactionListing(RUNNING, rows, pages[-1].offline_partitions)


def describe_transaction(data_dir: Path, transactional_id: str) -> tuple[str, TransactionDescription]:
    """Whether the gateway runs, and the id with all its partitions. Raises ControlError."""
    try:
        return RUNNING, client.describe_transaction(data_dir, transactional_id)
    except NotRunning:
        from gateway.control import stopped_transactions

        found = stopped_transactions.describe_transaction(data_dir, transactional_id, _now_ms())
        return STOPPED, found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
