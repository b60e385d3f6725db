"""Bringing a partition's state back from its files.

After a clean stop nothing of the record data is read. After a crash every batch from the segment of the recovery point
on is checked by its CRC; the log ends before the first bad one, and what is kept is made durable before it is served.
Source: Kafka's `LogLoader`, `LogSegment.recover`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from log.compaction.swap import finish_swaps
from log.errors import CorruptRecord, IncompatibleFormat
from log.files.checkpoints import (
    CorruptCheckpoint,
    decode_leader_epochs,
    decode_offsets,
    encode_leader_epochs,
)
from log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    NAMES_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    offsets_of,
    parse_offset_name,
)
from log.files.versions import check_partition
from log.format.record_batch import HEADER_BYTES, MAGIC, crc_matches, parse_header
from log.recovery.producer_recovery import load_producers
from log.recovery.transaction_checks import not_borne_out
from log.recovery.transaction_indexes import has_sane_index, rebuild_transaction_indexes
from log.segments.segment import SCAN_CHUNK_BYTES, Segment
from log.state.leader_epochs import LeaderEpochs
from log.state.producer_snapshots import restore_newest, snapshot_offsets
from seq_validator import ProducerTable

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.format.record_batch import BatchHeader

_logger = logging.getLogger(__name__)
_EVERYWHERE: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CleanStop:
    """What a clean stop left of one partition; it holds only while the files still look like that."""

    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    size_bytes: int
    """Bytes of all segments."""
    oldest_timestamp: int = -1
    """What retention goes by in the oldest segment (ms); -1 when unknown."""
    has_open_transactions: bool = False


@dataclass(slots=True)
class LoadedLog:
    """The state of a partition as its files tell it; everything in it is durable."""

    segments: list[Segment]
    producers: ProducerTable
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    bytes_cut: int = 0
    """Bytes of torn or damaged batches that were removed from the end."""
    clean_stop: CleanStop | None = None
    """The clean stop that the files are still those of."""


def new_log(environment: LogEnvironment, directory: str, config: LogConfig, now_ms: int) -> LoadedLog:
    """The state of a partition that has no files yet; the first segment is made, not durable. Raises OSError."""
    segment = Segment(environment, directory, 0, 0, now_ms)
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
) -> LoadedLog:
    """Load the partition in `directory`. Raises OSError, IncompatibleFormat."""
    loader = _Loader(environment, directory, config, now_ms)
    loader.list_segments()
    if clean_stop is None or not loader.trusts(clean_stop):
        loader.recover(recovery_point)
    loader.drop_snapshots_of_lost_batches()
    if loader.log_end_offset < loader.log_start_offset or not loader.segments:
        loader.begin_anew(max(loader.log_start_offset, loader.log_end_offset))
    loader.load_transaction_indexes()
    loader.segments[-1].become_active()
    log_start_offset = max(loader.log_start_offset, loader.segments[0].base_offset)
    loader.leader_epochs.truncate_start(log_start_offset)
    return LoadedLog(
        loader.segments,
        load_producers(
            environment,
            directory,
            config,
            list(zip(loader.segments, loader.end_offsets(), strict=True)),
            [offset for offset in snapshot_offsets(loader.files) if offset <= loader.log_end_offset],
            is_snapshot_durable=loader.trusted,
            now_ms=now_ms,
        ),
        loader.leader_epochs,
        log_start_offset,
        loader.log_end_offset,
        loader.bytes_cut,
        clean_stop if loader.trusted else None,
    )


class _Loader:
    """The steps of loading one partition."""

    def __init__(self, environment: LogEnvironment, directory: str, config: LogConfig, now_ms: int) -> None:
        self.environment = environment
        self.storage = environment.storage
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.segments: list[Segment] = []
        self.files: dict[str, int] = {}
        self.leader_epochs = LeaderEpochs()
        self.saved_epochs: list[tuple[int, int]] | None = None
        """What the checkpoint says, None when there is no readable one."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.bytes_cut = 0
        self.trusted = True
        """Whether a clean stop vouches for the files; `recover` trusts nothing."""
        self.doubted: set[int] = set()
        """Base offsets of segments whose index of aborted transactions can't be taken as it is."""

    def list_segments(self) -> None:
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
            segment.has_aborted = bool(aborted_bytes)
            if aborted_bytes == 0:
                self.doubted.add(
                    base_offset
                )  # nobody writes an empty one: a crash kept its name and took its bytes
            self.segments.append(segment)
        self._read_checkpoints()
        self._drop_removed_segments()

    def _drop_removed_segments(self) -> None:
        """Segments are removed one by one: a crash may have brought some of them back, with holes between them.

        One that no snapshot covers was never removed, whatever the log start says, and its producers are in it alone.
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
            self._remove(self.segments.pop(0))

    def _read_checkpoints(self) -> None:
        if LOG_START_OFFSET in self.files:
            path = f"{self.directory}/{LOG_START_OFFSET}"
            try:
                offsets = decode_offsets(self.storage.read_file(path), path)
                self.log_start_offset = max(offsets.values(), default=0)
            except CorruptCheckpoint as error:
                _logger.warning("%s The log starts with its first segment.", error)
        if LEADER_EPOCHS in self.files:
            path = f"{self.directory}/{LEADER_EPOCHS}"
            try:
                self.saved_epochs = decode_leader_epochs(self.storage.read_file(path), path)
                self.leader_epochs = LeaderEpochs(self.saved_epochs)
            except CorruptCheckpoint as error:
                _logger.warning("%s Leader epochs are read from the log.", error)

    def trusts(self, clean_stop: CleanStop) -> bool:
        """Whether the files are still those of the clean stop; the log then ends where it says."""
        if not self.segments:
            return False
        active = self.segments[-1]
        size_bytes = sum(segment.size_bytes for segment in self.segments)
        if (
            active.base_offset != clean_stop.active_base_offset
            or active.size_bytes != clean_stop.active_size_bytes
            or size_bytes != clean_stop.size_bytes
            or clean_stop.log_end_offset < self.log_start_offset
            or (size_bytes and self.saved_epochs is None)
        ):
            _logger.warning("%s is not as the clean stop left it, it is checked", self.directory)
            return False
        try:
            active.become_active()
        except CorruptRecord as error:
            _logger.warning("%s is checked: %s", self.directory, error)
            return False
        self.log_end_offset = clean_stop.log_end_offset
        self.leader_epochs.truncate(self.log_end_offset)
        return True

    def recover(self, recovery_point: int) -> None:
        """Check the batches from the segment of the recovery point on, and end the log before the first bad one."""
        self.trusted = False
        # A segment that ends at the recovery point is checked too: its indexes were written later.
        first = max(0, bisect_left([segment.base_offset for segment in self.segments], recovery_point) - 1)
        if self.saved_epochs is None:
            self._read_leader_epochs(self.segments[:first])
        # Offsets may be missing in what is durable, as compaction takes them out.
        may_lack = _EVERYWHERE if self.environment.recovery_points_lost else recovery_point
        next_offset = self._check_from(first, may_lack)
        if next_offset < recovery_point:
            _logger.error(
                "%s ends at offset %d, but its recovery point is %d: data has been lost, or the checkpoint belongs to "
                "another log; everything is checked",
                self.directory,
                next_offset,
                recovery_point,
            )
            if first:
                # up to there offsets may be missing that compaction took out
                next_offset = self._check_from(0, next_offset)
        self.log_end_offset = next_offset
        self.leader_epochs.truncate(next_offset)
        if self.leader_epochs.entries() != (self.saved_epochs or []):
            path = f"{self.directory}/{LEADER_EPOCHS}"
            self.storage.replace_file(path, encode_leader_epochs(self.leader_epochs.entries()))
        self.storage.sync_directory(self.directory)

    def drop_snapshots_of_lost_batches(self) -> None:
        """They must not come back when the log has grown again, to the same size even, after a crash that took the batches."""
        beyond = [
            offset_name(offset, suffix)
            for suffix in (SNAPSHOT_SUFFIX, NAMES_SUFFIX)
            for offset in offsets_of(self.files, suffix)
            if offset > self.log_end_offset
        ]
        for name in beyond:
            self.storage.delete(f"{self.directory}/{name}")
            del self.files[name]
        if beyond:
            self.storage.sync_directory(self.directory)

    def _check_from(self, first: int, recovery_point: int) -> int:
        """Check the segments from the index `first` on, remove what can't stay; return the log end offset."""
        next_offset = self.segments[first].base_offset if self.segments else 0
        self.leader_epochs.truncate(next_offset)
        touched: list[str] = []
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if segment.base_offset < next_offset or recovery_point <= next_offset < segment.base_offset:
                # What was written before this segment is lost, and with it the order of what comes after.
                self._drop_segments_from(index)
                break
            file_size = segment.size_bytes
            next_offset = self._recover_segment(
                segment, max(next_offset, segment.base_offset), recovery_point
            )
            self._keep(segment, file_size)
            if index + 1 < len(self.segments):
                touched += segment.write_indexes()
                segment.become_closed()
            if segment.size_bytes < file_size:
                self._drop_segments_from(index + 1)
                break
        for path in touched:
            self.storage.sync_path(path)
        return next_offset

    def _read_leader_epochs(self, segments: list[Segment]) -> None:
        """Take the leader epochs of durable segments from their batches, as the checkpoint is missing."""
        for segment in segments:
            try:
                for _, batch in segment.batches(0, segment.size_bytes):
                    self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            except CorruptRecord as error:
                _logger.error("leader epochs may be missing: %s", error)  # noqa: TRY400 - the sentence says it

    def _keep(self, segment: Segment, file_size: int) -> None:
        if segment.size_bytes < file_size:
            self.bytes_cut += file_size - segment.size_bytes
            _logger.warning(
                "%s: cut off %d bytes of torn or damaged batches at position %d",
                segment.file.path,
                file_size - segment.size_bytes,
                segment.size_bytes,
            )
            self.storage.truncate(segment.file, segment.size_bytes)
            self._sync(segment)

    def _sync(self, segment: Segment) -> None:
        self.storage.pin(segment.file)
        try:
            self.storage.sync(segment.file)
        finally:
            self.storage.unpin(segment.file)

    def _recover_segment(self, segment: Segment, next_offset: int, recovery_point: int) -> int:
        """Fold in the good batches of the segment, set its size to where they end; return the offset after them."""
        # What is served from here on must be on the disk, and checked as it is there: see `Storage.forget_cached`.
        self._sync(segment)
        self.storage.forget_cached(segment.file)
        end = segment.size_bytes
        segment.start_over()
        if segment.has_aborted:
            self.doubted.add(segment.base_offset)
        position = 0
        data = memoryview(b"")
        start = 0
        while position < end:
            at = position - start
            batch = _whole_batch(data, at)
            if batch is None:
                wanted = _bytes_wanted(data, at)
                data = memoryview(self.storage.read(segment.file, min(wanted, end - position), position))
                start, at = position, 0
                batch = _whole_batch(data, 0)
                if batch is None and len(data) >= HEADER_BYTES and _bytes_wanted(data, 0) <= end - position:
                    data = memoryview(self.storage.read(segment.file, _bytes_wanted(data, 0), position))
                    batch = _whole_batch(data, 0)
            if batch is None or not _is_good(batch, data, at, segment.base_offset):
                _check_magic(segment, position, batch, data, at)
                break
            # Offsets are dense but for what cleaning may have taken out of durable data.
            if batch.base_offset != next_offset and not next_offset < batch.base_offset <= recovery_point:
                break
            segment.appended(batch, batch.last_offset, self.config.index_interval_bytes)
            if batch.is_control:
                self.doubted.add(segment.base_offset)
            self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            next_offset = batch.last_offset + 1
            position += batch.size_bytes
        return next_offset

    def _drop_segments_from(self, index: int) -> None:
        for segment in self.segments[index:]:
            _logger.warning("%s is removed: the log ends before it", segment.file.path)
            self.bytes_cut += segment.size_bytes
            self._remove(segment)
        del self.segments[index:]

    def _remove(self, segment: Segment) -> None:
        self.storage.release(segment.file)
        self.environment.forget_indexes(segment.file.path)
        for suffix in SEGMENT_SUFFIXES:
            self.storage.delete(segment.path(suffix))

    def begin_anew(self, offset: int) -> None:
        """Put one empty segment at `offset` in place of what is there."""
        segment = Segment(self.environment, self.directory, offset, 0, self.now_ms)
        self.storage.create(segment.file)
        self.storage.sync_directory(self.directory)
        for old in self.segments:
            self._remove(old)
        self.segments = [segment]
        self.log_end_offset = offset

    def load_transaction_indexes(self) -> None:
        """Take the indexes of aborted transactions as they are, or make those anew that can't be right."""
        for segment in self.segments[:-1]:
            # who removed the one index to have it rebuilt will have removed the other one too
            if offset_name(segment.base_offset, OFFSET_INDEX_SUFFIX) not in self.files and self.trusted:
                self.doubted.add(segment.base_offset)
        doubted = [
            segment
            for segment, end_offset in zip(self.segments, self.end_offsets(), strict=True)
            if segment.base_offset in self.doubted or not has_sane_index(segment, end_offset)
        ]
        if doubted:
            self._rebuild_transaction_indexes(doubted)
        false = not_borne_out(self.segments)
        if false:
            _logger.warning(
                "%s: an index of aborted transactions says what the log does not, it is made anew",
                self.directory,
            )
            self._rebuild_transaction_indexes(
                [segment for segment in self.segments if segment.base_offset in false]
            )
        self.segments[-1].hold_transaction_index()

    def _rebuild_transaction_indexes(self, doubted: list[Segment]) -> None:
        rebuild_transaction_indexes(
            self.environment,
            self.directory,
            self.config,
            self.segments,
            doubted,
            snapshot_offsets(self.files),
        )

    def end_offsets(self) -> list[int]:
        """Where each segment ends, exclusive."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]


def _whole_batch(data: memoryview, at: int) -> BatchHeader | None:
    """The header at `at` when its batch lies wholly in `data`."""
    if len(data) - at < HEADER_BYTES:
        return None
    batch = parse_header(data, at)
    return batch if HEADER_BYTES <= batch.size_bytes <= len(data) - at else None


def _bytes_wanted(data: memoryview, at: int) -> int:
    if len(data) - at < HEADER_BYTES:
        return SCAN_CHUNK_BYTES
    return max(SCAN_CHUNK_BYTES, parse_header(data, at).size_bytes)


def _check_magic(
    segment: Segment, position: int, batch: BatchHeader | None, data: memoryview, at: int
) -> None:
    """What a later release wrote must not be cut off. Raises IncompatibleFormat."""
    if batch is not None and batch.magic > MAGIC and crc_matches(batch, data, at):
        raise IncompatibleFormat(
            f"{segment.file.path} has a batch of magic {batch.magic} at position {position}; "
            f"this program reads magic {MAGIC}."
        )


def _is_good(batch: BatchHeader, data: memoryview, at: int, base_offset: int) -> bool:
    return batch.is_plausible and batch.last_offset - base_offset < 2**31 and crc_matches(batch, data, at)
