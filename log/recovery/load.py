"""Loads the state of a partition from its files.

After a clean stop no record data is read. After a crash every batch from the segment of the recovery point on
is checked by its CRC: see `seqgate.log.recovery.checking`. Batches are persisted before clients may read
them. Source: Kafka's `LogLoader`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqgate.log.compaction.swap import finish_swaps
from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import CorruptRecord, IncompatibleFormat, NeedsRecovery
from seqgate.log.files.checkpoints import (
    CorruptCheckpoint,
    check_checkpoint,
    decode_leader_epochs,
    decode_offset,
    encode_partition_metadata,
)
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    DEDUPLICATION_START,
    DELAYED_RECORDS,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    NAMES_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    offsets_of,
    parse_offset_name,
)
from seqgate.log.files.page_cache import NotCached, without_fetching
from seqgate.log.files.storage import Storage
from seqgate.log.recovery.checking import Checking
from seqgate.log.recovery.producer_recovery import Undecided, load_producers
from seqgate.log.recovery.transaction_checks import not_borne_out, rebuild_transaction_indexes
from seqgate.log.segments.damage import DamagedRange
from seqgate.log.segments.reader import SegmentList
from seqgate.log.segments.segment import Segment
from seqgate.log.state.delays import check_delayed_snapshot
from seqgate.log.state.leader_epochs import LeaderEpochs
from seqgate.log.state.producer_snapshots import restore_newest, snapshot_offsets, write_snapshot
from seqgate.log.state.transactions import Transactions
from seqgate.seq_validator import (
    NEWEST_SNAPSHOT_VERSION,
    OLDEST_SNAPSHOT_VERSION,
    ProducerTable,
    newer_snapshot_version,
)
from seqgate.seq_validator.names import NAMES_VERSION, newer_names_version

_logger = logging.getLogger(__name__)


class LoadedLog(msgspec.Struct):
    """The state of a partition, loaded from its files. All of it is durable."""

    segments: list[Segment]
    producers: ProducerTable
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    bytes_cut: int = 0
    """The bytes of torn batches that were cut off at the end."""
    clean_stop: CleanStop | None = None
    """The clean stop that still describes the files; None after a check."""
    damage: list[DamagedRange] = msgspec.field(default_factory=list)
    """The damaged ranges below the log end offset, in ascending order."""


def new_log(environment: LogEnvironment, place: LogPlace, config: LogConfig, now_ms: int) -> LoadedLog:
    """Return a new partition's state; write its topic id and first segment, not durable. Raises OSError."""
    metadata = encode_partition_metadata(place.topic_id, names_from_start=config.deduplicates)
    environment.storage.write_file(f"{place.directory}/{PARTITION_METADATA}", metadata)
    segment = Segment(environment, place.directory, 0, 0, now_ms)
    environment.storage.create(segment.file)
    segment.become_active()
    producers = ProducerTable(retained_batches=config.retained_batches, limit=environment.producer_limit)
    return LoadedLog([segment], producers, LeaderEpochs(), 0, 0)


def load_log(
    environment: LogEnvironment,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int,
    clean_stop: CleanStop | None,
    now_ms: int,
    may_check: bool = True,
    may_mend: bool = True,
) -> LoadedLog:
    """Load the partition in `directory`. Raises OSError, IncompatibleFormat.

    Unless `may_check`, raises NeedsRecovery if no clean stop vouches for the files; unless `may_mend`, if
    files must be written anew. A check and a mend wait for the disk.
    """
    loader = _Loader(
        Listing(environment, directory, config, now_ms),
        may_mend=may_mend,
        may_fetch=may_check or environment.is_apart,
    )
    if clean_stop is None or environment.damage.is_lost or not loader.trusts(clean_stop):
        if not may_check:
            raise NeedsRecovery(f"{directory} has changed since it was stopped or recovered; reopen it again")
        loader.check(recovery_point)
    loader.drop_snapshots_of_lost_batches()
    if loader.log_end_offset < loader.log_start_offset or not loader.segments:
        loader.begin_anew(max(loader.log_start_offset, loader.log_end_offset))
    undecided = Undecided()
    loader.load_transaction_indexes(undecided)
    loader.segments[-1].become_active()
    log_start_offset = max(loader.log_start_offset, loader.segments[0].base_offset)
    loader.listing.leader_epochs.truncate_start(log_start_offset)
    producers = load_producers(
        loader.listing, loader.end_offsets(), undecided, is_snapshot_durable=loader.trusted
    )
    damage = undecided.note(loader.segments, producers)
    environment.damage.note(directory, damage, is_durable=True)
    return LoadedLog(
        loader.segments,
        producers,
        loader.listing.leader_epochs,
        log_start_offset,
        loader.log_end_offset,
        loader.bytes_cut,
        clean_stop if loader.trusted else None,
        damage,
    )


class _Loader:
    def __init__(self, listing: Listing, *, may_mend: bool, may_fetch: bool) -> None:
        self.listing = listing
        self._may_mend = may_mend
        self._may_fetch = may_fetch
        self.environment = listing.environment
        self.storage = listing.storage
        self.directory = listing.directory
        self.segments = listing.segments
        self.log_start_offset = listing.log_start_offset
        self.log_end_offset = 0
        self.bytes_cut = 0
        self.trusted = True
        """Whether the files are as a clean stop recorded them, and need no check. False after `check`."""

    def trusts(self, clean_stop: CleanStop) -> bool:
        """Return whether the files are unchanged since the clean stop; if so, take its log end offset."""
        if not self.segments:
            return False
        active = self.segments[-1]
        size_bytes = sum(segment.size_bytes for segment in self.segments)
        stopped_bytes = size_bytes + self.listing.dropped_bytes
        if (
            active.base_offset != clean_stop.active_base_offset
            or active.size_bytes != clean_stop.active_size_bytes
            or stopped_bytes != clean_stop.size_bytes
            or clean_stop.log_end_offset < self.log_start_offset
            or (size_bytes and self.listing.saved_epochs is None)
        ):
            _logger.warning("%s has changed since the clean stop, so the log is checked", self.directory)
            return False
        try:
            active.become_active()
        except CorruptRecord as error:
            _logger.warning("%s is checked: %s", self.directory, error)
            return False
        self.log_end_offset = clean_stop.log_end_offset
        self.listing.leader_epochs.truncate(self.log_end_offset)
        return True

    def check(self, recovery_point: int) -> None:
        """Check all batches that the crash may have torn."""
        self.trusted = False
        checking = Checking(self.listing, recovery_point)
        self.log_end_offset, self.bytes_cut = checking.log_end_offset, checking.bytes_cut

    def drop_snapshots_of_lost_batches(self) -> None:
        """Delete snapshots beyond the log end: the log may reach their offsets again with other batches."""
        files = self.listing.files
        beyond = [
            offset_name(offset, suffix)
            for suffix in (SNAPSHOT_SUFFIX, NAMES_SUFFIX)
            for offset in offsets_of(files, suffix)
            if offset > self.log_end_offset
        ]
        if beyond:
            self._mend()
        for name in beyond:
            self.storage.delete(f"{self.directory}/{name}")
            del files[name]
        if beyond:
            self.environment.durability.sync(directories=[self.directory])

    def begin_anew(self, offset: int) -> None:
        """Replace all segments by one empty segment at `offset`."""
        self._mend()
        segment = Segment(self.environment, self.directory, offset, 0, self.listing.now_ms)
        self.storage.create(segment.file)
        self.environment.durability.sync(directories=[self.directory])
        for old in self.segments:
            self.listing.remove(old)
        self.segments[:] = [segment]
        self.log_end_offset = offset

    def _mend(self) -> None:
        if not self._may_mend:
            raise NeedsRecovery(f"{self.directory} has files that must be written anew")

    def load_transaction_indexes(self, undecided: Undecided) -> None:
        """Check the transaction indexes, and rebuild the indexes that contradict the log."""
        doubtful = self.listing.doubted
        # Somebody who deleted the offset index to rebuild it has perhaps deleted the transaction index too.
        without = [
            segment
            for segment in self.segments[:-1]
            if self.trusted
            and offset_name(segment.base_offset, OFFSET_INDEX_SUFFIX) not in self.listing.files
        ]
        doubtful.update(segment.base_offset for segment in without)
        doubted = [
            segment
            for segment, end_offset in zip(self.segments, self.end_offsets(), strict=True)
            if segment.base_offset in doubtful or not segment.aborts.are_sane(segment.base_offset, end_offset)
        ]
        if doubted:
            self._mend()
            rebuild_transaction_indexes(self.listing, doubted, undecided)
            self._write_offset_indexes(without)
        false = self._not_borne_out()
        if false:
            _logger.warning("%s: a transaction index contradicts the log and is rebuilt", self.directory)
            self._mend()
            doubted = [segment for segment in self.segments if segment.base_offset in false]
            rebuild_transaction_indexes(self.listing, doubted, undecided)
        self.segments[-1].aborts.hold()

    def _not_borne_out(self) -> set[int]:
        """Return segments whose aborts contradict the log. Raises NeedsRecovery if a check needs a bucket."""
        if self._may_fetch:
            return not_borne_out(self.segments)
        try:
            with without_fetching(self.storage):
                return not_borne_out(self.segments)
        except NotCached:
            if self._may_mend:
                return (
                    set()
                )  # A recovery has checked them in its thread, and some of their blocks were evicted since.
            raise NeedsRecovery(
                f"{self.directory} has transaction indexes that must be checked against blocks of the bucket"
            ) from None

    def _write_offset_indexes(self, segments: list[Segment]) -> None:
        """Write the offset indexes that are missing, so that the next load need not rebuild them."""
        for segment in segments:
            try:
                segment.rebuild_indexes()
            except CorruptRecord as error:
                _logger.warning("the offset index of %s can't be rebuilt: %s", segment.file.path, error)
                continue
            self.environment.durability.sync(paths=segment.write_indexes(), directories=[self.directory])

    def end_offsets(self) -> list[int]:
        """Return the end offset of each segment, exclusive."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]


# Lists the directory of a partition and reads its small files, before any records are read.


class Listing:
    """A partition's segments and the content of its small files. Making it deletes left-over files."""

    def __init__(self, environment: LogEnvironment, directory: str, config: LogConfig, now_ms: int) -> None:
        """List the directory; finish interrupted swaps of compaction. Raises OSError, IncompatibleFormat."""
        self.environment = environment
        self.storage = environment.storage
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.segments: list[Segment] = []
        self.files: dict[str, int] = {}
        self.leader_epochs = LeaderEpochs()
        self.saved_epochs: list[tuple[int, int]] | None = None
        """The leader epochs in the checkpoint; None without a readable checkpoint."""
        self.log_start_offset = 0
        self.dropped_bytes = 0
        """The bytes of segments below the log start offset that were removed just now."""
        self.doubted: set[int] = set()
        """The base offsets of segments whose transaction index must be rebuilt."""
        self._list_segments()
        self._read_checkpoints()
        self._drop_removed_segments()
        self._take_known_damage()

    def _list_segments(self) -> None:
        files = self.storage.list_files(self.directory)
        check_partition(self.storage, self.directory, files)
        if any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in files):
            self.doubted = finish_swaps(self.environment, self.directory, files)
            files = self.storage.list_files(self.directory)
        bases = []
        for name, size_bytes in files.items():
            if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self.storage.delete(f"{self.directory}/{name}")
                continue
            self.files[name] = size_bytes
            parsed = parse_offset_name(name)
            if parsed and parsed[1] == LOG_SUFFIX:
                bases.append(parsed[0])
            elif parsed and parsed[1] in SEGMENT_SUFFIXES and offset_name(parsed[0], LOG_SUFFIX) not in files:
                self.storage.delete(f"{self.directory}/{name}")
        for base_offset in sorted(bases):
            size_bytes = files[offset_name(base_offset, LOG_SUFFIX)]
            segment = Segment(self.environment, self.directory, base_offset, size_bytes, self.now_ms)
            aborted_bytes = files.get(offset_name(base_offset, TRANSACTION_INDEX_SUFFIX))
            segment.aborts.has_any = bool(aborted_bytes)
            if aborted_bytes == 0:
                # The log never writes an empty transaction index: a crash kept its name and lost its bytes.
                self.doubted.add(base_offset)
            self.segments.append(segment)

    def _drop_removed_segments(self) -> None:
        """Remove segments below the log start: a crash may have brought some back, with gaps between. Keep a
        segment that no producer snapshot covers: never removed, it alone knows its producers.
        """
        if len(self.segments) < 2 or self.segments[1].base_offset > self.log_start_offset:
            return
        offsets = snapshot_offsets(self.files)
        table, covered = restore_newest(
            self.environment, self.directory, self.config, offsets, log_from=self.log_start_offset
        )
        table.clear()
        below = min(self.log_start_offset, -1 if covered is None else covered)
        while len(self.segments) > 1 and self.segments[1].base_offset <= below:
            dropped = self.segments.pop(0)
            self.dropped_bytes += dropped.size_bytes
            self.remove(dropped)

    def _read_checkpoints(self) -> None:
        if LOG_START_OFFSET in self.files:
            path = f"{self.directory}/{LOG_START_OFFSET}"
            try:
                self.log_start_offset = decode_offset(self.storage.read_file(path), path)
            except CorruptCheckpoint as error:
                _logger.warning("%s The log starts with its first segment.", error)
        if LEADER_EPOCHS in self.files:
            path = f"{self.directory}/{LEADER_EPOCHS}"
            try:
                self.saved_epochs = decode_leader_epochs(self.storage.read_file(path), path)
                self.leader_epochs = LeaderEpochs(self.saved_epochs)
            except CorruptCheckpoint as error:
                _logger.warning("%s Leader epochs are read from the log.", error)

    def _take_known_damage(self) -> None:
        """Give each segment its registered damaged ranges, without ranges that were deleted since."""
        for segment in self.segments:
            segment.damage = tuple(
                found
                for found in self.environment.damage.of(self.directory)
                if found.segment_base_offset == segment.base_offset
                and found.position + found.size_bytes <= segment.size_bytes
                and found.end_offset > self.log_start_offset
            )

    def remove(self, segment: Segment) -> None:
        """Delete the files of a segment. Raises OSError."""
        self.storage.descriptors.release(segment.file)
        self.environment.forget_indexes(segment.file.path)
        for suffix in SEGMENT_SUFFIXES:
            self.storage.delete(segment.path(suffix))


# Refuses the files of a partition that a later release wrote, before the files are read or changed.


def check_partition(storage: Storage, directory: str, names: Collection[str]) -> None:
    """Check that this release reads the versions of a partition's files, `names`, without changing any.
    Damaged and unreadable files pass: their loaders handle both. Raises IncompatibleFormat, OSError.
    """
    for name in (LEADER_EPOCHS, LOG_START_OFFSET, DEDUPLICATION_START):
        if name in names:
            check_checkpoint(storage.read_file(f"{directory}/{name}"), f"{directory}/{name}")
    if DELAYED_RECORDS in names:
        path = f"{directory}/{DELAYED_RECORDS}"
        check_delayed_snapshot(storage.read_file(path), path)
    for suffix, newer_version, read in (
        (SNAPSHOT_SUFFIX, newer_snapshot_version, f"{OLDEST_SNAPSHOT_VERSION} to {NEWEST_SNAPSHOT_VERSION}"),
        (NAMES_SUFFIX, newer_names_version, f"up to {NAMES_VERSION}"),
    ):
        # If a later release wrote any snapshot, it wrote the newest one.
        for offset in offsets_of(names, suffix)[-1:]:
            path = f"{directory}/{offset_name(offset, suffix)}"
            version = None
            # The code that restores the snapshot handles an unreadable file.
            with contextlib.suppress(OSError):
                version = newer_version(storage.read_file(path))
            if version is not None:
                raise IncompatibleFormat(f"{path} has version {version}; this program reads versions {read}.")


# The facts that a clean stop records about a partition log, and the check whether they still hold.


class CleanStop(NamedTuple):
    """The facts that a clean stop recorded about a partition, true while the files have not changed."""

    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    size_bytes: int
    """The bytes of all segments."""
    oldest_timestamp: int = -1
    """The timestamp (ms) of the oldest segment for retention; -1 when unknown."""
    has_open_transactions: bool = False


def clean_stop(
    storage: Storage, segments: SegmentList, log_end_offset: int, *, has_open_transactions: bool
) -> CleanStop:
    first, active = segments.segments[0], segments.active
    try:
        # Of each log whose oldest blocks were evicted, a stop would wait for the bucket.
        with without_fetching(storage):
            oldest_timestamp = first.largest_timestamp() if segments.size_bytes else -1
    except (OSError, CorruptRecord, NotCached):
        oldest_timestamp = -1
    return CleanStop(
        log_end_offset,
        active.base_offset,
        active.size_bytes,
        segments.size_bytes,
        oldest_timestamp=oldest_timestamp,
        has_open_transactions=has_open_transactions,
    )


def is_as(stop: CleanStop, segments: SegmentList, log_end_offset: int) -> bool:
    return (
        log_end_offset == stop.log_end_offset
        and segments.active.base_offset == stop.active_base_offset
        and segments.size_bytes == stop.size_bytes
    )


class Recovery:
    """The recovery of a partition: made on the event loop, run once in any thread, and taken back there.

    The thread loads the partition as a start after a crash does, apart from the log that serves it, persists
    everything, and notes the facts of a clean stop. The event loop then loads the log by these facts: it
    reads no record that a snapshot covers, and waits for no fsync.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        place: LogPlace,
        config: LogConfig,
        recovery_point: int,
        now_ms: int,
        *,
        generation: int = 0,
        metadata: bytes | None = None,
    ) -> None:
        """Take the partition, and the content of its `partition.metadata` if that may not be durable.

        `generation` is the log's by now. A later one means that the log was closed meanwhile.
        """
        self._apart = environment.apart()
        self.place = place
        self._config = config
        self._recovery_point = recovery_point
        self._now_ms = now_ms
        self._metadata = metadata
        self.generation = generation
        self.bytes_cut = 0
        """The bytes that `run` cut off at the end of the log."""
        self.stop: CleanStop | None = None
        """The facts by which the log may be loaded; None before `run` has succeeded."""

    def run(self) -> None:
        """Recover the partition. Raises OSError, IncompatibleFormat, NeedsRecovery."""
        if self._metadata is not None:
            directory, durability = self.place.directory, self._apart.durability
            durability.replace(f"{directory}/{PARTITION_METADATA}", self._metadata)
            durability.sync(directories=[str(Path(directory).parent)])
        loaded = self._load(None)
        self.bytes_cut = loaded.bytes_cut
        try:
            stop = self._stop(loaded)
        finally:
            self._release(loaded)
        # A load rewrites transaction indexes that it can't trust, also after a clean stop. Do that here, so
        # that the log's own load writes nothing.
        loaded = self._load(stop)
        self._release(loaded)
        self.stop = stop

    def _load(self, stop: CleanStop | None) -> LoadedLog:
        return load_log(
            self._apart,
            self.place.directory,
            self._config,
            recovery_point=self._recovery_point,
            clean_stop=stop,
            now_ms=self._now_ms,
            may_check=stop is None,
        )

    def _stop(self, loaded: LoadedLog) -> CleanStop:
        """Persist the indexes and the producers of the loaded log, and return the facts of its clean stop."""
        environment, directory, end_offset = self._apart, self.place.directory, loaded.log_end_offset
        segments = SegmentList(environment, loaded.segments)
        paths = segments.write_indexes()
        paths.append(write_snapshot(environment, directory, loaded.producers, end_offset, end_offset))
        environment.durability.sync(paths=paths, directories=[directory])
        has_open = Transactions(loaded.producers).has_open
        return clean_stop(environment.storage, segments, end_offset, has_open_transactions=has_open)

    def _release(self, loaded: LoadedLog) -> None:
        SegmentList(self._apart, loaded.segments).retire()
        loaded.producers.clear()
