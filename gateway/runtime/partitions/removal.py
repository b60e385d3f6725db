"""Persisting in a worker thread what must be durable before the first records of a partition go."""

from __future__ import annotations

import asyncio

from gateway.runtime.partitions.partition import Partition
from log import RetentionTicket


async def make_durable(partition: Partition, ticket: RetentionTicket) -> None:
    """Run the ticket in a worker thread. When the disk fails the partition is offline afterwards."""
    log = partition.log
    try:
        await asyncio.to_thread(ticket.run)
    except OSError as error:
        log.fail_retention(ticket, error)
    else:
        log.complete_retention(ticket)
    partition.flush_finished()
