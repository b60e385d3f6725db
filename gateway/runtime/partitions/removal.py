"""Removes records of a partition, after everything that must be durable first is durable."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.runtime.partitions.partition import Partition
from log import DeletedSegment, RemovalTicket, retention


async def remove(partition: Partition, ticket: RemovalTicket, now_ms: int) -> Sequence[DeletedSegment]:
    """Make the ticket durable, then remove the first segments; return the removed segments.

    When the disk fails, the partition goes offline. Raises LogError.
    """
    log = partition.log
    error = await partition.commit(ticket.flush)
    gone: Sequence[DeletedSegment] = ()
    if error is None:
        gone = retention.complete_removal(log, ticket, now_ms)
    else:
        retention.fail_removal(log, ticket, error)
    partition.flush_finished()
    return gone


async def persist_files(partition: Partition) -> None:
    """Persist everything that the partition has written, with what flushes in flight carry.

    When the disk fails, the partition goes offline. Do not cancel this: the log waits for its ticket.
    """
    log = partition.log
    ticket = log.prepare_flush(counts_out=True)
    if ticket is None:
        return
    error = await partition.commit(ticket)
    if error is None:
        log.complete_flush(ticket)
    else:
        log.fail_flush(ticket, error)
    partition.flush_finished()
