"""One partition of an internal topic as its coordinator serves it: a state machine and the log that makes it durable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from gateway.coordinator.stored_versions import newer_version_in
from gateway.coordinator.transactional import Pending, TransactionEnd
from gateway.runtime.operations.open_batch import OpenBatch, size_of
from gateway.runtime.partitions.log_replay import replay_batches
from gateway.runtime.partitions.partition import Partition
from log import IncompatibleFormat
from log.format.end_marker import read_end_marker
from log.format.record_batch import BatchHeader
from log.format.records import iterate_records

logger = logging.getLogger(__name__)


class State(Protocol):
    """A state machine that changes its stored state only by records.

    If the log has transactions, the state also replays `Pending` records and `TransactionEnd`.
    """

    def replay(self, record: Any, now_ms: int) -> None: ...

    def stored_keys(self) -> Iterable[Any]: ...

    def records_of(self, key: Any) -> Sequence[Any]: ...


S = TypeVar("S", bound=State)


class Codec(Protocol):
    """The format of the state's records in the log."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any | None: ...


class LoadedShard(Generic[S]):
    """The state of one partition, loaded from its log; every record that is appended changes the state too."""

    def __init__(self, partition: Partition, shard: S, codec: Codec) -> None:
        self.partition = partition
        self.shard = shard
        self._codec = codec
        self._batch = OpenBatch(partition, codec.encode)
        self.append = self._batch.add
        """Adds records to the batch that `write` writes. Raises LogError, ValueError (see `OpenBatch.add`)."""
        self.failed = False
        """Whether the state is ahead of the log, so that it must be loaded again."""
        self.lost = False
        """Whether the coordinator has learned that the shard failed."""
        self.needed_bytes = 0
        """The estimated size of the log if it were rewritten now."""
        self.is_rewritten = False
        self._end_offset = 0
        """The state contains all records of the log below this offset, and no others."""

    @property
    def is_current(self) -> bool:
        """Whether this gateway leads the partition, and the log holds every record of the state: a log that was reopened may end earlier."""
        log = self.partition.log
        return (
            not self.failed
            and not self.partition.closed
            and log.outage.reason is None
            and log.log_end_offset >= self._end_offset
        )

    @property
    def awaits_flush(self) -> bool:
        """Whether a batch of this shard must wait for a flush before its operations are answered."""
        return self.partition.flush_messages == 1

    def load(self, now_ms: int) -> None:
        """Build the state from the log. Raises LogError, IncompatibleFormat."""
        log = self.partition.log
        count = 0
        for header, batch in replay_batches(log, log.log_start_offset):
            for record in decoded(self._codec, header, batch, f"{log.topic}-{log.partition}"):
                self.shard.replay(record, now_ms)
            count += header.record_count
        self._end_offset = log.log_end_offset
        self.needed_bytes = sum(self.size_of(self.shard.records_of(key)) for key in self.shard.stored_keys())
        if count:
            logger.info(
                "%s-%d: %d records loaded, %d bytes of them needed",
                log.topic,
                log.partition,
                count,
                self.needed_bytes,
            )

    def follow(self, record: TransactionEnd, now_ms: int) -> None:
        """Fold in a marker that was just appended to the log."""
        self._end_offset = self.partition.log.log_end_offset
        self.shard.replay(record, now_ms)

    def write(self) -> bool:
        """Write the gathered records to the log; return whether the log grew. Raises LogError."""
        self._batch.write()
        before, self._end_offset = self._end_offset, self.partition.log.log_end_offset
        return self._end_offset > before

    def size_of(self, records: Iterable[Any]) -> int:
        """Estimate how many bytes a batch of these records takes."""
        return size_of(self._codec.encode, records)

    async def persisted(self, last_offset: int) -> bool:
        """Wait until the log is durable up to an offset; False when its flush fails."""
        if await self.partition.persisted(last_offset):
            return True
        self.failed = True
        return False


def decoded(codec: Codec, header: BatchHeader, batch: memoryview, log_name: str) -> Iterator[Any]:
    """Return the decoded records of a batch. A damaged record is logged and left out.

    Raises IncompatibleFormat for a record of a later release.
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
