"""Applies retention while the gateway serves: rolls segments of idle partitions by time, and deletes old
segments.

A worker thread persists what must be durable before a segment is deleted. A log with many old segments is
processed in slices, between which requests run. Where a segment's age is only in the bucket, retention waits
for the block and decides then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.partition import Partition, persist_start_and_remove
from seqgate.gateway.tasks import start_task
from seqgate.log import DeletedSegment, DeletionReason, LogError, NotCached, retention
from seqgate.log.sparse import without_fetching

logger = logging.getLogger(__name__)

WORKERS: Final = 4
"""Partitions that wait for the bucket, or from which segments are deleted, at the same time."""


class Retention:
    """Applies retention to partitions, and counts deleted segments by the rule that deleted them."""

    def __init__(self, clock: Clock, cold_reads: ColdReads) -> None:
        self.deleted_segments: Counter[DeletionReason] = Counter()
        self.deleted_bytes: Counter[DeletionReason] = Counter()
        self.rolled_segments = 0
        """Segments that were closed by time although nothing was appended."""
        self._clock = clock
        self._cold_reads = cold_reads
        self._due: dict[Partition, None] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[int]] = set()

    def apply(self, partition: Partition) -> None:
        """Roll a segment that is due, and begin to delete old segments. Raises LogError."""
        log = partition.log
        now_ms = self._clock.now_ms()
        if retention.roll_by_time(log, now_ms):
            self.rolled_segments += 1
            partition.start_flush()
        try:
            with without_fetching(self._cold_reads.storage):
                is_due = bool(retention.decide_retention(log, now_ms).doomed)
                if not is_due:
                    retention.note_quiet(log, now_ms)
        except NotCached:
            is_due = True  # A worker decides, once it has the block.
        if is_due:
            self._due[partition] = None
            if len(self._workers) < WORKERS:
                start_task(self._workers, self._work(), "deletion of segments")

    async def stop(self) -> None:
        """Begin no further deletion, and wait for those in progress."""
        self._due.clear()
        for look in self._looking:
            look.cancel()
        await asyncio.gather(*self._workers)

    async def _work(self) -> None:
        while self._due:
            partition = next(iter(self._due))
            del self._due[partition]
            try:
                await self._delete_old_segments(partition)
            except LogError as error:
                logger.warning("%s-%d: %s", partition.topic, partition.index, error)
            except Exception:
                logger.exception("retention of %s-%d failed", partition.topic, partition.index)

    async def _delete_old_segments(self, partition: Partition) -> None:
        log = partition.log
        while not partition.closed and not log.offline:
            now_ms = await self._decided(partition)
            if now_ms is None or partition.closed or log.offline:
                return
            ticket = retention.prepare_retention(log, now_ms)
            if ticket is None:
                return
            self._report(partition, await persist_start_and_remove(partition, ticket, now_ms))
            await asyncio.sleep(0)

    async def _decided(self, partition: Partition) -> int | None:
        """Wait until the log can decide; return the time, None at the gateway's end. Raises LogError."""

        def decide() -> int:
            now_ms = self._clock.now_ms()
            retention.decide_retention(partition.log, now_ms)
            return now_ms

        with suppress(NotCached), without_fetching(self._cold_reads.storage):
            return decide()
        look = asyncio.ensure_future(self._cold_reads.fetched(decide))
        self._looking.add(look)
        try:
            await asyncio.wait((look,))
        finally:
            self._looking.discard(look)
        return None if look.cancelled() else look.result()

    def _report(self, partition: Partition, deleted: Sequence[DeletedSegment]) -> None:
        for reason, group in groupby(deleted, key=lambda segment: segment.reason):
            segments = list(group)
            size_bytes = sum(segment.size_bytes for segment in segments)
            self.deleted_segments[reason] += len(segments)
            self.deleted_bytes[reason] += size_bytes
            logger.info(
                "%s: deleted %d segments with the offsets %d to %d, %d bytes, because of %s",
                partition.log.place,
                len(segments),
                segments[0].base_offset,
                segments[-1].end_offset - 1,
                size_bytes,
                reason,
            )
