"""The offset up to which each partition was compacted, kept in `cleaner-offset-checkpoint` (Kafka's format).

Losing this file only costs time: a partition without an entry is cleaned again. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from log import LogDirectory, Storage
from log.compaction import CleaningFinished, read_cleaned_offsets, write_cleaned_offsets


@dataclass(slots=True)
class PartitionProgress:
    """The progress of one partition's compaction."""

    topic_id: uuid.UUID
    clean_end_offset: int | None = None
    """The offset at which the last cleaning ended (exclusive); None before the first cleaning."""
    durable_end_offset: int = 0
    """The recovery point that the checkpoint surely has; a start attributes gaps below it to compaction."""
    failures: int = 0
    """Failed cleanings in a row."""
    uncleanable: bool = False


@dataclass(slots=True)
class CompactionCounts:
    """What compaction has done since the start."""

    cleanings: int = 0
    """Partitions that were compacted, each time counted."""
    failures: int = 0
    records_read: int = 0
    records_kept: int = 0
    took_s: float = 0.0

    def add(self, finished: CleaningFinished, took_s: float) -> None:
        """Count the cleaning of a partition that took so many seconds."""
        self.cleanings += 1
        self.records_read += finished.records_read
        self.records_kept += finished.records_kept
        self.took_s += took_s


class CompactionProgress:
    """One entry for each partition that was checked and still exists."""

    def __init__(self, storage: Storage, log_directory: LogDirectory, partitions: Partitions) -> None:
        self._storage = storage
        self._root = log_directory.files
        self._partitions = partitions
        self._entries: dict[tuple[str, int], PartitionProgress] = {}
        self._uncleanable = 0

    def load(self) -> None:
        """Load the checkpoint, without partitions that no longer exist."""
        for (name, index), offset in read_cleaned_offsets(self._storage, self._root).items():
            topic = self._partitions.by_name.get(name)
            if topic is not None and topic.has(index):
                self._entries[name, index] = PartitionProgress(topic.topic_id, clean_end_offset=offset)

    def clean_end_offset(self, key: tuple[str, int]) -> int | None:
        """Return the offset at which the last cleaning of a partition (topic, index) ended.

        The partition may be closed.
        """
        entry = self._entries.get(key)
        return None if entry is None else entry.clean_end_offset

    @property
    def uncleanable(self) -> int:
        """The partitions that are not compacted any more until the gateway restarts."""
        return self._uncleanable

    def mark_uncleanable(self, partition: Partition) -> None:
        """Compact a partition no more until the gateway restarts."""
        entry = self.of(partition)
        self._uncleanable += not entry.uncleanable
        entry.uncleanable = True

    def of(self, partition: Partition) -> PartitionProgress:
        """Return the entry of a partition; an entry of a deleted topic of the same name is replaced."""
        entry = self._entries.get((partition.topic, partition.index))
        if entry is None or entry.topic_id != partition.topic_id:
            self._uncleanable -= entry is not None and entry.uncleanable
            entry = PartitionProgress(partition.topic_id)
            self._entries[partition.topic, partition.index] = entry
        return entry

    def forget(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Drop the entries of deleted topics, so that the checkpoint can't be used for new topics of these names."""
        gone = set(topic_ids)
        keys = [key for key, entry in self._entries.items() if entry.topic_id in gone]
        for key in keys:
            self._uncleanable -= self._entries.pop(key).uncleanable
        if keys:
            self.save()

    def save(self) -> None:
        """Write the checkpoint without a flush; log an error."""
        offsets = {
            key: entry.clean_end_offset
            for key, entry in self._entries.items()
            if entry.clean_end_offset is not None
        }
        write_cleaned_offsets(self._storage, self._root, offsets)
