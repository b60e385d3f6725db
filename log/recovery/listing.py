"""Lists the directory of a partition and reads its small files, before any records are read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from log.compaction.swap import finish_swaps
from log.files.checkpoints import CorruptCheckpoint, decode_leader_epochs, decode_offsets
from log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from log.recovery.stored_versions import check_partition
from log.segments.segment import Segment
from log.state.leader_epochs import LeaderEpochs
from log.state.producer_snapshots import restore_newest, snapshot_offsets

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.environment import LogEnvironment

_logger = logging.getLogger(__name__)


class Listing:
    """The segments of a partition and the content of its small files. Making the listing deletes left-over files."""

    def __init__(self, environment: LogEnvironment, directory: str, config: LogConfig, now_ms: int) -> None:
        """List the directory, and finish interrupted swaps of compaction. Raises OSError, IncompatibleFormat."""
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
        """Remove segments below the log start offset: a crash may have brought back some removed ones, with gaps between.

        Keep a segment that no producer snapshot covers. Such a segment was never removed, and only it knows its producers.
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
