"""The log of one partition.

`append` is: check, judge producer, assign base_offset, write, update producer state, advance log_end_offset, with
nothing in between that could let another append in. Written is not durable: a `FlushTicket` moves `recovery_point`,
and the owner moves `high_watermark`. After a failed write or flush the log is offline until `reopen`.
Source of the rules: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NoReturn

from log import lookups
from log.batch_validation import check_batch
from log.checkpoints import encode_leader_epochs, encode_offsets
from log.errors import (
    InvalidProducerEpoch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerLimitReached,
    StorageFailed,
)
from log.flush import FlushTicket
from log.names import LEADER_EPOCHS, LOG_START_OFFSET, TEMPORARY_SUFFIX
from log.producer_snapshots import write_snapshot
from log.record_batch import PATCHED, REWRITABLE, REWRITABLE_BYTES, TIMESTAMP_TYPE_FLAG, stamped_head
from log.recovery import CleanStop, load_log
from log.results import AppendInfo, DeletedSegment, ReadResult, TimestampAndOffset
from log.retention import SegmentFacts, segments_to_delete
from log.segment import Segment
from log.segment_deletion import SegmentDeletion
from seq_validator import ACCEPTED, Duplicate, ProducerTable, Rejected, RejectionReason

if TYPE_CHECKING:
    import uuid

    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.leader_epochs import LeaderEpochs
    from log.record_batch import BatchHeader, Buffer

_logger = logging.getLogger(__name__)
_KNOWN_POSITIONS: Final = 16
_BATCH_LENGTH: Final = slice(8, 12)
_SIZE_KNOWN_BYTES: Final = 12
_MAX_TIMESTAMP: Final = slice(35, 43)
_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
}


class UnifiedLog:
    """One partition's batches, from log_start_offset (inclusive) to log_end_offset (exclusive).

    All below `recovery_point` is durable; all below `high_watermark` may be read by consumers. All methods belong to
    one thread, only `FlushTicket.run` may run in another. Times are ms and come from the caller.
    """

    __slots__ = (
        "_active",
        "_bases",
        "_deletion",
        "_environment",
        "_generation",
        "_high_watermark_position",
        "_known_positions",
        "_leader_epochs",
        "_segments",
        "_undurable_directories",
        "_undurable_paths",
        "bytes_cut",
        "config",
        "directory",
        "failure",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "size_bytes",
        "topic",
        "topic_id",
    )

    producers: ProducerTable
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int
    size_bytes: int
    bytes_cut: int
    _segments: list[Segment]
    _bases: list[int]
    _active: Segment
    _leader_epochs: LeaderEpochs
    _high_watermark_position: tuple[int, int]
    _known_positions: OrderedDict[int, tuple[int, int]]
    _undurable_paths: list[str]
    _undurable_directories: list[str]

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        now_ms: int,
        recovery_point: int = 0,
        clean_stop: CleanStop | None = None,
    ) -> None:
        """Load the partition from `directory`, which exists. Raises OSError, IncompatibleFormat."""
        self._environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.failure: str | None = None
        self._generation = 0
        self._deletion = SegmentDeletion(environment)
        self._load(recovery_point, clean_stop, now_ms)

    def _load(self, recovery_point: int, clean_stop: CleanStop | None, now_ms: int) -> None:
        loaded = load_log(
            self._environment,
            self.directory,
            self.config,
            recovery_point=recovery_point,
            clean_stop=clean_stop,
            now_ms=now_ms,
        )
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.recovery_point = self.high_watermark = loaded.log_end_offset
        self.size_bytes = sum(segment.size_bytes for segment in loaded.segments)
        self.bytes_cut = loaded.bytes_cut
        self._high_watermark_position = (self._active.base_offset, self._active.size_bytes)
        self._known_positions = OrderedDict()
        self._undurable_paths = []
        self._undurable_directories = []

    @property
    def offline(self) -> bool:
        """Whether a failed write or flush ended service until `reopen`; `failure` says what happened."""
        return self.failure is not None

    @property
    def last_stable_offset(self) -> int:
        """Below it every record is decided: the high watermark, as no transactions are kept here."""
        return self.high_watermark

    @property
    def active_base_offset(self) -> int:
        """Base offset of the segment that is written to."""
        return self._active.base_offset

    @property
    def segment_count(self) -> int:
        """How many segments the log has."""
        return len(self._segments)

    def update_config(self, config: LogConfig) -> None:
        """Go on with another configuration of the topic."""
        self.config = config

    # Appending.

    def append(
        self, records: Buffer, *, now_ms: int, leader_epoch: int = 0, is_client: bool = True
    ) -> AppendInfo:
        """Append the one batch in `records`; a duplicate is answered with where its original lies.

        The written batch is not yet durable and not yet visible. Raises LogError; the log is then unchanged, or
        offline after StorageFailed.
        """
        self._check_online()
        config = self.config
        view = memoryview(records)
        batch = check_batch(view, config, now_ms, is_client)
        if batch.producer_id >= 0:
            verdict = self.producers.judge(batch, now_ms)
            if verdict is not ACCEPTED:
                if isinstance(verdict, Duplicate):
                    return AppendInfo(
                        verdict.base_offset, verdict.last_offset, verdict.timestamp, self.log_start_offset, True
                    )
                if isinstance(verdict, Rejected):
                    raise _REFUSALS[verdict.reason](verdict.message)
        base_offset = batch.base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        batch.partition_leader_epoch = leader_epoch
        if self._active.must_roll(batch, last_offset, config, now_ms):
            self.roll(now_ms)
        log_append_time_ms = self._write(batch, view, config, now_ms)
        self._active.appended(batch, last_offset, config.index_interval_bytes)
        self.size_bytes += batch.size_bytes
        if batch.producer_id >= 0:
            self.producers.update(batch, base_offset, now_ms)
        self.log_end_offset = last_offset + 1
        if leader_epoch > self._leader_epochs.latest:
            self._begin_leader_epoch(leader_epoch, base_offset)
        return AppendInfo(base_offset, last_offset, log_append_time_ms, self.log_start_offset, False)

    def _write(self, batch: BatchHeader, view: memoryview, config: LogConfig, now_ms: int) -> int:
        """Write the batch at the end with its new offset, and its new time if the topic says so; returns that time."""
        size_bytes = batch.size_bytes
        log_append_time_ms = -1
        if config.message_timestamp_type != "CreateTime":
            log_append_time_ms = now_ms
            head = stamped_head(batch, view, batch.attributes | TIMESTAMP_TYPE_FLAG, now_ms)
            rest = view[PATCHED.size : size_bytes]
        elif config.deep_validation and view[_MAX_TIMESTAMP] != batch.max_timestamp.to_bytes(8, "big", signed=True):
            head = stamped_head(batch, view, batch.attributes, batch.max_timestamp)
            rest = view[PATCHED.size : size_bytes]
        else:
            head = REWRITABLE.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch)
            rest = view[REWRITABLE_BYTES:size_bytes]
        active = self._active
        try:
            written = self._environment.storage.write(active.file, (head, rest), active.size_bytes)
        except OSError as error:
            self._fail(f"a write failed: {error}")
        if written != size_bytes:
            self._fail(f"only {written} of {size_bytes} bytes could be written; is the disk full?")
        return log_append_time_ms

    def _begin_leader_epoch(self, leader_epoch: int, base_offset: int) -> None:
        self._leader_epochs.assign(leader_epoch, base_offset)
        path = f"{self.directory}/{LEADER_EPOCHS}"
        storage = self._environment.storage
        try:
            storage.write_file(path + TEMPORARY_SUFFIX, encode_leader_epochs(self._leader_epochs.entries()))
            storage.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            self._fail(f"the leader epoch could not be written: {error}")
        self._undurable_paths.append(path)
        self._undurable_directories.append(self.directory)

    def roll(self, now_ms: int) -> None:
        """Go on in a new segment that begins at log_end_offset. Raises StorageFailed."""
        closing = self._active
        if closing.base_offset == self.log_end_offset:
            return
        segment = Segment(self._environment, self.directory, self.log_end_offset, 0, now_ms)
        try:
            self._undurable_paths += closing.write_indexes()
            self._undurable_paths.append(self._write_snapshot())
            self._environment.storage.create(segment.file)
        except OSError as error:
            self._fail(f"a new segment could not be created: {error}")
        self._undurable_directories.append(self.directory)
        closing.become_closed()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment

    def _write_snapshot(self) -> str:
        return write_snapshot(self._environment, self.directory, self.producers, self.log_end_offset)

    # Durability.

    def prepare_flush(self) -> FlushTicket | None:
        """A ticket for everything written and not yet durable; None when there is nothing or the log is offline."""
        if self.offline:
            return None
        if self.recovery_point >= self.log_end_offset and not self._undurable_paths:
            return None
        first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        files = [segment.file for segment in self._segments[first:] if segment.size_bytes]
        storage = self._environment.storage
        pinned = []
        try:
            for file in files:
                storage.pin(file)
                pinned.append(file)
        except OSError as error:
            for file in pinned:
                storage.unpin(file)
            self.take_offline(f"a file could not be opened: {error}")
            return None
        ticket = FlushTicket(
            storage,
            files=files,
            paths=self._undurable_paths,
            directories=list(dict.fromkeys(self._undurable_directories)),
            end_offset=self.log_end_offset,
            end_position=self._active.size_bytes,
            generation=self._generation,
        )
        self._undurable_paths = []
        self._undurable_directories = []
        self._remember(self.log_end_offset, self._active.base_offset, self._active.size_bytes)
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """The ticket ran: what it covers is durable."""
        self._unpin(ticket)
        if ticket.generation == self._generation and not self.offline:
            self.recovery_point = max(self.recovery_point, ticket.end_offset)

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> None:
        """The ticket failed: nobody knows what reached the disk, so the log goes offline."""
        self._unpin(ticket)
        if ticket.generation == self._generation:
            self.take_offline(f"a flush failed: {error}")

    def _unpin(self, ticket: FlushTicket) -> None:
        for file in ticket.files:
            self._environment.storage.unpin(file)

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset` (exclusive); it never goes back and never passes log_end_offset."""
        if offset <= self.high_watermark or offset > self.log_end_offset:
            return
        self.high_watermark = offset
        if offset == self.log_end_offset:
            self._high_watermark_position = (self._active.base_offset, self._active.size_bytes)
        else:
            self._high_watermark_position = self._known_positions.get(offset, (-1, -1))

    # Reading.

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> ReadResult:
        """Batches from the one that holds `offset` on, at most `max_bytes`, all below `upper_bound` (exclusive).

        The last batch may be cut. With `min_one_batch` the first one comes whole, whatever its size. One segment is
        read at a time. Raises OffsetOutOfRange, StorageFailed.
        """
        self._check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}."
            )
        if offset >= upper_bound or (max_bytes <= 0 and not min_one_batch):
            return ReadResult(b"")
        try:
            return ReadResult(self._read(offset, max_bytes, upper_bound, min_one_batch))
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def _read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool) -> bytes:
        index = bisect_right(self._bases, offset) - 1
        storage = self._environment.storage
        while index < len(self._segments):
            segment = self._segments[index]
            end = self._readable_end(index, upper_bound)
            position = self._start_position(segment, offset, end)
            index += 1
            if position >= end:
                continue
            data = storage.read(segment.file, min(max_bytes, end - position), position) if max_bytes > 0 else b""
            if min_one_batch and len(data) < end - position:
                data = self._first_batch_whole(segment, data, position, end)
            if position + len(data) == end:
                next_offset = self._bases[index] if index < len(self._bases) else upper_bound
                self._remember(min(next_offset, upper_bound), segment.base_offset, end)
            return data
        return b""

    def _first_batch_whole(self, segment: Segment, data: bytes, position: int, end: int) -> bytes:
        storage = self._environment.storage
        head = data if len(data) >= _SIZE_KNOWN_BYTES else storage.read(segment.file, _SIZE_KNOWN_BYTES, position)
        size_bytes = _SIZE_KNOWN_BYTES + int.from_bytes(head[_BATCH_LENGTH], "big")
        if size_bytes <= len(data):
            return data
        return storage.read(segment.file, min(size_bytes, end - position), position)

    def _readable_end(self, index: int, upper_bound: int) -> int:
        """Where in the segment the batches below `upper_bound` end."""
        segment = self._segments[index]
        next_base = self._bases[index + 1] if index + 1 < len(self._bases) else self.log_end_offset
        if upper_bound >= next_base:
            return segment.size_bytes
        if upper_bound == self.high_watermark and self._high_watermark_position[0] == segment.base_offset:
            return self._high_watermark_position[1]
        return segment.position_of(upper_bound, segment.size_bytes)

    def _start_position(self, segment: Segment, offset: int, end: int) -> int:
        if offset <= segment.base_offset:
            return 0
        known = self._known_positions.get(offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1]
        return segment.position_of(offset, end)

    def _remember(self, offset: int, segment_base_offset: int, position: int) -> None:
        """Readers come back for the offset at which they, or a flush, ended."""
        known = self._known_positions
        known[offset] = (segment_base_offset, position)
        if len(known) > _KNOWN_POSITIONS:
            known.popitem(last=False)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`. Raises LogError."""
        self._check_online()
        try:
            return lookups.first_not_before(
                self._environment, self._segments, timestamp_ms, self.log_start_offset
            )
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that holds the largest timestamp, deleted records included as in Kafka. Raises LogError."""
        self._check_online()
        try:
            return lookups.first_of_largest(self._environment, self._segments)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error

    def leader_epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """(leader_epoch, end_offset) of the largest epoch not above the one asked for; (-1, -1) when unknown."""
        return self._leader_epochs.end_offset(leader_epoch, self.log_end_offset)

    # Deleting.

    def delete_records_before(self, offset: int) -> int:
        """Move log_start_offset to `offset` (-1: the high watermark), durably; returns the new one.

        Raises OffsetOutOfRange beyond the high watermark, StorageFailed.
        """
        self._check_online()
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRange(f"Offset {offset} is not below the high watermark {self.high_watermark}.")
        self._move_log_start(wanted)
        doomed = [
            segment
            for segment, next_base in zip(self._segments, self._bases[1:], strict=False)
            if next_base <= self.log_start_offset
        ]
        self._remove(doomed, 0)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """Remove what retention says must go, log_start_offset first. Raises StorageFailed."""
        self._check_online()
        ends = [*self._bases[1:], self.log_end_offset]
        facts = [
            SegmentFacts(segment.base_offset, end_offset, segment.size_bytes, segment.max_timestamp)
            for segment, end_offset in zip(self._segments, ends, strict=True)
        ]
        decided = segments_to_delete(
            facts,
            now_ms=now_ms,
            retention_ms=self.config.retention_ms,
            retention_bytes=self.config.retention_bytes,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if not decided:
            return []
        if len(decided) == len(self._segments):
            self.roll(now_ms)
        self._move_log_start(decided[-1][0].end_offset)
        self._remove(self._segments[: len(decided)], now_ms)
        for segment, reason in decided:
            _logger.info("%s-%d: deleted the segment at %d: %s", self.topic, self.partition, segment.base_offset, reason)
        return [DeletedSegment(segment.base_offset, segment.size_bytes, reason) for segment, reason in decided]

    def _move_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        path = f"{self.directory}/{LOG_START_OFFSET}"
        try:
            self._environment.storage.replace_file(path, encode_offsets({(self.topic, self.partition): offset}))
        except OSError as error:
            self._fail(f"the log start offset could not be made durable: {error}")
        self.log_start_offset = offset

    def _remove(self, doomed: list[Segment], now_ms: int) -> None:
        if not doomed:
            return
        del self._segments[: len(doomed)]
        del self._bases[: len(doomed)]
        self.size_bytes -= sum(segment.size_bytes for segment in doomed)
        try:
            self._deletion.remove(doomed, now_ms + self.config.file_delete_delay_ms)
        except OSError as error:
            self._fail(f"a segment could not be removed: {error}")

    def delete_pending(self, now_ms: int) -> int:
        """Delete the files of removed segments whose delay is over; returns how many. Raises OSError."""
        return self._deletion.delete_due(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # Failing, re-opening, closing.

    def _check_online(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"{self.topic}-{self.partition} is offline: {self.failure}")

    def _fail(self, reason: str) -> NoReturn:
        self.take_offline(reason)
        raise StorageFailed(f"{self.topic}-{self.partition} is offline: {reason}")

    def take_offline(self, reason: str) -> None:
        """Refuse everything until `reopen`. What was durable stays so; what was only written is undecided."""
        if self.failure is None:
            self.failure = reason
            _logger.error("%s-%d goes offline: %s", self.topic, self.partition, reason)

    def reopen(self, now_ms: int) -> None:
        """Recover from what the disk really has and go on. Raises OSError; the log is then still offline."""
        self._generation += 1
        for segment in self._segments:
            self._environment.storage.release(segment.file)
            self._environment.index_cache.drop(segment.file.path)
        self.producers.clear()
        self._load(min(self.recovery_point, self.log_end_offset), None, now_ms)
        self.failure = None
        _logger.info("%s-%d is back, it ends at offset %d", self.topic, self.partition, self.log_end_offset)

    def close(self, *, clean: bool) -> CleanStop | None:
        """Release the files. A clean close makes everything durable first and says what the next start may trust.

        A log that is offline, or fails while it closes, returns None: it will be recovered. Never raises for the disk.
        """
        stop = None
        if clean and not self.offline:
            try:
                stop = self._close_clean()
            except (OSError, StorageFailed) as error:
                self.take_offline(f"it could not be closed cleanly: {error}")
        for segment in self._segments:
            self._environment.storage.release(segment.file)
            self._environment.index_cache.drop(segment.file.path)
        self.producers.clear()
        self._generation += 1
        if self.failure is None:
            self.failure = "it is closed"
        return stop

    def _close_clean(self) -> CleanStop:
        self._undurable_paths += self._active.write_indexes()
        self._undurable_paths.append(self._write_snapshot())
        self._undurable_directories.append(self.directory)
        ticket = self.prepare_flush()
        if ticket is not None:
            try:
                ticket.run()
            except OSError as error:
                self.fail_flush(ticket, error)
                raise
            self.complete_flush(ticket)
        return CleanStop(self.log_end_offset, self._active.base_offset, self._active.size_bytes)
