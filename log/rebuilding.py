"""Rebuilds a data directory from the bytes of its files, which another place keeps.

The files come by topic id, because the names of topics are known only once the metadata log is whole. So each
partition is staged first, and then placed under its name:

    rebuilding-TOPIC_ID-PARTITION/    a partition without its name; TOPIC_ID has 32 hexadecimal digits

Only BUCKET_SESSION is flushed: a rebuild that a crash ends begins anew.

A running gateway so stages partitions beside those that it serves (`StagedPartitions`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.log.directory.identity import (
    OF_A_FILE_SYSTEM,
    DirectoryIdentity,
    check_empty,
    fresh_id,
    write_identity,
)
from seqgate.log.directory.stored_logs import (
    BUCKET_SESSION,
    CLEAN_SHUTDOWN,
    LOCK,
    PRODUCER_CLIENTS,
    RECOVERY_POINTS,
    RESTORED_MANIFESTS,
    is_unchanged,
    peek_stored_logs,
)
from seqgate.log.durability.durability import Durability, LocalDurability
from seqgate.log.errors import CorruptRecord
from seqgate.log.files.checkpoints import encode_offsets, encode_partition_metadata
from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_name
from seqgate.log.files.page_cache import SegmentKey
from seqgate.log.files.sparse_disk import META
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.record_batch import Buffer

# names of other modules that belong to this face
__all__ = ["BUCKET_SESSION", "RESTORED_MANIFESTS", "check_empty", "fresh_id"]

STAGING: Final = "rebuilding"


def is_as_stopped(storage: Storage, root: str) -> bool:
    """Return whether all logs have the sizes of the clean stop. Raises OSError, IncompatibleFormat."""
    if not all(storage.exists(f"{root}/{name}") for name in (CLEAN_SHUTDOWN, META)):
        return False
    stored = peek_stored_logs(storage, root)
    try:
        return all(is_unchanged(storage, f"{root}/{name}", log) for name, log in stored.items())
    except FileNotFoundError:
        return False


class RebuiltPartition(NamedTuple):
    """A partition whose files are complete, and that has no name yet."""

    path: str
    recovery_point: int
    """The offset below which all records are durable."""
    segments: list[str]
    """The names of the segment files that were written as a whole."""


class StagedPartitions:
    """Partitions that are written into directories without their names. Use it in one thread at a time."""

    def __init__(self, storage: Storage, root: Path) -> None:
        self._storage = storage
        self._root = root
        self._sizes: dict[str, int] = {}
        """The bytes of each segment file written so far, by path."""
        self._files: dict[str, DataFile] = {}
        self._staged: set[tuple[uuid.UUID, int]] = set()
        self._durable_below: dict[tuple[uuid.UUID, int], int] = {}

    @property
    def may_have_holes(self) -> bool:
        """Whether segments may stay in the bucket: the storage knows holes."""
        return self._storage.sparse is not None

    @property
    def staged(self) -> Sequence[tuple[uuid.UUID, int]]:
        """The partitions that have no name yet: topic id and index, ascending."""
        return sorted(self._staged)

    def stage(self, topic_id: uuid.UUID, partition: int) -> None:
        """Begin a partition, perhaps one without records. Raises OSError."""
        self._directory(topic_id, partition)

    def write(
        self, topic_id: uuid.UUID, partition: int, segment_base: int, position: int, data: Buffer
    ) -> None:
        """Write bytes of a segment file at their position. Raises OSError, and CorruptRecord if bytes before
        the position are missing, which would be a hole.
        """
        path = f"{self._directory(topic_id, partition)}/{offset_name(segment_base, LOG_SUFFIX)}"
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = DataFile(path)
            self._storage.create(file)
        size = self._sizes.get(path, 0)
        if position > size:
            raise CorruptRecord(
                f"partition {partition} of the topic {topic_id}: the bytes {size} to {position - 1} of the "
                f"segment {segment_base} are missing"
            )
        self._sizes[path] = max(size, self._storage.write_all(file, data, position))

    def write_absent(
        self, topic_id: uuid.UUID, partition: int, segment_base: int, size_bytes: int, generation: int
    ) -> None:
        """Create the file of a closed segment whose bytes stay in the bucket. Raises OSError.

        `generation` is the manifest's. Write the index files of the segment, too, and call `vouch_for` with
        an offset in a later segment. Otherwise the next start reads the whole segment.
        """
        sparse = self._storage.sparse
        if sparse is None:
            raise ValueError("the storage has no files with holes")
        path = f"{self._directory(topic_id, partition)}/{offset_name(segment_base, LOG_SUFFIX)}"
        sparse.create_absent(path, SegmentKey(topic_id, partition, segment_base, generation), size_bytes)

    def vouch_for(self, topic_id: uuid.UUID, partition: int, end_offset: int) -> None:
        """Let the next start take all records below `end_offset` for durable: compaction may have removed
        some of them, and only the segment of the offset is checked batch by batch.
        """
        self._durable_below[topic_id, partition] = end_offset

    def write_file(self, topic_id: uuid.UUID, partition: int, name: str, content: bytes) -> None:
        """Write the whole content of a partition's side file, in place of an earlier one. Raises OSError."""
        self._storage.write_file(f"{self._directory(topic_id, partition)}/{name}", content)

    def complete(self, topic_id: uuid.UUID, partition: int) -> RebuiltPartition:
        """Close a staged partition's files, give it a topic id if none did, and let go. Raises OSError."""
        path = self._directory(topic_id, partition)
        metadata = f"{path}/{PARTITION_METADATA}"
        if not self._storage.exists(metadata):
            self._storage.write_file(metadata, encode_partition_metadata(topic_id))
        released = self.release(f"{path}/")
        self._staged.remove((topic_id, partition))
        recovery_point = self._durable_below.pop((topic_id, partition), 0)
        return RebuiltPartition(path, recovery_point, [file.removeprefix(f"{path}/") for file in released])

    def discard(self, topic_id: uuid.UUID, partition: int) -> None:
        """Delete what was written of a partition, so that it may be written again. Raises OSError."""
        path = f"{self._root}/{STAGING}-{topic_id.hex}-{partition}"
        self.release(f"{path}/")
        self._durable_below.pop((topic_id, partition), None)
        self._staged.discard((topic_id, partition))
        if self._storage.exists(path):
            self._storage.remove_tree(path)

    def _directory(self, topic_id: uuid.UUID, partition: int) -> str:
        path = str(self._root / f"{STAGING}-{topic_id.hex}-{partition}")
        if (topic_id, partition) not in self._staged:
            self._storage.make_directory(path)
            self._staged.add((topic_id, partition))
        return path

    def release(self, prefix: str) -> list[str]:
        """Close the segment files whose paths have this prefix. Return the paths."""
        paths = [path for path in self._files if path.startswith(prefix)]
        for path in paths:
            self._storage.descriptors.release(self._files.pop(path))
            self._sizes.pop(path, None)
        return paths


class RebuiltDirectory:
    """A data directory that is being rebuilt. Holds its lock from `begin` to `finish` or `abandon`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        """Create without touching the disk; use `begin`."""
        self._storage = storage
        self._root = path
        self.partitions = partitions = StagedPartitions(storage, path)
        """The partitions that have no name yet."""
        self.write, self.write_absent = partitions.write, partitions.write_absent
        self.write_file, self.vouch_for = partitions.write_file, partitions.vouch_for
        self._written: list[str] = []
        """The segment files of partitions that have their name."""
        self._recovery_points: dict[tuple[str, int], int] = {}

    @classmethod
    def begin(
        cls, storage: Storage, path: Path, session: bytes, kept: Collection[str] = ()
    ) -> RebuiltDirectory:
        """Lock the directory, write BUCKET_SESSION, empty the rest but for what no bucket has: the clients of
        producers, the file system's own directory, and the files `kept`. Raises DirectoryLocked, OSError.
        """
        storage.make_directories(str(path))
        storage.lock(str(path / LOCK))
        directory = cls(storage, path)
        try:
            # First and durably: a directory of records without this file is taken for one that no bucket has.
            LocalDurability(storage).replace(str(path / BUCKET_SESSION), session)
            own = {LOCK, BUCKET_SESSION, PRODUCER_CLIENTS, OF_A_FILE_SYSTEM}
            storage.empty(str(path), kept=own.union(kept))
        except BaseException:
            directory.abandon()
            raise
        return directory

    @property
    def staged(self) -> Sequence[tuple[uuid.UUID, int]]:
        return self.partitions.staged

    def place(self, topic_id: uuid.UUID, partition: int, topic: str) -> Path:
        """Name a staged partition, with a topic id if need be. Return its directory. Raises OSError."""
        staged = self.partitions.complete(topic_id, partition)
        target = self._root / f"{topic}-{partition}"
        self._storage.rename(staged.path, str(target))
        self._written += [f"{target}/{name}" for name in staged.segments]
        if staged.recovery_point:
            self._recovery_points[topic, partition] = staged.recovery_point
        return target

    def finish(self, durable: Durability, cluster_id: str, node_id: int) -> None:
        """Delete nameless partitions, write recovery points and identity, and unlock. Raises OSError."""
        for topic_id, partition in self.staged:
            self.partitions.discard(topic_id, partition)
        if self._recovery_points:
            durable.replace(f"{self._root}/{RECOVERY_POINTS}", encode_offsets(self._recovery_points))
        durable.rebuilt(self._written)
        write_identity(durable, str(self._root), node_id, DirectoryIdentity(cluster_id, fresh_id()))
        self.abandon()

    def abandon(self) -> None:
        """Unlock the directory. Without `finish` the next start rebuilds it again."""
        self.partitions.release("")
        self._storage.unlock(str(self._root / LOCK))
