"""One partition of an internal topic as a coordinator has it: a state machine and the log that makes it durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Generic, Protocol, TypeVar

from gateway.coordinator.stored_versions import newer_version_in
from gateway.coordinator.transactional import Pending, TransactionEnd
from gateway.runtime.partitions.log_replay import replay_batches
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.removal import make_durable
from log import IncompatibleFormat
from log.format.end_marker import read_end_marker
from log.format.record_batch import BatchHeader
from log.format.records import NewRecord, build_batch, iterate_records

logger = logging.getLogger(__name__)

REWRITE_AT_LEAST_BYTES: Final = 8 << 20
"""A log smaller than this is not worth writing anew."""
REWRITE_FACTOR: Final = 3
"""A log is written anew when it is so many times as large as what it must hold."""
RECORDS_AT_ONCE: Final = 500
"""Records written anew before other work of the event loop gets its turn."""
RECORD_OVERHEAD_BYTES: Final = 30
BATCH_OVERHEAD_BYTES: Final = 1024
"""More than a record, or a batch, takes beside its keys and values."""


class State(Protocol):
    """A state machine whose every lasting change is a record.

    One whose log has transactions also replays `Pending` records and `TransactionEnd`.
    """

    def replay(self, record: Any, now_ms: int) -> None: ...

    def stored_keys(self) -> Iterable[Any]: ...

    def records_of(self, key: Any) -> Sequence[Any]: ...


S = TypeVar("S", bound=State)


class Codec(Protocol):
    """How its records lie in the log."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...


class LoadedShard(Generic[S]):
    """One partition's state, loaded from its log and kept in step with it."""

    def __init__(self, partition: Partition, shard: S, codec: Codec) -> None:
        self.partition = partition
        self.shard = shard
        self._codec = codec
        self.failed = False
        """Whether the log lost what the state has: it must be loaded anew."""
        self.lost = False
        """Whether who serves from it was told that it failed."""
        self._needed_bytes = 0
        self.is_rewritten = False
        self._end_offset = 0
        """What the state has is in the log up to here."""

    @property
    def is_current(self) -> bool:
        """Whether the log still holds what the state has: a log that was reopened may end before."""
        log = self.partition.log
        return not self.failed and not log.offline and log.log_end_offset >= self._end_offset

    def load(self, now_ms: int) -> None:
        """Build the state from the log. Raises LogError, IncompatibleFormat."""
        log = self.partition.log
        count = 0
        for header, batch in replay_batches(log, log.log_start_offset):
            for record in decoded(self._codec, header, batch, f"{log.topic}-{log.partition}"):
                self.shard.replay(record, now_ms)
            count += header.record_count
        self._end_offset = log.log_end_offset
        self._needed_bytes = sum(self.size_of(self.shard.records_of(key)) for key in self.shard.stored_keys())
        if count:
            logger.info(
                "%s-%d: %d records loaded, %d bytes of them needed",
                log.topic,
                log.partition,
                count,
                self._needed_bytes,
            )

    def follow(self, record: TransactionEnd, now_ms: int) -> None:
        """Fold in what somebody else has just appended to the log."""
        self._end_offset = self.partition.log.log_end_offset
        self.shard.replay(record, now_ms)

    def append(self, records: Sequence[Any], now_ms: int) -> int:
        """Write records, in several batches when one would be too large; returns the last offset. Raises LogError."""
        for producer, same in groupby(records, _producer_of):
            new = [NewRecord(value, key=key, timestamp=now_ms) for key, value in map(self._encode, same)]
            for part in _parts(new, self.partition.log.config.max_message_bytes - BATCH_OVERHEAD_BYTES):
                self._end_offset = self._append_batch(part, producer, now_ms) + 1
        return self._end_offset - 1

    def _append_batch(self, part: list[NewRecord], producer: tuple[int, int] | None, now_ms: int) -> int:
        if producer is None:
            return self.partition.append(build_batch(part), now_ms).last_offset
        producer_id, producer_epoch = producer
        batch = build_batch(
            part, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True
        )
        return self.partition.append(batch, now_ms, is_client=False).last_offset

    def _encode(self, record: Any) -> tuple[bytes, bytes | None]:
        return self._codec.encode(record.record if isinstance(record, Pending) else record)

    def size_of(self, records: Iterable[Any]) -> int:
        """About how many bytes a batch of these takes."""
        return sum(
            len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in map(self._encode, records)
        )

    async def persisted(self, last_offset: int) -> bool:
        """Wait until what was written up to an offset is durable; False when it will not be."""
        if await self.partition.persisted(last_offset):
            return True
        self.failed = True
        return False

    async def settled(self) -> bool:
        """Wait until all that is written is durable; False when it will not be."""
        return await self.persisted(self.partition.log.log_end_offset - 1)

    @property
    def is_worth_a_rewrite(self) -> bool:
        size_bytes = self.partition.log.size_bytes
        return not self.is_rewritten and size_bytes > max(
            REWRITE_AT_LEAST_BYTES, REWRITE_FACTOR * self._needed_bytes
        )

    async def rewrite(self, now_ms: Callable[[], int]) -> None:
        """Write all state anew at the end of the log and delete what was before. Raises LogError.

        Does for this log what compaction does: each key's newest record remains. Between batches others go on;
        a record is written as its group is by then, so that no older state follows a newer one.
        """
        log = self.partition.log
        self.is_rewritten = True
        self._needed_bytes = log.size_bytes  # one that fails is not tried again at once
        try:
            log.roll(now_ms())
            start_offset = log.log_end_offset
            keys = list(self.shard.stored_keys())
            for first in range(0, len(keys), RECORDS_AT_ONCE):
                some = keys[first : first + RECORDS_AT_ONCE]
                records = [record for key in some for record in self.shard.records_of(key)]
                if records:
                    self.append(records, now_ms())
                await asyncio.sleep(0)
                if not self.is_current:
                    return
            if not await self.settled() or not self.is_current:
                return
            before = log.size_bytes
            if await self._delete_before(start_offset, now_ms):
                self._needed_bytes = log.size_bytes
                logger.info(
                    "%s-%d: written anew, %d bytes instead of %d",
                    log.topic,
                    log.partition,
                    log.size_bytes,
                    before,
                )
        finally:
            self.is_rewritten = False

    async def _delete_before(self, start_offset: int, now_ms: Callable[[], int]) -> bool:
        """Delete the records below `start_offset`; False when the log changed hands meanwhile. Raises LogError."""
        log = self.partition.log
        ticket = log.prepare_delete_records(start_offset)
        if ticket is not None:
            await make_durable(self.partition, ticket)
        if self.partition.closed or not self.is_current:
            return False
        log.delete_records_before(start_offset, now_ms())
        return True


def decoded(codec: Codec, header: BatchHeader, batch: memoryview, log_name: str) -> Iterator[Any]:
    """What the records of a batch say; one that is damaged is told in the log of the gateway and left out.

    Raises IncompatibleFormat for one that a later release wrote.
    """
    if header.is_control:
        marker = read_end_marker(batch)
        if marker is not None:
            yield TransactionEnd(header.producer_id, marker.is_commit)
        return
    for record in iterate_records(batch):
        try:
            found = codec.decode(record.key or b"", record.value)
        except ValueError as error:
            newer = newer_version_in(error)
            if newer is not None:
                raise IncompatibleFormat(f"{log_name} has, at offset {record.offset}, {newer}.") from error
            logger.warning("%s, offset %d: %s", log_name, record.offset, error)
            continue
        if found is None:
            continue
        yield Pending(header.producer_id, header.producer_epoch, found) if header.is_transactional else found


def _producer_of(record: Any) -> tuple[int, int] | None:
    """In whose transaction a record is to be written."""
    return (record.producer_id, record.producer_epoch) if isinstance(record, Pending) else None


def _parts(records: Sequence[NewRecord], max_bytes: int) -> Iterator[list[NewRecord]]:
    """The records in order, in lists that a batch can hold; one that is too large is alone."""
    part: list[NewRecord] = []
    size_bytes = 0
    for record in records:
        more_bytes = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if part and size_bytes + more_bytes > max_bytes:
            yield part
            part, size_bytes = [], 0
        part.append(record)
        size_bytes += more_bytes
    yield part
