"""The journal of the metadata: the image, how far it is in the log, and how a change becomes durable.

`LocalJournal` appends a change to the log of this data directory and flushes the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from gateway.metadata.image import MetadataImage
from gateway.metadata.records import MetadataRecord, decode_record, encode_record
from gateway.runtime.loop.clock import Clock
from gateway.runtime.operations.operations import Journal
from gateway.runtime.partitions.log_flusher import LogFlusher, replay_records
from log import PartitionLog
from log.format.records import NewRecord, build_batch

#: A function called with the records of each change after their replay; the next change waits for it.
Listener = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


def read_records(log: PartitionLog, offset: int) -> Iterator[MetadataRecord]:
    """Yield all records from `offset` to the end of the log.

    Raises:
        UnknownRecordError: a later release wrote the log.
        LogError: the log can't be read.
    """
    for record in replay_records(log, offset):
        yield decode_record(record.value or b"")


def replay_log(log: PartitionLog, image: MetadataImage) -> int:
    """Replay the whole log into the image; return the number of records. Raises UnknownRecordError, LogError."""
    count = 0
    for record in read_records(log, log.log_start_offset):
        image.replay(record)
        count += 1
    return count


def change_batch(records: Sequence[MetadataRecord], now_ms: int) -> bytes:
    """Return the records of one change as a record batch without its place in the log."""
    return build_batch([NewRecord(encode_record(record), timestamp=now_ms) for record in records])


class FoldedImage:
    """The image of the metadata, its listeners, and the local log that it is built from."""

    def __init__(
        self, log: PartitionLog | None, image: MetadataImage | None = None, end_offset: int = 0
    ) -> None:
        """Take the log of this process; or, where another process has the log, the image up to `end_offset`."""
        self.image = MetadataImage() if image is None else image
        self.log = log
        self.listeners: list[Listener] = []
        self.end_offset = end_offset if log is None else log.log_start_offset
        """The offset after the newest record in the image."""

    def replay(self) -> int:
        """Build the image from the local log; return the number of records. Raises UnknownRecordError, LogError."""
        assert self.log is not None
        count = replay_log(self.log, self.image)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.end_offset = self.log.log_end_offset
        return count

    async def fold_in(self, records: Sequence[MetadataRecord], end_offset: int) -> None:
        """Replay the records of a change into the image, and pass them to the listeners."""
        for record in records:
            self.image.replay(record)
        self.end_offset = end_offset
        for listener in self.listeners:
            await listener(records)


class MetadataJournal(Journal, Protocol):
    """The journal of a metadata image."""

    @property
    def folded(self) -> FoldedImage:
        """The image with all changes that were committed or caught up with."""


class LocalJournal:
    """The metadata of one data directory, which no other gateway changes."""

    def __init__(self, log: PartitionLog, flusher: LogFlusher, clock: Clock) -> None:
        self.folded = FoldedImage(log)
        self._log = log
        self._flusher = flusher
        self._clock = clock

    async def catch_up(self) -> None:
        """Fold in what a failed flush has left in the log, which was recovered since. Raises LogError."""
        if self.folded.end_offset != self._log.log_end_offset:
            await self._fold_in_when_durable(list(read_records(self._log, self.folded.end_offset)))

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Write the records in one batch, flush the log and fold them in. Raises LogError; then nothing is folded in."""
        now_ms = self._clock.now_ms()
        self._log.append(change_batch(records, now_ms), now_ms=now_ms, is_client=False)
        await self._fold_in_when_durable(records)
        return True

    async def _fold_in_when_durable(self, records: Sequence[MetadataRecord]) -> None:
        end_offset = self._log.log_end_offset
        await self._flusher.flushed(self._log)
        self._log.advance_high_watermark(end_offset)
        await self.folded.fold_in(records, end_offset)
