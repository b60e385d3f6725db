"""Rebuilds a data directory from the bytes of its files, which another place keeps.

The files come by topic id, because the names of topics are known only once the metadata log is whole. So each partition is staged
first, and then placed under its name:

    rebuilding-TOPIC_ID-PARTITION/    a partition without its name; TOPIC_ID has 32 hexadecimal digits

Only BUCKET_SESSION is flushed: a rebuild that a crash ends begins anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from log.directory.directory_files import BUCKET_SESSION, LOCK, RECOVERY_POINTS
from log.directory.identity import Identity, check_empty, fresh_id, write_identity
from log.directory.stored_logs import CLEAN_SHUTDOWN, looks_unchanged, peek_stored_logs
from log.durability.durability import LocalDurability
from log.errors import CorruptRecord
from log.files.checkpoints import encode_offsets, encode_partition_metadata
from log.files.data_file import DataFile
from log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_name
from log.files.residency import SegmentKey
from log.files.versions import META

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from log.durability.durability import Durability
    from log.files.storage import Storage
    from log.format.record_batch import Buffer

__all__ = ["BUCKET_SESSION", "STAGING", "RebuiltDirectory", "check_empty", "fresh_id", "is_as_stopped"]

STAGING: Final = "rebuilding"


def is_as_stopped(storage: Storage, root: str) -> bool:
    """Return whether the directory has all logs with the sizes that they had at its last clean stop. Raises OSError, IncompatibleFormat."""
    if not all(storage.exists(f"{root}/{name}") for name in (CLEAN_SHUTDOWN, META)):
        return False
    stored = peek_stored_logs(storage, root)
    try:
        return all(looks_unchanged(storage, f"{root}/{name}", log) for name, log in stored.items())
    except FileNotFoundError:
        return False


class RebuiltDirectory:
    """A data directory that is being rebuilt. Holds the directory's lock from `begin` to `finish` or `abandon`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        """Create without touching the disk; use `begin`."""
        self._storage = storage
        self._root = path
        self._sizes: dict[str, int] = {}
        """The bytes of each segment file written so far, by path."""
        self._files: dict[str, DataFile] = {}
        self._staged: set[tuple[uuid.UUID, int]] = set()
        self._written: list[str] = []
        """The segment files of partitions that have their name."""
        self._durable_below: dict[tuple[uuid.UUID, int], int] = {}
        self._recovery_points: dict[tuple[str, int], int] = {}

    @classmethod
    def begin(cls, storage: Storage, path: Path, session: bytes) -> RebuiltDirectory:
        """Lock the directory, write `session` as its BUCKET_SESSION, and delete everything else in it. Raises DirectoryLocked, OSError."""
        storage.make_directories(str(path))
        storage.lock(str(path / LOCK))
        directory = cls(storage, path)
        try:
            # First and durably: a directory of records without this file is taken for one that no bucket has.
            LocalDurability(storage).replace(str(path / BUCKET_SESSION), session)
            directory._empty(path)
        except BaseException:
            directory.abandon()
            raise
        return directory

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
        """Write bytes of a segment file at their position.

        Raises OSError. Raises CorruptRecord if bytes before the position are missing: the file would have a hole, which reads as zeros.
        """
        path = f"{self._directory(topic_id, partition)}/{offset_name(segment_base, LOG_SUFFIX)}"
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = DataFile(path)
            self._storage.create(file)
        size = self._sizes.get(path, 0)
        if position > size:
            raise CorruptRecord(
                f"partition {partition} of the topic {topic_id}: the bytes {size} to {position - 1} of the segment {segment_base} are missing"
            )
        view = memoryview(data)
        at = position
        while view:
            written = self._storage.write(file, [view], at)
            view, at = view[written:], at + written
        self._sizes[path] = max(size, at)

    def write_absent(
        self, topic_id: uuid.UUID, partition: int, segment_base: int, size_bytes: int, generation: int
    ) -> None:
        """Create the file of a closed segment whose bytes stay in the bucket until somebody reads them. Raises OSError.

        `generation` is that of the manifest that names the bytes.
        Write the index files of the segment, too, and call `vouch_for` with an offset in a later segment. Otherwise the next start
        reads the whole segment.
        """
        sparse = self._storage.sparse
        if sparse is None:
            raise ValueError("the storage has no files with holes")
        path = f"{self._directory(topic_id, partition)}/{offset_name(segment_base, LOG_SUFFIX)}"
        sparse.create_absent(path, SegmentKey(topic_id, partition, segment_base, generation), size_bytes)

    def vouch_for(self, topic_id: uuid.UUID, partition: int, end_offset: int) -> None:
        """Let the next start take all records below `end_offset` for durable: compaction may have removed some of them, and only
        the segment of the offset is checked batch by batch.
        """
        self._durable_below[topic_id, partition] = end_offset

    def write_file(self, topic_id: uuid.UUID, partition: int, name: str, content: bytes) -> None:
        """Write the whole content of a side file of a partition, in place of an earlier content. Raises OSError."""
        self._storage.write_file(f"{self._directory(topic_id, partition)}/{name}", content)

    def place(self, topic_id: uuid.UUID, partition: int, topic: str) -> Path:
        """Give a staged partition its name, and its topic id if no side file gave it. Return the directory. Raises OSError."""
        staged = self._directory(topic_id, partition)
        metadata = f"{staged}/{PARTITION_METADATA}"
        if not self._storage.exists(metadata):
            self._storage.write_file(metadata, encode_partition_metadata(topic_id))
        released = self._release(f"{staged}/")
        target = self._root / f"{topic}-{partition}"
        self._storage.rename(staged, str(target))
        self._written += [f"{target}{path.removeprefix(staged)}" for path in released]
        self._staged.remove((topic_id, partition))
        recovery_point = self._durable_below.pop((topic_id, partition), None)
        if recovery_point is not None:
            self._recovery_points[topic, partition] = recovery_point
        return target

    def finish(self, durable: Durability, cluster_id: str, node_id: int) -> None:
        """Delete the partitions that got no name, write recovery points and the identity of the directory, and unlock it. Raises OSError."""
        for topic_id, partition in self._staged:
            path = self._directory(topic_id, partition)
            self._release(f"{path}/")
            self._empty(Path(path))
            self._storage.delete_directory(path)
        if self._recovery_points:
            durable.replace(f"{self._root}/{RECOVERY_POINTS}", encode_offsets(self._recovery_points))
        durable.rebuilt(self._written)
        write_identity(durable, str(self._root), node_id, Identity(cluster_id, fresh_id()))
        self.abandon()

    def abandon(self) -> None:
        """Unlock the directory. Without `finish` the next start rebuilds it again."""
        self._release("")
        self._storage.unlock(str(self._root / LOCK))

    def _directory(self, topic_id: uuid.UUID, partition: int) -> str:
        path = str(self._root / f"{STAGING}-{topic_id.hex}-{partition}")
        if (topic_id, partition) not in self._staged:
            self._storage.make_directory(path)
            self._staged.add((topic_id, partition))
        return path

    def _release(self, prefix: str) -> list[str]:
        """Close the segment files whose paths have this prefix. Return the paths."""
        paths = [path for path in self._files if path.startswith(prefix)]
        for path in paths:
            self._storage.descriptors.release(self._files.pop(path))
            self._sizes.pop(path, None)
        return paths

    def _empty(self, path: Path) -> None:
        for entry in self._storage.entries(str(path)):
            if path == self._root and entry.name in {LOCK, BUCKET_SESSION}:
                continue
            if entry.is_directory:
                self._empty(path / entry.name)
                self._storage.delete_directory(str(path / entry.name))
            else:
                self._storage.delete(str(path / entry.name))
