"""Removes records of a partition, after a worker thread has flushed everything that must be durable first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.runtime.partitions.partition import Partition
from log import DeletedSegment, FlushTicket, RemovalTicket, retention

logger = logging.getLogger(__name__)


async def remove(partition: Partition, ticket: RemovalTicket, now_ms: int) -> Sequence[DeletedSegment]:
    """Run the ticket in a worker thread, then remove the first segments; return the removed segments.

    When the disk fails, the partition goes offline. Raises LogError.
    """
    log = partition.log
    error = await _commit(partition, ticket.flush)
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
    error = await _commit(partition, ticket)
    if error is None:
        log.complete_flush(ticket)
    else:
        log.fail_flush(ticket, error)
    partition.flush_finished()


async def _commit(partition: Partition, ticket: FlushTicket) -> OSError | None:
    durability = partition.log.environment.durability
    try:
        return (await asyncio.to_thread(durability.commit, [ticket]))[0]
    except Exception as error:
        # The state of the disk is unknown, and the log waits for its ticket.
        logger.exception("a flush of %s-%d failed in an unexpected way", partition.topic, partition.index)
        return OSError(f"{type(error).__name__}: {error}")
