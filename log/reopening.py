"""Brings an offline partition log back, in three steps, so that the event loop neither scans the log nor waits for an fsync.

begin   the log closes its files
run     any thread recovers the partition (`log.recovery.recovering`)
end     the log loads what the recovery has made durable, and is online again
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from log.recovery.load import new_metadata
from log.recovery.recovering import Recovery

if TYPE_CHECKING:
    from log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


def begin(log: PartitionLog, now_ms: int) -> Recovery:
    """Close the files of an offline log. Run the recovery in any thread, then give it to `end`.

    Until then no other log may have the name of this one (`LogLists.recovering`).
    """
    log.let_go()
    log.lists.recovering[log] = None
    return Recovery(
        log.environment,
        log.place,
        log.config,
        min(log.recovery_point, log.log_end_offset),
        now_ms,
        generation=log.unflushed.generation,
        # The first flush may have failed, so persist the directory again.
        metadata=(
            new_metadata(log.place, names_from_start=log.began_with_names)
            if log.unflushed.first_flush_pending
            else None
        ),
    )


def end(log: PartitionLog, recovery: Recovery, now_ms: int) -> None:
    """Load what the recovery found. The log stays offline if the recovery failed, or if the log was closed meanwhile.

    Raises OSError, LogError; the log is then still offline.
    """
    log.lists.recovering.pop(log, None)
    if recovery.stop is None or recovery.generation != log.unflushed.generation:
        return
    log.unflushed.first_flush_pending = False
    before, end_offset = log.segments, log.log_end_offset
    log.load(recovery.stop.log_end_offset, recovery.stop, now_ms, may_check=False)
    log.segments.continue_counts(before, end_offset - log.log_end_offset)
    log.bytes_cut = recovery.bytes_cut
    log.outage.end()
    _logger.info("%s is back, it ends at offset %d", log.place, log.log_end_offset)


def reopen(log: PartitionLog, now_ms: int) -> None:
    """Do all three steps in this thread. Raises OSError, LogError; the log is then still offline."""
    recovery = begin(log, now_ms)
    try:
        recovery.run()
    finally:
        end(log, recovery, now_ms)
