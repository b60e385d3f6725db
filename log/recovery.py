"""Bringing a partition's state back from its files.

After a clean stop nothing of the record data is read. After a crash every batch from the segment of the recovery point
on is checked by its CRC; the log ends before the first bad one, and what is kept is made durable before it is served.
Source: Kafka's `LogLoader`, `LogSegment.recover`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from log.checkpoints import CorruptCheckpoint, decode_leader_epochs, decode_offsets
from log.leader_epochs import LeaderEpochs
from log.names import (
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from log.producer_snapshots import restore_newest, snapshot_offsets
from log.record_batch import HEADER_BYTES, MAGIC, crc_matches, parse_header
from log.segment import SCAN_CHUNK_BYTES, Segment

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.record_batch import BatchHeader
    from seq_validator import ProducerTable

_logger = logging.getLogger(__name__)
_SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


@dataclass(frozen=True, slots=True)
class CleanStop:
    """What a clean stop left of one partition; it holds only while the active segment still has that size."""

    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int


@dataclass(slots=True)
class LoadedLog:
    """The state of a partition as its files tell it; everything in it is durable."""

    segments: list[Segment]
    producers: ProducerTable
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    bytes_cut: int
    """Bytes of torn or damaged batches that were removed from the end."""


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
    if clean_stop is None or not loader.matches(clean_stop):
        loader.recover(recovery_point)
    else:
        loader.log_end_offset = clean_stop.log_end_offset
    if loader.log_end_offset < loader.log_start_offset or not loader.segments:
        loader.begin_anew(max(loader.log_start_offset, loader.log_end_offset))
    loader.segments[-1].become_active()
    loader.log_start_offset = max(loader.log_start_offset, loader.segments[0].base_offset)
    return LoadedLog(
        loader.segments,
        loader.load_producers(),
        loader.leader_epochs,
        loader.log_start_offset,
        loader.log_end_offset,
        loader.bytes_cut,
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
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.bytes_cut = 0

    def list_segments(self) -> None:
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
            elif parsed and parsed[1] in _SEGMENT_SUFFIXES and offset_name(parsed[0], LOG_SUFFIX) not in files:
                self.storage.delete(f"{self.directory}/{name}")
        for base_offset in sorted(bases):
            size_bytes = files[offset_name(base_offset, LOG_SUFFIX)]
            self.segments.append(
                Segment(self.environment, self.directory, base_offset, size_bytes, self.now_ms)
            )
        self._read_checkpoints()

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
                self.leader_epochs = LeaderEpochs(decode_leader_epochs(self.storage.read_file(path), path))
            except CorruptCheckpoint as error:
                _logger.warning("%s Leader epochs are read from the log.", error)

    def matches(self, clean_stop: CleanStop) -> bool:
        """Whether the files are still those of the clean stop."""
        if not self.segments:
            return False
        active = self.segments[-1]
        return (
            active.base_offset == clean_stop.active_base_offset
            and active.size_bytes == clean_stop.active_size_bytes
            and clean_stop.log_end_offset >= self.log_start_offset
        )

    def recover(self, recovery_point: int) -> None:
        """Check the batches from the segment of the recovery point on, and end the log before the first bad one."""
        bases = [segment.base_offset for segment in self.segments]
        first = max(0, bisect_right(bases, recovery_point) - 1)
        if LEADER_EPOCHS not in self.files:
            first = 0
        next_offset = self.segments[first].base_offset if self.segments else 0
        touched: list[str] = []
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            file_size = segment.size_bytes
            next_offset = self._recover_segment(segment, max(next_offset, segment.base_offset))
            self._keep(segment, file_size)
            if index + 1 < len(self.segments):
                touched += segment.write_indexes()
            if segment.size_bytes < file_size:
                self._drop_segments_after(index)
                break
            if index + 1 < len(self.segments):
                segment.become_closed()
        for path in touched:
            self.storage.sync_path(path)
        self.storage.sync_directory(self.directory)
        self.log_end_offset = next_offset
        self.leader_epochs.truncate(next_offset)
        if next_offset < recovery_point:
            _logger.error(
                "%s ends at offset %d, but was durable up to %d: data has been lost",
                self.directory,
                next_offset,
                recovery_point,
            )

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
        self.storage.pin(segment.file)
        try:
            self.storage.sync(segment.file)
        finally:
            self.storage.unpin(segment.file)

    def _recover_segment(self, segment: Segment, next_offset: int) -> int:
        """Fold in the good batches of the segment, set its size to where they end; return the offset after them."""
        end = segment.size_bytes
        segment.start_over()
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
            if batch is None or not _is_good(batch, data, at, next_offset, segment.base_offset):
                break
            segment.appended(batch, batch.last_offset, self.config.index_interval_bytes)
            self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            next_offset = batch.last_offset + 1
            position += batch.size_bytes
        return next_offset

    def _drop_segments_after(self, index: int) -> None:
        for segment in self.segments[index + 1 :]:
            _logger.warning("%s is removed: the log ends before it", segment.file.path)
            self.bytes_cut += segment.size_bytes
            self._remove(segment)
        del self.segments[index + 1 :]

    def _remove(self, segment: Segment) -> None:
        self.storage.release(segment.file)
        self.environment.index_cache.drop(segment.file.path)
        for suffix in _SEGMENT_SUFFIXES:
            self.storage.delete(segment.path(suffix))

    def begin_anew(self, offset: int) -> None:
        """Put one empty segment at `offset` in place of what is there."""
        for segment in self.segments:
            self._remove(segment)
        segment = Segment(self.environment, self.directory, offset, 0, self.now_ms)
        self.storage.create(segment.file)
        self.storage.sync_directory(self.directory)
        self.segments = [segment]
        self.log_end_offset = offset

    def load_producers(self) -> ProducerTable:
        """The producer state: the newest readable snapshot, and the batches of the log after it."""
        offsets = snapshot_offsets(self.files)
        for offset in offsets:
            if offset > self.log_end_offset:
                self.storage.delete(f"{self.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}")
        usable = [offset for offset in offsets if offset <= self.log_end_offset]
        producers, from_offset = restore_newest(self.environment, self.directory, self.config, usable)
        start = from_offset or 0
        for index, segment in enumerate(self.segments):
            end = self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.log_end_offset
            if end > start:
                self._replay(segment, start, producers)
        return producers

    def _replay(self, segment: Segment, start: int, producers: ProducerTable) -> None:
        position = segment.position_of(start, segment.size_bytes) if start > segment.base_offset else 0
        for _, batch in segment.batches(position, segment.size_bytes):
            if batch.producer_id >= 0 and not batch.is_control and batch.base_offset >= start:
                producers.update(batch, batch.base_offset, self.now_ms)


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


def _is_good(batch: BatchHeader, data: memoryview, at: int, next_offset: int, base_offset: int) -> bool:
    return (
        batch.magic == MAGIC
        and batch.base_offset >= next_offset
        and batch.last_offset_delta >= 0
        and batch.last_offset - base_offset < 2**31
        and crc_matches(batch, data, at)
    )
