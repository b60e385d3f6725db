"""Rewrites the log of a shard: all state is written again at the end of the log, and the older records are deleted.

This is like compaction: the newest record of each key remains. Other operations continue between the batches of a
rewrite. Each record is encoded from the state at the time it is written, so that no older state follows newer state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from gateway.runtime.loop.clock import Clock
from gateway.runtime.operations.loaded_shard import LoadedShard
from gateway.runtime.partitions.removal import remove
from log import retention

logger = logging.getLogger(__name__)

REWRITE_AT_LEAST_BYTES: Final = 8 << 20
"""The size up to which a log is never rewritten."""
REWRITE_FACTOR: Final = 3
"""A log is rewritten when it is this many times as large as its newest records of all keys."""
RECORDS_AT_ONCE: Final = 500
"""Keys rewritten in one turn; then other work of the event loop gets its turn."""


def is_worth_a_rewrite(loaded: LoadedShard[Any]) -> bool:
    """Return whether most of the log is no longer needed, and no rewrite is running."""
    size_bytes = loaded.partition.log.segments.size_bytes
    return (
        size_bytes > REWRITE_AT_LEAST_BYTES
        and not loaded.is_rewritten
        and size_bytes > REWRITE_FACTOR * loaded.needed_bytes
    )


async def rewrite(loaded: LoadedShard[Any], clock: Clock) -> None:
    """Rewrite the log unless the shard is lost meanwhile. Raises LogError."""
    log = loaded.partition.log
    loaded.is_rewritten = True
    loaded.needed_bytes = (
        log.size_bytes
    )  # set the size before the attempt, so that a failure is not retried at once
    try:
        log.roll(clock.now_ms())
        start_offset = log.log_end_offset
        if not await _write_all(loaded, clock):
            return
        before = log.size_bytes
        if await _delete_before(loaded, start_offset, clock):
            loaded.needed_bytes = log.size_bytes
            logger.info(
                "%s-%d: rewritten, %d bytes instead of %d", log.topic, log.partition, log.size_bytes, before
            )
    finally:
        loaded.is_rewritten = False


async def _write_all(loaded: LoadedShard[Any], clock: Clock) -> bool:
    """Write all state durably; return False if the shard was lost meanwhile. Raises LogError."""
    keys = list(loaded.shard.stored_keys())
    for first in range(0, len(keys), RECORDS_AT_ONCE):
        some = keys[first : first + RECORDS_AT_ONCE]
        records = [record for key in some for record in loaded.shard.records_of(key)]
        if records:
            loaded.append(records, clock.now_ms())
            loaded.write()
        await asyncio.sleep(0)
        if not loaded.is_current:
            return False
    return await loaded.persisted(loaded.partition.log.log_end_offset - 1) and loaded.is_current


async def _delete_before(loaded: LoadedShard[Any], start_offset: int, clock: Clock) -> bool:
    """Delete the records below `start_offset`; return False if the shard was lost meanwhile. Raises LogError."""
    partition = loaded.partition
    ticket = retention.prepare_delete_records(partition.log, start_offset, clock.now_ms())
    if ticket is not None:
        await remove(partition, ticket, clock.now_ms())
    return not partition.closed and loaded.is_current
