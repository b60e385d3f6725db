"""The log of one partition.

`append` is: check, judge producer, assign base_offset, write, update producer state, advance log_end_offset, with
nothing in between that could let another append in. Written is not durable: a `FlushTicket` moves `recovery_point`,
and the owner moves `high_watermark`. After a failed write or flush the log is offline until `reopen`.
Source of the rules: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from log.deduplicated_log import DeduplicatedLog
from log.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    InvalidTxnState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerLimitReached,
    StorageFailed,
    TransactionCoordinatorFenced,
)
from log.files.checkpoints import encode_leader_epochs
from log.files.file_names import LEADER_EPOCHS, TEMPORARY_SUFFIX
from log.format.batch_validation import check_batch
from log.format.end_marker import build_end_marker
from log.format.record_batch import (
    PATCHED,
    REWRITABLE,
    REWRITABLE_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    stamped_head,
)
from log.segments import time_lookup
from log.segments.regions import Appended, FileRegion, ReadResult, TimestampAndOffset
from seq_validator import ACCEPTED, Duplicate, Rejected, RejectionReason

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.format.record_batch import BatchHeader, Buffer
    from log.segments.segment import Segment
    from seq_validator import Verdict

_new_tuple = tuple.__new__
_MAX_TIMESTAMP: Final = slice(35, 43)
_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
    RejectionReason.INVALID_TXN_STATE: InvalidTxnState,
    RejectionReason.TRANSACTION_COORDINATOR_FENCED: TransactionCoordinatorFenced,
}


class UnifiedLog(DeduplicatedLog):
    """One partition's batches, from log_start_offset (inclusive) to log_end_offset (exclusive).

    All below `recovery_point` is durable; all below `high_watermark` may be read by consumers, and those that want
    committed records only stop at `last_stable_offset`. All methods belong to one thread, only `FlushTicket.run` may
    run in another. Times are ms and come from the caller.
    """

    # Appending.

    def append(  # noqa: C901, PLR0912 - what runs for every batch, in its order and in one call
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int = 0,
        is_client: bool = True,
        begins_at_zero: bool = False,
    ) -> Appended:
        """Append the one batch in `records`; a duplicate is answered with where its original lies.

        The written batch is not yet durable and not yet visible. A coordinator (`is_client` false) may write for a
        producer without a sequence (-1); then only the epoch counts. With `begins_at_zero` an unknown producer must
        begin with sequence 0, as Kafka demands in transactions of version 2 (KIP-890).
        Raises LogError; the log is then unchanged, or offline after StorageFailed.
        """
        if self.failure is not None:
            self._check_online()
        config = self.config
        view = records if isinstance(records, memoryview) else memoryview(records)
        batch = check_batch(view, config, now_ms, is_client)
        active = self._active
        if batch.producer_id >= 0:
            verdict = self.producers.judge(batch, now_ms, begins_at_zero)
            if verdict is not ACCEPTED:
                return self._not_appended(verdict)
        content = None
        if self.names is not None or self.delays is not None:
            content = self._look_into(batch, view, now_ms)
            if content.answer is not None:
                return content.answer
            batch, view = content.batch, content.view
        base_offset = batch.base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        batch.partition_leader_epoch = leader_epoch
        if config.message_timestamp_type != "CreateTime" and batch.record_count:
            batch.max_timestamp = now_ms  # the time that counts, also for rolling by time
        try:
            must_roll = active.must_roll(batch, last_offset, config, now_ms)
        except (CorruptRecord, OSError) as error:
            self._fail(f"the active segment can't be read: {error}", error)
        if must_roll:
            self.roll(now_ms)
            active = self._active
        log_append_time_ms = self._write(active, batch, view, config, now_ms)
        try:
            active.appended(batch, last_offset, config.index_interval_bytes)
            self.size_bytes += batch.size_bytes
            if batch.producer_id >= 0:
                if batch.attributes & TRANSACTIONAL_FLAG:
                    self._follow_transaction(batch, view, now_ms)
                else:
                    self.producers.update(batch, base_offset, now_ms)
            self.log_end_offset = last_offset + 1
            if content is not None:
                self._take_account(content, now_ms)
            if leader_epoch > self._leader_epochs.latest:
                self._begin_leader_epoch(leader_epoch, base_offset)
        except MemoryError as error:
            # half of the state has it and half has not; the file is right
            self._fail("the memory did not suffice for what follows a write", error)
        # The NamedTuple's own constructor costs three times as much, and this runs for every batch.
        return _new_tuple(
            Appended,
            (base_offset, last_offset, log_append_time_ms, self.log_start_offset, False, last_offset),
        )

    def _not_appended(self, verdict: Verdict) -> Appended:
        """Where the original of a duplicate lies. Raises LogError for what was rejected."""
        if isinstance(verdict, Duplicate):
            last_offset = verdict.last_offset
            return Appended(
                verdict.base_offset, last_offset, verdict.timestamp, self.log_start_offset, True, last_offset
            )
        assert isinstance(verdict, Rejected)
        raise _REFUSALS[verdict.reason](verdict.message)

    def append_end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        leader_epoch: int = 0,
    ) -> Appended:
        """Append what `end_marker` makes. Raises as it and `append` do."""
        marker = self.end_marker(
            producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
        )
        return self.append(marker, now_ms=now_ms, leader_epoch=leader_epoch, is_client=False)

    def end_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> bytes:
        """The batch that commits or aborts what the producer has open, to be appended at once, not as a client's.

        It may be appended without anything open. The producer goes on under `producer_epoch`. Raises
        InvalidProducerEpoch for one older than the known epoch, TransactionCoordinatorFenced for an older
        coordinator_epoch, StorageFailed.
        """
        self._check_online()
        verdict = self.producers.judge_marker(producer_id, producer_epoch, coordinator_epoch)
        if isinstance(verdict, Rejected):
            raise _REFUSALS[verdict.reason](verdict.message)
        return build_end_marker(
            producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
        )

    def _write(
        self, active: Segment, batch: BatchHeader, view: memoryview, config: LogConfig, now_ms: int
    ) -> int:
        """Write the batch at the end with its new offset, and its new time if the topic says so; returns that time."""
        size_bytes = batch.size_bytes
        log_append_time_ms = -1
        if config.message_timestamp_type != "CreateTime" and batch.record_count:
            log_append_time_ms = now_ms
            head = stamped_head(batch, view, batch.attributes | TIMESTAMP_TYPE_FLAG, now_ms)
            rest = view[PATCHED.size : size_bytes]
        elif batch.attributes & TIMESTAMP_TYPE_FLAG or (
            config.deep_validation
            and view[_MAX_TIMESTAMP] != batch.max_timestamp.to_bytes(8, "big", signed=True)
        ):
            # the topic, not the producer, says whose time it is; and deep validation knows the true maximum
            head = stamped_head(batch, view, batch.attributes & ~TIMESTAMP_TYPE_FLAG, batch.max_timestamp)
            rest = view[PATCHED.size : size_bytes]
        else:
            head = REWRITABLE.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch)
            rest = view[REWRITABLE_BYTES:size_bytes]
        try:
            written = self._environment.storage.write(active.file, (head, rest), active.size_bytes)
        except OSError as error:
            self._fail(f"a write failed: {error}", error)
        if written != size_bytes:
            no_room = OSError(errno.ENOSPC, "short write")
            self._fail(f"only {written} of {size_bytes} bytes could be written; is the disk full?", no_room)
        return log_append_time_ms

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Lead under `leader_epoch` from here on, as Kafka notes when a broker becomes leader. Raises StorageFailed."""
        if leader_epoch > self._leader_epochs.latest and not self.offline:
            self._begin_leader_epoch(leader_epoch, self.log_end_offset)

    def _begin_leader_epoch(self, leader_epoch: int, base_offset: int) -> None:
        self._leader_epochs.assign(leader_epoch, base_offset)
        path = f"{self.directory}/{LEADER_EPOCHS}"
        storage = self._environment.storage
        try:
            storage.write_file(path + TEMPORARY_SUFFIX, encode_leader_epochs(self._leader_epochs.entries()))
            storage.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            self._fail(f"the leader epoch could not be written: {error}", error)
        self._undurable.add([path], self.directory)

    # Reading.

    def find(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> FileRegion | None:
        """Where the batches from the one that holds `offset` on lie, at most `max_bytes`, all below `upper_bound`.

        The last batch may be cut, the first one never: where it is larger than `max_bytes` it is found all the same
        with `min_one_batch`, and nothing without. None when there is nothing. One segment at a time.
        Raises OffsetOutOfRange, StorageFailed. Source: Kafka's `LogSegment.read` and `ReplicaManager.readFromLog`.
        """
        self._check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}."
            )
        if offset >= upper_bound or (max_bytes <= 0 and not min_one_batch):
            return None
        try:
            return self._reader.find(offset, max_bytes, upper_bound, self.log_end_offset, min_one_batch)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> ReadResult:
        """The bytes of what `find` finds. Raises as it does."""
        region = self.find(offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch)
        return ReadResult(b"" if region is None else self.read_region(region))

    def read_region(self, region: FileRegion) -> bytes:
        """The bytes of a region of this log. Raises StorageFailed."""
        try:
            return region.read()
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`. Raises LogError."""
        self._check_online()
        try:
            return time_lookup.first_not_before(
                self._environment, self.config, self._segments, timestamp_ms, self.log_start_offset
            )
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that holds the largest timestamp, deleted records included as in Kafka. Raises LogError."""
        self._check_online()
        try:
            return time_lookup.first_of_largest(self._environment, self.config, self._segments)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def leader_epoch_at(self, offset: int) -> int:
        """The leader_epoch under which `offset` was or will be written; -1 when unknown."""
        return self._leader_epochs.at(offset)

    def leader_epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """(leader_epoch, end_offset) of the largest epoch not above the one asked for; (-1, -1) when unknown."""
        return self._leader_epochs.end_offset(leader_epoch, self.log_end_offset)

    # Forgetting.

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
