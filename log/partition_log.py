"""The log of one partition, which drives its parts.

`append` checks the batch, judges the producer and the records, assigns base_offset, writes, folds in, and
advances log_end_offset. No other append can come between these steps. Written data is not durable: a
`FlushTicket` moves `recovery_point`, and the owner moves `high_watermark`. After a failed write or flush the
log is offline until `reopen`.

    segments       the files of batches, their indexes    unflushed      what is not durable yet, its tickets
    producers      sequences, judged in `append`          transactions   open ones, last stable offset
    record_states  what records ask for: names and delays

Measures and look-ups read the indexes and a few batch headers, never record data. An offset before the log
counts as the log start, and an offset after the log as the log end.

A clean close has two steps around a flush, which any thread may commit: `prepare_close` writes what a start
would have to rebuild, `finish_close` releases the files. A return from an outage has three, so that the event
loop neither scans the log nor waits for an fsync: `begin_recovery` closes the files, any thread runs the
`Recovery`, `end_recovery` loads what it made durable. After a failed write or flush an fsync is never tried
again: what was only written is undecided (PostgreSQL's fsyncgate, 2018).

Source of the rules: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.durability.unflushed import FlushTicket, LogStart, Unflushed
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import CorruptRecord, DerivedProducer, OffsetOutOfRange, StorageFailed, refuse
from seqgate.log.files.checkpoints import encode_leader_epochs, encode_partition_metadata
from seqgate.log.files.file_names import LEADER_EPOCHS, PARTITION_METADATA
from seqgate.log.files.storage import NO_DESCRIPTORS, NoRoom
from seqgate.log.format.batch_validation import HERE, RecordCheck, check_batch, stamp
from seqgate.log.format.record_batch import TRANSACTIONAL_FLAG, BatchHeader, Buffer, crc_matches
from seqgate.log.format.records import Record, build_end_marker, iterate_records
from seqgate.log.log_lists import LogLists
from seqgate.log.recovery.load import CleanStop, LoadedLog, Recovery, clean_stop, is_as, load_log, new_log
from seqgate.log.segments.reader import SegmentList
from seqgate.log.segments.scan import Appended, FileRegion, TimestampAndOffset
from seqgate.log.segments.segment import Segment
from seqgate.log.state.producer_snapshots import snapshot_offsets, write_snapshot
from seqgate.log.state.record_states import BatchFindings, RecordStates
from seqgate.log.state.transactions import Transactions
from seqgate.seq_validator import (
    ACCEPTED,
    FIRST_DERIVED_ID,
    NO_TRANSACTION,
    Duplicate,
    RefusedBefore,
    Verdict,
)

_logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 16 * 1024
MAX_SEARCH_BYTES: Final = 1024 * 1024
"""Bytes that one call of `expired_until` searches; the next call resumes where this one ended."""
_LARGEST: Final = 2**31 - 1
"""The largest position, and the largest offset after the base offset, that Kafka's index files can hold."""
_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a replay of the log reads at a time."""
_PASSING_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTORS})
"""Errors of the operating system that end once disk space, memory or descriptors are free again. A write that
fails this way has acknowledged nothing.
"""
_new_tuple = tuple.__new__


class PartitionLog:
    """One partition's batches, from log_start_offset (inclusive) to log_end_offset (exclusive).

    Data below `recovery_point` is durable. Consumers may read up to `high_watermark`, and up to
    `last_stable_offset` under read_committed. All methods belong to one thread; tickets may run in another.
    Times are ms and come from the caller.
    """

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
        is_new: bool = False,
        lists: LogLists[PartitionLog] | None = None,
        may_check: bool = True,
        may_mend: bool = True,
    ) -> None:
        """Load the partition, or create it if it `is_new`. Raises OSError, IncompatibleFormat.

        Unless `may_check`, raises NeedsRecovery if `clean_stop` does not describe the files; unless
        `may_mend`, if files must be written anew.

        The directory must exist. The names of a new log become durable with its first flush.
        """
        self.place = LogPlace(directory, topic, partition, topic_id)
        self.directory, self.topic, self.partition, self.topic_id = self.place
        self.config = config
        self.environment = environment
        self.lists = LogLists[PartitionLog]() if lists is None else lists
        self.offline_because: str | None = None
        """Why a failed write or flush has stopped this log until `reopen`; None while the log serves."""
        ends = environment.durable_ends
        self.unflushed = Unflushed(environment.storage, self.place, environment.durability, ends)
        self.record_states = RecordStates(environment, self.place, self.unflushed, self.lists, self)
        self.began_with_names = is_new and config.deduplicates
        """Whether this process created the log while its topic deduplicated by producer names."""
        self.kept_because = ""
        """The last logged reason why retention keeps the oldest segment."""
        if is_new:
            self._begin_with(new_log(environment, self.place, config, now_ms), now_ms)
            self.unflushed.first_flush_pending = True
            self.unflushed.add([f"{directory}/{PARTITION_METADATA}"], directory)
            self.unflushed.add([], str(Path(directory).parent))
        else:
            self.load(recovery_point, clean_stop, now_ms, may_check=may_check, may_mend=may_mend)

    # --- loading

    def load(
        self,
        recovery_point: int,
        clean_stop: CleanStop | None,
        now_ms: int,
        *,
        may_check: bool = True,
        may_mend: bool = True,
    ) -> None:
        """Load the log from its files, all durable then. Raises OSError, LogError, IncompatibleFormat."""
        # Loading a log may wait for the disk, even if the first caller must not.
        with self.environment.storage.may_wait():
            loaded = load_log(
                self.environment,
                self.directory,
                self.config,
                recovery_point=recovery_point,
                clean_stop=clean_stop,
                now_ms=now_ms,
                may_check=may_check,
                may_mend=may_mend,
            )
        self._begin_with(loaded, now_ms)
        self.unflushed.check_sent(self.segments, self.log_end_offset)

    def _begin_with(self, loaded: LoadedLog, now_ms: int) -> None:
        self.clean_stop, self.bytes_cut = loaded.clean_stop, loaded.bytes_cut
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.segments = SegmentList(self.environment, loaded.segments)
        self.unflushed.reset(self.segments, loaded.log_end_offset)
        self.high_watermark = min(self.unflushed.durable_end_offset, self.log_end_offset)
        active = self.segments.active
        self.segments.flush_end = self.log_end_offset, (active.base_offset, active.size_bytes)
        self.epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.transactions = Transactions(loaded.producers)
        for found in loaded.damage:
            if found.undecided_from != NO_TRANSACTION:
                self.transactions.ongoing.hold(found.undecided_from, found.end_offset)
        self.log_start = LogStart(*self.place[:3], self.log_start_offset)
        self.record_states.begin(self.config, now_ms)
        self.lists.retention.changed(self)

    @property
    def offline(self) -> bool:
        """Whether the log has stopped until `reopen`; `offline_because` says why."""
        return self.offline_because is not None

    @property
    def recovery_point(self) -> int:
        """The offset below which all data is durable."""
        return self.unflushed.durable_end_offset

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every record is decided (exclusive); never above the high watermark."""
        high_watermark, ongoing = self.high_watermark, self.transactions.ongoing
        if not (ongoing.undecided or ongoing.held):
            return high_watermark
        return self.transactions.last_stable_offset(high_watermark, self.log_start_offset)

    @property
    def held_from(self) -> int:
        """The offset from which neither retention nor TTL may remove records; DeleteRecords may."""
        return self.record_states.kept_from

    # --- appending

    def append(  # noqa: C901, PLR0912, PLR0915 - the steps of every append, in their order and in one call
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int = 0,
        is_client: bool = True,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
        may_derive: bool = False,
        record_check: RecordCheck = HERE,
    ) -> Appended:
        """Append the one batch in `records`; a duplicate returns the offsets of its original.

        The written batch is not yet durable and not yet visible. A coordinator (`is_client` false) may write
        for a producer without a sequence (-1); then only the epoch counts. With `begins_at_zero` an unknown
        producer must begin with sequence 0, as Kafka demands in transactions of version 2 (KIP-890). With
        `before` it must not begin behind a refused batch. Where the topic has dead letters, only a gateway
        (`may_derive`) writes with a derived producer id. Raises LogError; the log is then unchanged, or
        offline after StorageFailed. Raises TakesLong, as `record_check` says, with the log unchanged.
        """
        if self.offline_because is not None:
            self.check_online()
        config = self.config
        view = records if isinstance(records, memoryview) else memoryview(records)
        batch = check_batch(view, config, now_ms, is_client, record_check)
        if config.has_dead_letters and not may_derive:
            self._check_producer(batch.producer_id)
        if batch.producer_id >= 0:
            verdict = self.producers.judge(batch, now_ms, begins_at_zero, before)
            if verdict is not ACCEPTED:
                return self._not_stored(verdict, batch)
        found = None
        rules = self.record_states.rules
        if rules is not None:
            found = self._judge_records(batch, view, now_ms)
            if found.is_dropped:
                rules.settle(found, now_ms)
                return Appended(-1, -1, -1, self.log_start_offset, True, found.answer_after)
            batch, view = found.batch, found.view
        base_offset = batch.base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        batch.partition_leader_epoch = leader_epoch
        head, rest, log_append_time_ms = stamp(batch, view, config, now_ms)
        segments = self.segments
        try:
            must_roll = segments.active.must_roll(batch, last_offset, config, now_ms)
        except (CorruptRecord, OSError) as error:
            self.fail(f"the active segment can't be read: {error}", error)
        if must_roll and not self.roll(now_ms):
            self._check_can_hold(batch, last_offset)
        active = segments.active
        try:
            written = self.environment.storage.write(active.file, (head, rest), active.size_bytes)
        except OSError as error:
            self.fail(f"a write failed: {error}", error)
        if written != batch.size_bytes:
            self._fail_for_room(written, batch)
        kept_writes = self.environment.durability.kept_writes
        if kept_writes is not None:
            kept_writes.keep(active.file, active.size_bytes, base_offset, last_offset + 1, (head, rest))
        try:
            active.appended(batch, last_offset, config.index_interval_bytes)
            segments.size_bytes += batch.size_bytes
            if base_offset == active.base_offset or config.retention_bytes >= 0:
                self.lists.retention.changed(self)
            if batch.producer_id >= 0:
                if batch.attributes & TRANSACTIONAL_FLAG:
                    aborted = self.transactions.fold_in(batch, view, now_ms, self.high_watermark)
                    if aborted is not None:
                        segments.add_aborted(aborted)
                else:
                    self.producers.update(batch, base_offset, now_ms)
            self.log_end_offset = last_offset + 1
            if rules is not None and found is not None:
                rules.fold_in(found, batch, view, now_ms, self.high_watermark)
            if leader_epoch > self.epochs.latest:
                self._write_leader_epoch(leader_epoch, base_offset)
        except (MemoryError, RecursionError) as error:
            # The state may hold only a part of the batch that the file holds. So the log must be recovered.
            self.fail("the memory did not suffice to add a written batch to the state of the log", error)
        # The NamedTuple's own constructor takes three times as long, and this line runs for every batch.
        return _new_tuple(
            Appended,
            (base_offset, last_offset, log_append_time_ms, self.log_start_offset, False, last_offset, batch),
        )

    def _check_producer(self, producer_id: int) -> None:
        """Refuse a derived producer id, whose epochs and sequences tell which dead letters are written.
        Raises DerivedProducer.
        """
        if producer_id >= FIRST_DERIVED_ID:
            raise DerivedProducer(
                f"Producer id {producer_id} was allocated to nobody. From {FIRST_DERIVED_ID} on only "
                "gateways write, and the topic has their dead letters."
            )

    def _not_stored(self, verdict: Verdict, batch: BatchHeader) -> Appended:
        """Return the offsets of a duplicate's original. Raises LogError for a rejected batch."""
        refuse(verdict)
        assert isinstance(verdict, Duplicate)
        base_offset, last_offset, time_ms = verdict.base_offset, verdict.last_offset, verdict.timestamp
        return Appended(base_offset, last_offset, time_ms, self.log_start_offset, True, last_offset, batch)

    def _judge_records(self, batch: BatchHeader, view: memoryview, now_ms: int) -> BatchFindings:
        """Return what the record rules find in a batch. Raises LogError; OSErrors take the log offline."""
        try:
            return self.record_states.judge(batch, view, now_ms, self.high_watermark)
        except OSError as error:
            self.fail(f"the side files of the log can't be written: {error}", error)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Begin `leader_epoch` at the log end, as Kafka's new leaders do. Raises StorageFailed."""
        if leader_epoch > self.epochs.latest and not self.offline:
            self._write_leader_epoch(leader_epoch, self.log_end_offset)

    def _write_leader_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Write that batches from `base_offset` on belong to `leader_epoch`. Raises StorageFailed."""
        self.epochs.assign(leader_epoch, base_offset)
        path, content = f"{self.directory}/{LEADER_EPOCHS}", encode_leader_epochs(self.epochs.entries())
        try:
            self.unflushed.add([self.environment.storage.replace(path, content)], self.directory)
        except OSError as error:
            self.fail(f"the leader epoch could not be written: {error}", error)

    def _fail_for_room(self, written: int, batch: BatchHeader) -> NoReturn:
        """Take the log offline after a write of only a part of a batch. Raises StorageFailed."""
        no_room = OSError(errno.ENOSPC, "only a part of the bytes was written")
        self.fail(f"only {written} of {batch.size_bytes} bytes could be written; is the disk full?", no_room)

    def _check_can_hold(self, batch: BatchHeader, last_offset: int) -> None:
        """Check that the active segment can hold a batch though the log should roll. Raises StorageFailed.

        The log stays online: its first flush soon ends or fails. An empty segment holds any batch.
        """
        active = self.segments.active
        is_too_large = active.size_bytes > _LARGEST - batch.size_bytes
        if active.size_bytes and (is_too_large or last_offset - active.base_offset > _LARGEST):
            raise StorageFailed(
                f"{active.file.path} is full, and the next segment must wait for the log's first flush; "
                "retry later"
            )

    def roll(self, now_ms: int) -> bool:
        """Begin a new segment at log_end_offset, unless the active segment is empty. Return whether a segment
        began. Raises StorageFailed; the log is then offline. Raises CorruptRecord where the active segment's
        indexes can't be made; the log is then unchanged.

        A log whose first flush is not over stays in its first segment. Otherwise a crash could leave the
        second segment without the first, and a start would take the second for the whole log.
        """
        self.check_online()
        self.lists.retention.changed(self)
        segments, end_offset = self.segments, self.log_end_offset
        if segments.active.base_offset == end_offset or self.unflushed.first_flush_pending:
            return False
        segment = Segment(self.environment, self.directory, end_offset, 0, now_ms)
        try:
            paths = self._write_side_files()
            self.environment.storage.create(segment.file)
            self.unflushed.add(paths, self.directory)
            segments.add(segment)
            # Capture the names, so that a start need not replay the closed segment for them.
            self.record_states.capture_names()
        except OSError as error:
            self.fail(f"a new segment could not be created: {error}", error)
        except MemoryError as error:
            self.fail("the memory did not suffice for a new segment", error)
        return True

    def _write_side_files(self, *, may_omit: bool = False) -> list[str]:
        """Write the active segment's indexes and a producer snapshot. Return their paths, not durable yet.

        With `may_omit`, write no indexes that a load rebuilds from a few headers. A log of one such segment
        that tracks no producer then gets no snapshot either, unless there is an older one. Raises OSError,
        CorruptRecord; the log stays online.
        """
        environment, producers = self.environment, self.producers
        indexes = self.segments.write_indexes(may_omit=may_omit)
        is_small = may_omit and not indexes and len(self.segments) == 1 and not len(producers)
        if is_small and not snapshot_offsets(environment.storage.list_directory(self.directory)):
            return []
        snapshot = write_snapshot(
            environment, self.directory, producers, self.log_end_offset, self.recovery_point
        )
        return [*indexes, snapshot]

    # --- reading

    def find(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> FileRegion | None:
        """Return the place of the batches from `offset`'s on: at most `max_bytes`, all below `upper_bound`.

        The last batch may be cut, the first one never. If the first is larger than `max_bytes`, it is
        returned whole with `min_one_batch`, and otherwise nothing is. Returns None when there is nothing to
        read. A result never spans segments. Raises OffsetOutOfRange, StorageFailed. Source: Kafka's
        `LogSegment.read`, `ReplicaManager.readFromLog`.
        """
        if self.offline_because is not None:
            self.check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}."
            )
        if offset >= upper_bound or (max_bytes <= 0 and not min_one_batch):
            return None
        try:
            return self.segments.find(offset, max_bytes, upper_bound, self.log_end_offset, min_one_batch)
        except OSError as error:
            raise StorageFailed(f"{self.place} can't be read: {error}") from error

    def read_region(self, region: FileRegion) -> bytes:
        """Return the bytes of a region of this log. Raises StorageFailed."""
        try:
            return region.read()
        except OSError as error:
            raise StorageFailed(f"{self.place} can't be read: {error}") from error

    def batches(
        self, offset: int, end_offset: int, chunk_bytes: int, *, skips_damage: bool = False
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch from that of `offset` to the log's end. Raises CorruptRecord, OSError."""
        return self.segments.batches(offset, end_offset, chunk_bytes, skips_damage=skips_damage)

    def replay_records(self, offset: int) -> Iterator[Record]:
        """Yield all records from `offset` to the present end of the log. Raises LogError."""
        for _, batch in self.replay_batches(offset):
            yield from iterate_records(batch)

    def replay_batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches from `offset` to the present end, as header and bytes. State is replayed from
        sound batches only: a damaged one ends the replay with CorruptRecord. Raises LogError.
        """
        self.check_online()
        with self.reading():
            for header, batch in self.batches(offset, self.log_end_offset, _READ_BYTES):
                if not crc_matches(header, batch):
                    raise CorruptRecord(f"{self.place} is damaged at offset {header.base_offset}")
                yield header, batch
        self.segments.drop_cached()

    # --- durability

    def prepare_flush(self, *, counts_out: bool = False) -> FlushTicket | None:
        """Return a ticket for all that is not durable; None when nothing is, or the log is offline.

        With `counts_out`, work that is already in tickets in flight counts as well. Give each ticket back
        once, to `complete_flush` or `fail_flush`.
        """
        if self.offline_because is not None:
            return None
        try:
            ticket = self.unflushed.prepare(
                self.segments, self.log_end_offset, self.epochs.latest, counts_out=counts_out
            )
        except OSError as error:
            self.go_offline(f"a file could not be opened: {error}", error)
            return None
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Complete a ticket that succeeded: its data is durable."""
        if self.offline_because is not None:
            self.unflushed.take_back(ticket)
            self.unflushed.confirm(ticket)
        elif self.unflushed.complete(ticket):
            # Behind a ticket that went further the position may be of a segment that compaction has replaced.
            if ticket.begin_offset < ticket.end_offset == self.unflushed.durable_end_offset:
                place = ticket.active_base_offset, ticket.end_position
                self.segments.flush_end = ticket.end_offset, place
            for capture in ticket.captures:
                capture.saved()

    def fail_flush(self, ticket: FlushTicket, error: OSError, *, has_records: bool = False) -> None:
        """Complete a failed ticket: the log goes offline. `has_records`: objects have its records."""
        self.unflushed.take_back(ticket)
        self.unflushed.failed(ticket, has_records=has_records)
        if ticket.generation == self.unflushed.generation:
            # A ticket that could not open its files flushed nothing; one without room for a side file flushed
            # the data. After others nobody knows what reached the disk, so no ticket is retried.
            is_known = error.errno in NO_DESCRIPTORS or isinstance(error, NoRoom)
            self.go_offline(f"a flush failed: {error}", error if is_known else None)

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset` (exclusive), at most log_end_offset. It never goes back."""
        if self.high_watermark < offset <= self.log_end_offset:
            self.high_watermark = offset

    def advance_high_watermark_to_end(self) -> None:
        """Let consumers read all written records."""
        self.high_watermark = self.log_end_offset

    # --- outages

    def check_online(self) -> None:
        if self.offline_because is not None:
            raise StorageFailed(f"{self.place} is offline: {self.offline_because}")

    def fail(self, reason: str, error: BaseException | None = None) -> NoReturn:
        """Take the log offline. Raises StorageFailed."""
        self.go_offline(reason, error)
        raise StorageFailed(f"{self.place} is offline: {reason}")

    def go_offline(self, reason: str, error: BaseException | None = None) -> None:
        """Take the log offline: it refuses all requests until `reopen`. The first reason stays. If only disk
        space, memory or file handles ran out, as `error` says, the owner may reopen once these are free
        again: the log is in `lists.short_of_room` until then.
        """
        if self.offline_because is None:
            self.offline_because = reason
            if isinstance(error, MemoryError) or (
                isinstance(error, OSError) and error.errno in _PASSING_SHORTAGES
            ):
                self.lists.short_of_room[self] = None
            _logger.error("%s goes offline: %s", self.place, reason)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise the disk's errors as StorageFailed. The log stays online: other bytes may be sound."""
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self.place} can't be read: {error}") from error

    # --- closing

    def let_go(self, *, for_readers: bool = False) -> None:
        """Release the files and drop all state. Tickets in flight change nothing and write no side files."""
        self.unflushed.generation += 1
        self.lists.retention.forget(self)
        self.log_start.close()
        self.record_states.close()
        self.segments.retire(for_readers=for_readers)
        self.producers.clear()

    def close(self, *, clean: bool) -> CleanStop | None:
        """Release the files. A clean close persists everything first, and returns what a start may trust.

        Returns None if the log is or goes offline: a start then recovers it. Never raises OSError.
        """
        ticket = self.prepare_close() if clean else None
        error = None if ticket is None else self.environment.durability.commit([ticket])[0]
        return self.finish_close(ticket, error, clean=clean)

    # --- settings and side files

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration. Raises StorageFailed when the log can't be replayed for it, NotCached.
        Takes the log offline when its side files can't be read or written.
        """
        before, self.config = self.config, config
        self.lists.retention.changed(self)
        if self.offline:
            return
        try:
            self.record_states.change(config, before)
        except OSError as error:
            self.go_offline(f"the side files of the log can't be read or written: {error}", error)

    def alter_delays(self, config: LogConfig) -> None:
        """Use another `delivery.delay.header`, or none, for later records. Waiting ones are due at once."""
        self.config = config
        self.lists.retention.changed(self)
        if not self.offline:
            self.record_states.alter_delays(config)

    def capture_names(self) -> bool:
        """Capture the names for a flush; False if all are saved, or not replayed, or the log is offline."""
        return not self.offline and self.record_states.capture_names()

    def capture_delays(self) -> bool:
        """Capture the delayed records for the next flush. Return False if all are saved, or offline."""
        return not self.offline and self.record_states.capture_delays()

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that are idle for producer.id.expiration.ms; return their number. Those of dead
        letters stay as long as their letters: the gateway that wrote these may be down for any time.
        """
        expiration_ms = self.config.producer_id_expiration_ms
        if not self.config.has_dead_letters:
            return self.producers.expire(now_ms, expiration_ms)
        return self.producers.expire(now_ms, expiration_ms, self.log_start_offset)

    # --- measures: bytes, age, repeats

    def bytes_from(self, offset: int) -> int:
        """Return the bytes from the batch that holds `offset` to the log end. Raises LogError."""
        self.check_online()
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            return 0
        segments = self.segments.holding(offset)
        with self.reading():
            position = segments[0].position_of(offset, segments[0].size_bytes)
        return sum(segment.size_bytes for segment in segments) - position

    def newest_timestamp_at(self, offset: int) -> int | None:
        """Return the largest timestamp in the first batch ending at `offset` or later; -1 if it has none.
        Returns None when no batch ends there. Raises LogError.
        """
        self.check_online()
        offset = max(offset, self.log_start_offset)
        with self.reading():
            for number in range(self.segments.number_of(offset), len(self.segments)):
                for batch in self.segments.headers_from(number, offset):
                    return batch.max_timestamp
        return None

    def expired_until(self, offset: int, before_ms: int, upper_bound: int) -> int:
        """Return the end, at most `upper_bound`, of the batches from `offset` on older than `before_ms`.

        Returns `offset` when the batch at `offset` is younger. A batch without a timestamp counts as old only
        together with an old batch near it. MAX_SEARCH_BYTES may end the search early. Raises LogError.
        """
        self.check_online()
        segments = self.segments
        reached = offset = max(offset, self.log_start_offset)
        left = MAX_SEARCH_BYTES
        with self.reading():
            for number in range(segments.number_of(offset), len(segments)):
                segment = segments.segments[number]
                if 0 <= segment.max_timestamp < before_ms:
                    reached = max(reached, segments.end_offset(number, self.log_end_offset))
                elif segment.size_bytes:
                    reached, left, is_over = self._expired_in(number, offset, reached, before_ms, left)
                    if is_over:
                        break
                if reached >= upper_bound:
                    break
        return max(offset, min(reached, upper_bound))

    def _expired_in(
        self, number: int, offset: int, reached: int, before_ms: int, left: int
    ) -> tuple[int, int, bool]:
        """Return (reached, bytes left, whether a young batch or the limit was met) for a segment."""
        segment = self.segments.segments[number]
        older = segment.start_for_time(before_ms - 1)
        # The time index entry says: all batches up to this offset, inclusive, are older.
        if older and segment.base_offset + older >= offset:
            reached = max(reached, segment.base_offset + older + 1)
        for batch in self.segments.headers_from(number, max(offset, reached)):
            if batch.max_timestamp >= before_ms:
                return reached, left, True
            if batch.max_timestamp >= 0:
                reached = batch.last_offset + 1
            left -= batch.size_bytes
            if left <= 0:
                return reached, left, True
        return reached, left, False

    def offset_with_bytes_left(self, max_bytes: int) -> int:
        """Return the lowest base offset with `max_bytes` or less behind it, or the end. Raises LogError."""
        self.check_online()
        after = 0
        with self.reading():
            for number in range(len(self.segments) - 1, -1, -1):
                segment = self.segments.segments[number]
                if after + segment.size_bytes > max_bytes:
                    return self._first_at(number, segment.size_bytes - (max_bytes - after))
                after += segment.size_bytes
        return self.log_start_offset

    def _first_at(self, number: int, wanted: int) -> int:
        """Return the base offset of the segment's first batch at the position `wanted` or after it."""
        segment = self.segments.segments[number]
        start = segment.position_before(wanted)
        for position, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
            if position >= wanted:
                return max(batch.base_offset, self.log_start_offset)
        return self.segments.end_offset(number, self.log_end_offset)

    def is_repeated(self, batch: BatchHeader, now_ms: int) -> bool:
        """Return whether the batch is a duplicate, which `append` answers with the original's offsets."""
        return batch.producer_id >= 0 and isinstance(self.producers.judge(batch, now_ms), Duplicate)

    # --- looking records up

    def first_not_before(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return the first record whose timestamp is not before `timestamp_ms`. Raises LogError."""
        self.check_online()
        with self.reading():
            return self.segments.first_not_before(self.config, timestamp_ms, self.log_start_offset)

    def first_of_largest_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp, even a deleted one, as looked up in
        log/segments/reader.py. Raises LogError.
        """
        self.check_online()
        with self.reading():
            return self.segments.first_of_largest(self.config)

    def aborted_in(self, offset: int, region: FileRegion | None) -> list[tuple[int, int]]:
        """Return (producer_id, first_offset) of aborts to skip in `region` from `offset`. Raises LogError."""
        if region is None or not self.segments.aborting:
            return []
        self.check_online()
        with self.reading():
            return self.segments.aborted_in(offset, region, self.log_end_offset)

    # --- markers

    def end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> bytes:
        """Return the marker that ends the producer's transaction. Append it at once, not as a client's.

        A marker without an open transaction may be appended too. The producer continues with
        `producer_epoch`. Raises InvalidProducerEpoch for an epoch older than the known one, or with
        `transaction_version` 2 not newer than that of the open transaction; TransactionCoordinatorFenced for
        an older coordinator_epoch, DerivedProducer, StorageFailed.
        """
        self.check_online()
        if self.config.has_dead_letters:
            self._check_producer(producer_id)
        refuse(
            self.producers.judge_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        )
        return build_end_marker(
            producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
        )

    # --- closing, in two steps around a flush

    def prepare_close(self, *, may_omit: bool = False) -> FlushTicket | None:
        """Return the ticket of a clean close. Commit it in any thread, and give it to `finish_close`. With
        `may_omit`, a small log stays without files that the next load rebuilds from a few headers.
        """
        if self.unflushed.tickets_out:
            _logger.warning("%s is closed while a flush is in flight", self.place)
            self.go_offline("it is closed while a flush is in flight")
        if self.offline_because is not None:
            return None
        try:
            self.record_states.capture_all()
            if self._is_as_stopped():
                return None
            self.unflushed.add(self._write_side_files(may_omit=may_omit), self.directory)
        except (OSError, CorruptRecord) as error:
            self.go_offline(f"it could not be closed cleanly: {error}")
        return self.prepare_flush()

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """Release the files after the ticket of `prepare_close` ran, or failed with `error`. Returns what the
        next start may trust; None for an offline or unclean log, to be recovered.
        """
        if ticket is not None and error is None:
            self.complete_flush(ticket)
        elif ticket is not None and error is not None:
            self.fail_flush(ticket, error)
        stop = self._stop_of() if clean and self.offline_because is None else None
        self.let_go(for_readers=True)
        self.lists.short_of_room.pop(self, None)
        if self.offline_because is None:
            self.offline_because = "it is closed"
        return stop

    def _stop_of(self) -> CleanStop:
        if self.clean_stop is not None and self._is_as_stopped():
            return self.clean_stop
        return clean_stop(
            self.environment.storage,
            self.segments,
            self.log_end_offset,
            has_open_transactions=self.transactions.has_open,
        )

    def _is_as_stopped(self) -> bool:
        """Return whether the files are unchanged since the clean stop from which the log was loaded."""
        stop = self.clean_stop
        return (
            stop is not None
            and not self.unflushed.has_files
            and is_as(stop, self.segments, self.log_end_offset)
        )

    # --- coming back after an outage, in three steps

    def begin_recovery(self, now_ms: int) -> Recovery:
        """Close the files of an offline log. Run the recovery in any thread, then give it to `end`. Until
        then no other log may have the name of this one (`LogLists.recovering`).
        """
        self.let_go()
        self.lists.recovering[self] = None
        return Recovery(
            self.environment,
            self.place,
            self.config,
            min(self.recovery_point, self.log_end_offset),
            now_ms,
            generation=self.unflushed.generation,
            # The first flush may have failed, so persist the directory again.
            metadata=(
                encode_partition_metadata(self.topic_id, names_from_start=self.began_with_names)
                if self.unflushed.first_flush_pending
                else None
            ),
        )

    def end_recovery(self, recovery: Recovery, now_ms: int) -> None:
        """Load what the recovery found. The log stays offline if that failed, or it was closed meanwhile.
        Raises OSError, LogError; the log is then still offline.
        """
        self.lists.recovering.pop(self, None)
        if recovery.stop is None or recovery.generation != self.unflushed.generation:
            return
        self.unflushed.first_flush_pending = False
        before, end_offset = self.segments, self.log_end_offset
        self.load(recovery.stop.log_end_offset, recovery.stop, now_ms, may_check=False)
        self.segments.continue_counts(before, end_offset - self.log_end_offset)
        self.bytes_cut = recovery.bytes_cut
        self.offline_because = None
        self.lists.short_of_room.pop(self, None)
        _logger.info("%s is back, it ends at offset %d", self.place, self.log_end_offset)

    def reopen(self, now_ms: int) -> None:
        """Do all three steps in this thread. Raises OSError, LogError; the log is then still offline."""
        recovery = self.begin_recovery(now_ms)
        try:
            recovery.run()
        finally:
            self.end_recovery(recovery, now_ms)
