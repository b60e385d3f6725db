"""Closes the logs of a data directory: one by one, in parallel, or with one flush for all, depending on their number."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from log.partition_log import finish_close, prepare_close

if TYPE_CHECKING:
    from log.durability.durability import Durability
    from log.durability.flush_ticket import FlushTicket
    from log.files.disk import FileSystemFlush
    from log.partition_log import PartitionLog
    from log.recovery.clean_stop import CleanStop

_logger = logging.getLogger(__name__)
FEW: Final = 16
"""The number of logs below which logs are closed one by one."""
MANY: Final = 1000
"""The number of logs from which one flush of the whole file system is faster than a flush per file."""
_AT_ONCE: Final = 64
_THREADS: Final = 8


def close_logs(
    durability: Durability, path: str, logs: Sequence[PartitionLog], *, clean: bool
) -> list[tuple[CleanStop | None, int]]:
    """Close the logs. Return each log's clean stop, or None, and its recovery point, in the same order. Never raises
    OSError.
    """
    flush = _begin_common_flush(durability, path) if clean and len(logs) >= MANY else None
    if flush is not None:
        return _close_with(flush, logs)
    if not clean or len(logs) < FEW:
        stops: Iterable[CleanStop | None] = [log.close(clean=clean) for log in logs]
    else:
        stops = _close_side_by_side(logs)
    return [(stop, log.recovery_point) for log, stop in zip(logs, stops, strict=True)]


def _begin_common_flush(durability: Durability, path: str) -> FileSystemFlush | None:
    try:
        return durability.begin_common_flush(path)
    except OSError:
        return None


def _close_with(flush: FileSystemFlush, logs: Sequence[PartitionLog]) -> list[tuple[CleanStop | None, int]]:
    """Close with one flush for the indexes and snapshots of all logs. A log with unflushed records gets its own flush."""
    closed = []
    for log in logs:
        durable_end_offset = log.recovery_point
        is_flushed = durable_end_offset == log.log_end_offset
        ticket = prepare_close(log, may_omit=True)
        # A flush of the file system does not run a ticket's captures.
        is_common = is_flushed and (ticket is None or not ticket.captures)
        stop = finish_close(log, ticket, None if is_common else _commit(log, ticket))
        closed.append((stop, log.recovery_point, durable_end_offset))
    try:
        flush.run()
    except OSError as error:
        _logger.warning("the logs could not be flushed, the next start checks them: %s", error)
        return [(None, durable_end_offset) for _, _, durable_end_offset in closed]
    return [(stop, end_offset) for stop, end_offset, _ in closed]


def _close_side_by_side(logs: Sequence[PartitionLog]) -> Iterator[CleanStop | None]:
    """Close the logs with several flushes in parallel."""
    with ThreadPoolExecutor(_THREADS, "close") as threads:
        for first in range(0, len(logs), _AT_ONCE):
            some = logs[first : first + _AT_ONCE]
            tickets = [prepare_close(log) for log in some]
            for log, ticket, error in zip(some, tickets, threads.map(_commit, some, tickets), strict=True):
                yield finish_close(log, ticket, error)


def _commit(log: PartitionLog, ticket: FlushTicket | None) -> OSError | None:
    return None if ticket is None else log.environment.durability.commit([ticket])[0]
