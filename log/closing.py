"""Closes a partition log cleanly, in two steps around a flush, and says what the next start may trust.

prepare_close   writes what a start would have to rebuild, and makes the last flush ticket
commit          any thread commits the ticket
finish_close    releases the files, and returns the facts of the clean stop
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from log.errors import CorruptRecord
from log.recovery.clean_stop import clean_stop, is_as

if TYPE_CHECKING:
    from log.durability.flush_ticket import FlushTicket
    from log.durability.unflushed import Unflushed
    from log.environment import LogEnvironment
    from log.log_writer import LogWriter
    from log.outage import Outage
    from log.place import LogPlace
    from log.recovery.clean_stop import CleanStop
    from log.segments.segment_list import SegmentList
    from log.state.record_states import RecordStates
    from log.state.transactions import Transactions

_logger = logging.getLogger(__name__)


class ClosingLog(Protocol):
    """The parts of a partition log that a close uses."""

    environment: LogEnvironment
    place: LogPlace
    log_end_offset: int
    clean_stop: CleanStop | None
    """The clean stop from which the log was loaded."""
    outage: Outage[Any]
    unflushed: Unflushed
    record_states: RecordStates
    segments: SegmentList
    transactions: Transactions
    writer: LogWriter

    def prepare_flush(self) -> FlushTicket | None:
        """Return a ticket for everything that is not durable; None when all is durable, or when the log is
        offline.
        """

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Note that the flush of a ticket succeeded."""

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> None:
        """Note that the flush of a ticket failed."""

    def let_go(self, *, for_readers: bool) -> None:
        """Close the files, and release the memory of the log's state."""


def prepare_close(log: ClosingLog, *, may_omit: bool = False) -> FlushTicket | None:
    """Return the ticket of a clean close. Commit it in any thread, and give it to `finish_close`.

    With `may_omit`, a small log stays without files that the next load rebuilds from a few headers.
    """
    outage = log.outage
    if log.unflushed.tickets_out:
        _logger.warning("%s is closed while a flush is in flight", log.place)
        outage.begin("it is closed while a flush is in flight")
    if outage.reason is not None:
        return None
    try:
        log.record_states.capture_all()
        if _is_as_stopped(log):
            return None
        paths = log.writer.write_side_files(log.log_end_offset, may_omit=may_omit)
        log.unflushed.add(paths, log.place.directory)
    except (OSError, CorruptRecord) as error:
        outage.begin(f"it could not be closed cleanly: {error}")
    return log.prepare_flush()


def finish_close(
    log: ClosingLog, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
) -> CleanStop | None:
    """Release the files after the ticket of `prepare_close` ran, or failed with `error`.

    Returns what the next start may trust; None for a log that is offline or not closed cleanly, which will be recovered.
    """
    if ticket is not None and error is None:
        log.complete_flush(ticket)
    elif ticket is not None and error is not None:
        log.fail_flush(ticket, error)
    stop = _stop_of(log) if clean and log.outage.reason is None else None
    log.let_go(for_readers=True)
    log.outage.close()
    return stop


def _stop_of(log: ClosingLog) -> CleanStop:
    if log.clean_stop is not None and _is_as_stopped(log):
        return log.clean_stop
    return clean_stop(
        log.environment.storage,
        log.segments,
        log.log_end_offset,
        has_open_transactions=log.transactions.has_open,
    )


def _is_as_stopped(log: ClosingLog) -> bool:
    """Return whether the files are unchanged since the clean stop from which the log was loaded."""
    stop = log.clean_stop
    return stop is not None and not log.unflushed.has_files and is_as(stop, log.segments, log.log_end_offset)
