"""Removing the first records of a partition: what must be durable before is persisted in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.runtime.partitions.partition import Partition
from log import DeletedSegment, RemovalTicket, retention


async def remove(partition: Partition, ticket: RemovalTicket, now_ms: int) -> Sequence[DeletedSegment]:
    """Run the ticket in a worker thread, then let the first segments go; return those that went.

    When the disk fails the partition is offline afterwards. Raises LogError.
    """
    log = partition.log
    try:
        await asyncio.to_thread(ticket.run)
    except OSError as error:
        retention.fail_removal(log, ticket, error)
        gone: Sequence[DeletedSegment] = ()
    else:
        gone = retention.complete_removal(log, ticket, now_ms)
    partition.flush_finished()
    return gone
