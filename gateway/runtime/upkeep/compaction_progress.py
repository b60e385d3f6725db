"""Up to where each partition was compacted, kept in `cleaner-offset-checkpoint` (Kafka's format) in the data directory.

Losing it costs time only: what it does not know of is cleaned again. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from log import LogDirectory, Storage
from log.directory.log_directory import CLEANER_OFFSETS
from log.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionProgress:
    """What is known of one partition's compaction."""

    topic_id: uuid.UUID
    clean_end_offset: int | None = None
    """Where the last cleaning ended (exclusive)."""
    durable_end_offset: int = 0
    """The recovery point that is known to be in the checkpoint: a start takes gaps below it for compaction's."""
    failures: int = 0
    """In a row."""
    uncleanable: bool = False


class CompactionProgress:
    """One entry for each partition that was looked at and still exists."""

    def __init__(self, storage: Storage, log_directory: LogDirectory, partitions: Partitions) -> None:
        self._storage = storage
        self._path = str(log_directory.path / CLEANER_OFFSETS)
        self._partitions = partitions
        self._entries: dict[tuple[str, int], PartitionProgress] = {}

    def load(self) -> None:
        """Read the checkpoint; of what no longer exists nothing is kept."""
        if not self._storage.exists(self._path):
            return
        try:
            offsets = decode_offsets(self._storage.read_file(self._path), self._path)
        except (CorruptCheckpoint, OSError) as error:
            logger.warning("%s: every compacted topic is taken for dirty", error)
            return
        for (name, index), offset in offsets.items():
            topic = self._partitions.by_name.get(name)
            if topic is not None and topic.has(index):
                self._entries[name, index] = PartitionProgress(topic.topic_id, clean_end_offset=offset)

    def clean_end_offset(self, key: tuple[str, int]) -> int | None:
        """Where the last cleaning of a partition (topic, index) ended, which need not be open."""
        entry = self._entries.get(key)
        return None if entry is None else entry.clean_end_offset

    def of(self, partition: Partition) -> PartitionProgress:
        """The entry of a partition; that of a deleted topic of the same name does not count."""
        entry = self._entries.get((partition.topic, partition.index))
        if entry is None or entry.topic_id != partition.topic_id:
            entry = PartitionProgress(partition.topic_id)
            self._entries[partition.topic, partition.index] = entry
        return entry

    def forget(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """These topics were deleted; the checkpoint must not speak for others of their names."""
        gone = set(topic_ids)
        keys = [key for key, entry in self._entries.items() if entry.topic_id in gone]
        for key in keys:
            del self._entries[key]
        if keys:
            self.save()

    def save(self) -> None:
        """Write the checkpoint. It need not be durable; when it can't be written, that is logged."""
        offsets = {
            key: entry.clean_end_offset
            for key, entry in self._entries.items()
            if entry.clean_end_offset is not None
        }
        try:
            self._storage.write_file(f"{self._path}.tmp", encode_offsets(offsets))
            self._storage.rename(f"{self._path}.tmp", self._path)
        except OSError as error:
            logger.warning("%s can't be written: %s", self._path, error)
