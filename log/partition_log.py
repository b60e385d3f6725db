"""The log of one partition, which drives its parts.

`append` checks the batch, judges the producer and the records, assigns base_offset, writes, folds in, and advances
log_end_offset. No other append can come between these steps. Written data is not durable: a `FlushTicket` moves
`recovery_point`, and the owner moves `high_watermark`. After a failed write or flush the log is offline until `reopen`.

    segments       the files of batches and their indexes     writer         writes at the log's end, and rolls
    unflushed      what is not durable yet, and its tickets   outage         whether the log is offline, and why
    producers      sequences, judged in `append`              transactions   open ones, last stable offset
    record_states  what records ask for: names and delays

Source of the rules: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from log.closing import finish_close, prepare_close
from log.durability.log_start import LogStart
from log.durability.unflushed import Unflushed
from log.errors import OffsetOutOfRange, StorageFailed
from log.files.descriptors import NO_DESCRIPTORS
from log.files.durable_files import NoRoom
from log.files.file_names import PARTITION_METADATA
from log.format.batch_validation import check_batch
from log.format.record_batch import TRANSACTIONAL_FLAG
from log.log_lists import LogLists
from log.log_writer import LogWriter
from log.outage import Outage
from log.place import LogPlace
from log.recovery.load import load_log, new_log
from log.refusals import not_stored
from log.segments.aborted_transactions import add_aborted
from log.segments.regions import Appended, ReadResult
from log.segments.segment_list import SegmentList
from log.state.leader_epoch_file import LeaderEpochFile
from log.state.record_states import RecordStates
from log.state.transactions import Transactions
from seq_validator import ACCEPTED, NO_TRANSACTION

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from log.config import LogConfig
    from log.durability.flush_ticket import FlushTicket
    from log.environment import LogEnvironment
    from log.format.record_batch import BatchHeader, Buffer
    from log.recovery.clean_stop import CleanStop
    from log.recovery.load import LoadedLog
    from log.segments.regions import FileRegion
    from log.state.record_rules import Found
    from seq_validator import RefusedBefore

_new_tuple = tuple.__new__


class PartitionLog:
    """One partition's batches, from log_start_offset (inclusive) to log_end_offset (exclusive).

    Data below `recovery_point` is durable. Consumers may read up to `high_watermark`, and up to `last_stable_offset`
    under read_committed. All methods belong to one thread; tickets may run in another. Times are ms and come from the
    caller.
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
        """Load the partition from `directory`, or create it there if it `is_new`. Raises OSError, IncompatibleFormat.

        Unless `may_check`, raises NeedsRecovery if `clean_stop` does not describe the files; unless `may_mend`, if
        files must be written anew.

        The directory must exist. The names of a new log become durable with its first flush.
        """
        self.place = LogPlace(directory, topic, partition, topic_id)
        self.directory, self.topic, self.partition, self.topic_id = self.place
        self.config = config
        self.environment = environment
        self.lists = LogLists[PartitionLog]() if lists is None else lists
        self.outage = Outage(self.place, self, self.lists.short_of_room)
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
        """Load the log from its files, all of which are durable then. Raises OSError, LogError, IncompatibleFormat."""
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
        """Create the parts of a loaded log."""
        self.clean_stop, self.bytes_cut = loaded.clean_stop, loaded.bytes_cut
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.segments = SegmentList(self.environment, loaded.segments)
        self.unflushed.reset(self.segments, loaded.log_end_offset)
        self.high_watermark = min(self.unflushed.durable_end_offset, self.log_end_offset)
        self.segments.reader.high_watermark_moved(self.high_watermark, self.log_end_offset)
        self.epochs = LeaderEpochFile(self.environment.storage, self.directory, loaded.leader_epochs)
        self.producers = loaded.producers
        self.transactions = Transactions(loaded.producers)
        for found in loaded.damage:
            if found.undecided_from != NO_TRANSACTION:
                self.transactions.ongoing.hold(found.undecided_from, found.end_offset)
        self.log_start = LogStart(*self.place[:3], self.log_start_offset)
        self.writer = LogWriter(
            self.environment,
            self.directory,
            self.outage,
            self.unflushed,
            self.record_states,
            self.segments,
            self.epochs,
            self.producers,
        )
        self.record_states.begin(self.config, now_ms)
        self.lists.retention.changed(self)

    @property
    def offline(self) -> bool:
        """Whether a failed write or flush has stopped this log until `reopen`; `outage.reason` says why."""
        return self.outage.reason is not None

    @property
    def recovery_point(self) -> int:
        """The offset below which all data is durable."""
        return self.unflushed.durable_end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every record is decided (exclusive); never above the high watermark."""
        high_watermark = self.high_watermark
        if not self.transactions.ongoing:
            return high_watermark
        return self.transactions.last_stable_offset(high_watermark, self.log_start_offset)

    @property
    def held_from(self) -> int:
        """The offset from which neither retention nor TTL may remove records; DeleteRecords may."""
        return self.record_states.kept_from

    # --- appending

    def append(  # noqa: C901, PLR0912 - the steps of every append, in their order and in one call
        self,
        records: Buffer,
        *,
        now_ms: int,
        leader_epoch: int = 0,
        is_client: bool = True,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
    ) -> Appended:
        """Append the one batch in `records`; a duplicate returns the offsets of its original.

        The written batch is not yet durable and not yet visible. A coordinator (`is_client` false) may write for a
        producer without a sequence (-1); then only the epoch counts. With `begins_at_zero` an unknown producer must
        begin with sequence 0, as Kafka demands in transactions of version 2 (KIP-890). With `before` it must not begin behind
        a refused batch.
        Raises LogError; the log is then unchanged, or offline after StorageFailed.
        """
        if self.outage.reason is not None:
            self.outage.check()
        config = self.config
        view = records if isinstance(records, memoryview) else memoryview(records)
        batch = check_batch(view, config, now_ms, is_client)
        if batch.producer_id >= 0:
            verdict = self.producers.judge(batch, now_ms, begins_at_zero, before)
            if verdict is not ACCEPTED:
                return not_stored(verdict, self.log_start_offset, batch)
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
        segments = self.segments
        log_append_time_ms = self.writer.write(batch, view, last_offset, config, now_ms)
        try:
            segments.active.appended(batch, last_offset, config.index_interval_bytes)
            segments.size_bytes += batch.size_bytes
            if base_offset == segments.active.base_offset or config.retention_bytes >= 0:
                self.lists.retention.changed(self)
            if batch.producer_id >= 0:
                if batch.attributes & TRANSACTIONAL_FLAG:
                    aborted = self.transactions.fold_in(batch, view, now_ms, self.high_watermark)
                    if aborted is not None:
                        add_aborted(segments, aborted)
                else:
                    self.producers.update(batch, base_offset, now_ms)
            self.log_end_offset = last_offset + 1
            if rules is not None and found is not None:
                rules.fold_in(found, batch, view, now_ms, self.high_watermark)
            if leader_epoch > self.epochs.latest:
                self.writer.begin_leader_epoch(leader_epoch, base_offset)
        except (MemoryError, RecursionError) as error:
            # The state may hold only a part of the batch, and the file holds all of it. So the log must be recovered.
            self.outage.fail(
                "the memory did not suffice to add a written batch to the state of the log", error
            )
        # The NamedTuple's own constructor takes three times as long, and this line runs for every batch.
        return _new_tuple(
            Appended,
            (base_offset, last_offset, log_append_time_ms, self.log_start_offset, False, last_offset, batch),
        )

    def _judge_records(self, batch: BatchHeader, view: memoryview, now_ms: int) -> Found:
        """Return what the record rules find in a batch. Raises LogError; OSErrors take the log offline."""
        try:
            return self.record_states.judge(batch, view, now_ms, self.high_watermark)
        except OSError as error:
            self.outage.fail(f"the side files of the log can't be written: {error}", error)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Begin `leader_epoch` at the log end, as Kafka does when a broker becomes leader. Raises StorageFailed."""
        if leader_epoch > self.epochs.latest and not self.offline:
            self.writer.begin_leader_epoch(leader_epoch, self.log_end_offset)

    def roll(self, now_ms: int) -> bool:
        """Begin a new segment at log_end_offset. Return False if the log may not roll now. Raises StorageFailed."""
        self.outage.check()
        self.lists.retention.changed(self)
        return self.writer.roll(self.log_end_offset, now_ms)

    # --- reading

    def find(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> FileRegion | None:
        """Return the place of the batches from the one that holds `offset` on: at most `max_bytes`, all below `upper_bound`.

        The last batch may be cut, the first one never. If the first is larger than `max_bytes`, it is returned whole
        with `min_one_batch`, and otherwise nothing is. Returns None when there is nothing to read. A result never spans
        segments. Raises OffsetOutOfRange, StorageFailed. Source: Kafka's `LogSegment.read`, `ReplicaManager.readFromLog`.
        """
        self.outage.check()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"Offset {offset} is not between {self.log_start_offset} and {self.log_end_offset}."
            )
        if offset >= upper_bound or (max_bytes <= 0 and not min_one_batch):
            return None
        try:
            return self.segments.reader.find(
                offset, max_bytes, upper_bound, self.log_end_offset, min_one_batch
            )
        except OSError as error:
            raise StorageFailed(f"{self.place} can't be read: {error}") from error

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> ReadResult:
        """Return the bytes that `find` finds. Raises the same errors."""
        region = self.find(offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch)
        return ReadResult(b"" if region is None else self.read_region(region))

    def read_region(self, region: FileRegion) -> bytes:
        """Return the bytes of a region of this log. Raises StorageFailed."""
        with self.outage.reading():
            return region.read()

    def batches(
        self, offset: int, end_offset: int, chunk_bytes: int, *, skips_damage: bool = False
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch from the one that holds `offset` to the log end, `end_offset`, with its bytes.

        Raises CorruptRecord, OSError.
        """
        return self.segments.batches(offset, end_offset, chunk_bytes, skips_damage=skips_damage)

    # --- durability

    def prepare_flush(self, *, counts_out: bool = False) -> FlushTicket | None:
        """Return a ticket for everything that is not durable; None when there is nothing, or the log is offline.

        With `counts_out`, work that is already in tickets in flight counts as well. Give each ticket back once, to
        `complete_flush` or `fail_flush`.
        """
        if self.offline:
            return None
        try:
            ticket = self.unflushed.prepare(
                self.segments, self.log_end_offset, self.epochs.latest, counts_out=counts_out
            )
        except OSError as error:
            self.outage.begin(f"a file could not be opened: {error}", error)
            return None
        if ticket is not None:
            self.segments.reader.flush_began(self.log_end_offset)
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Complete a ticket that succeeded: its data is durable."""
        self.unflushed.take_back(ticket)
        if self.offline:
            self.unflushed.confirm(ticket)
        elif self.unflushed.complete(ticket):
            if ticket.ranges:
                self.segments.reader.flush_ended(ticket)
            for capture in ticket.captures:
                capture.saved()

    def fail_flush(self, ticket: FlushTicket, error: OSError, *, has_records: bool = False) -> None:
        """Complete a ticket that failed: the log goes offline. `has_records` says whether objects have the ticket's records."""
        self.unflushed.take_back(ticket)
        self.unflushed.failed(ticket, has_records=has_records)
        if ticket.generation == self.unflushed.generation:
            # A ticket that could not open its files has flushed nothing, and one without room for a side file has flushed the
            # data. After any other failure nobody knows what reached the disk, so a ticket is never retried.
            is_known = error.errno in NO_DESCRIPTORS or isinstance(error, NoRoom)
            self.outage.begin(f"a flush failed: {error}", error if is_known else None)

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset` (exclusive). The high watermark never goes back and never passes log_end_offset."""
        if offset <= self.high_watermark or offset > self.log_end_offset:
            return
        self.high_watermark = offset
        self.segments.reader.high_watermark_moved(offset, self.log_end_offset)

    def advance_high_watermark_to_end(self) -> None:
        """Let consumers read all written records."""
        # No position need be remembered: the high watermark is at the end of the active segment.
        self.high_watermark = self.log_end_offset

    # --- closing

    def let_go(self, *, for_readers: bool = False) -> None:
        """Release the files and drop all state. Tickets in flight then change nothing and write no side files."""
        self.unflushed.generation += 1
        self.lists.retention.forget(self)
        self.log_start.close()
        self.record_states.close()
        self.segments.retire(for_readers=for_readers)
        self.producers.clear()

    def close(self, *, clean: bool) -> CleanStop | None:
        """Release the files. A clean close makes everything durable first, and returns the facts that the next start may trust.

        Returns None if the log is offline or fails during the close: the next start then recovers it. Never raises OSError.
        """
        ticket = prepare_close(self) if clean else None
        error = None if ticket is None else self.environment.durability.commit([ticket])[0]
        return finish_close(self, ticket, error, clean=clean)
