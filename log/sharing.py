"""Shares a data directory among several workers, and makes it the directory of one process again.

    workers/NAME/    one worker's files outside of partitions (see `seqgate.log.directory.log_directory`)

The partitions stay where they are. `split` gives each worker the checkpoints, the facts of the clean stop and
the known damage of its own partitions, and `merge` puts them together again. While `workers` exists, only the
files in it count. Each step is one rename, so a crash leaves the files of one kind or of the other. The
caller holds the lock of the directory, and no worker runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from seqgate.log.directory.identity import check_ownership, take_identity, write_version
from seqgate.log.directory.stored_logs import (
    CLEAN_SHUTDOWN,
    DELETE_SUFFIX,
    LOCK,
    RECOVERY_POINTS,
    STORED_LOGS,
    STRAY_SUFFIX,
    WORKERS,
    StoredLog,
    rename_away,
    stopped_logs,
    write_stored_logs,
)
from seqgate.log.durability.durability import Durability
from seqgate.log.errors import StorageFailed
from seqgate.log.files.checkpoints import (
    CLEANER_OFFSETS,
    CorruptCheckpoint,
    decode_offsets,
    decode_partition_metadata,
    encode_offsets,
    encode_partition_metadata,
    read_cleaned_offsets,
)
from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, parse_partition_directory
from seqgate.log.files.sparse_disk import DIRECTORY_VERSION, WORKERS_VERSION
from seqgate.log.files.storage import Storage
from seqgate.log.segments.damage import DAMAGED_BATCHES, CutBytes, DamagedRange, DamageRegister

# names of other modules that belong to this face
__all__ = ["WORKERS"]

_NEW: Final = ".new"
_OLD: Final = ".old"
_LOST: Final = b"{}"
"""The content of a damage register that can't be read, so that every log is checked from its start."""

Key = tuple[str, int]


class _Files(msgspec.Struct):
    """The files of one process that belong to no partition."""

    points: dict[Key, int] = msgspec.field(default_factory=dict)
    are_points_lost: bool = False
    cleaned: dict[Key, int] = msgspec.field(default_factory=dict)
    logs: dict[str, StoredLog] = msgspec.field(default_factory=dict)
    is_clean: bool = True
    ranges: dict[str, tuple[DamagedRange, ...]] = msgspec.field(default_factory=dict)
    cut: dict[str, tuple[CutBytes, ...]] = msgspec.field(default_factory=dict)
    is_damage_lost: bool = False

    def take(self, other: _Files, is_wanted: Callable[[str, int], bool]) -> None:
        """Add the facts about the partitions that are wanted. A fact that is lost is lost here, too."""
        self.points |= {key: point for key, point in other.points.items() if is_wanted(*key)}
        self.cleaned |= {key: offset for key, offset in other.cleaned.items() if is_wanted(*key)}
        self.logs |= {name: stored for name, stored in other.logs.items() if _wants(is_wanted, name)}
        self.ranges |= {path: found for path, found in other.ranges.items() if _wants(is_wanted, path)}
        self.cut |= {path: found for path, found in other.cut.items() if _wants(is_wanted, path)}
        self.is_clean = self.is_clean and other.is_clean
        self.are_points_lost = self.are_points_lost or other.are_points_lost
        self.is_damage_lost = self.is_damage_lost or other.is_damage_lost


def _wants(is_wanted: Callable[[str, int], bool], path: str) -> bool:
    key = parse_partition_directory(path.rpartition("/")[2])
    return key is not None and is_wanted(*key)


def is_shared(storage: Storage, root: str) -> bool:
    """Return whether several workers had the directory last, so that `merge` must come first."""
    return storage.exists(f"{root}/{WORKERS}")


def hold(storage: Storage, durability: Durability, root: str, node_id: int) -> None:
    """Lock a data directory. Raises DirectoryLocked, OSError, IncompatibleFormat (`LogDirectory.open`)."""
    check_ownership(storage, root)
    durability.sync(directories=storage.make_directories(root))
    storage.lock(f"{root}/{LOCK}")
    try:
        take_identity(storage, durability, root, node_id)
    except BaseException:
        storage.unlock(f"{root}/{LOCK}")
        raise


def release(storage: Storage, root: str) -> None:
    storage.unlock(f"{root}/{LOCK}")


def ensure_topic_id(storage: Storage, durability: Durability, directory: str, topic_id: uuid.UUID) -> None:
    """Write the topic id that a crash kept from a log; a start would set the log aside. Raises OSError."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not storage.exists(path) or not storage.read_file(path):
        durability.replace(path, encode_partition_metadata(topic_id))
        durability.sync(directories=[directory.rpartition("/")[0]])


def note_durable(durability: Durability, files: str, topic: str, partition: int, end_offset: int) -> None:
    """Replace the checkpoint of a process that has one partition only. Raises OSError."""
    durability.replace(f"{files}/{RECOVERY_POINTS}", encode_offsets({(topic, partition): end_offset}))


def split(
    storage: Storage,
    durability: Durability,
    root: str,
    names: Iterable[str],
    owner_of: Callable[[str, int], str | None],
) -> None:
    """Give each worker its partitions' files, and drop others. Raises OSError, IncompatibleFormat."""
    _remove(storage, f"{root}/{WORKERS}{_NEW}")
    whole = _read(storage, durability, root, root)
    new = f"{root}/{WORKERS}{_NEW}"
    storage.make_directory(new)
    for name in names:
        share = _Files()
        share.take(
            whole,
            lambda topic, partition, name=name: owner_of(topic, partition) == name,  # type: ignore[misc]
        )
        storage.make_directory(f"{new}/{name}")
        _write(storage, durability, root, f"{new}/{name}", share)
        durability.sync(directories=[f"{new}/{name}"])
    durability.sync(directories=[new])
    write_version(storage, durability, root, WORKERS_VERSION)
    storage.rename(new, f"{root}/{WORKERS}")
    durability.sync(directories=[root])
    for name in (RECOVERY_POINTS, CLEANER_OFFSETS, CLEAN_SHUTDOWN, STORED_LOGS, DAMAGED_BATCHES):
        storage.delete(f"{root}/{name}")


def hand_on(
    storage: Storage, durability: Durability, root: str, keys: Collection[Key], source: str, target: str
) -> None:
    """Give the files of one worker the facts about partitions that those of another have. Neither runs.

    Each file is replaced at once and tells as much about other partitions as before. Until the metadata names
    the new leader, its facts about the partitions mean nothing. Raises OSError, IncompatibleFormat, and
    StorageFailed if the facts are lost.
    """
    found, own = _read(storage, durability, root, source), _read(storage, durability, root, target)
    if found.are_points_lost or found.is_damage_lost:
        raise StorageFailed(f"{source} lacks facts about its partitions, which the next start finds again")
    joined = _Files()
    joined.take(own, lambda *key: key not in keys)
    joined.take(found, lambda *key: key in keys)
    if not own.are_points_lost:
        durability.replace(f"{target}/{RECOVERY_POINTS}", encode_offsets(joined.points))
        if joined.cleaned != own.cleaned:
            durability.replace(f"{target}/{CLEANER_OFFSETS}", encode_offsets(joined.cleaned))
    if not own.is_damage_lost and (joined.ranges, joined.cut) != (own.ranges, own.cut):
        register = DamageRegister()
        register.load(storage, durability, root, target)
        register.fill(joined.ranges, joined.cut)
    if not found.is_clean:
        # The facts of an earlier stop: a check of the logs finds the present ones.
        for topic, partition in keys:
            joined.logs.pop(f"{topic}-{partition}", None)
    write_stored_logs(durability, target, joined.logs, all_clean=own.is_clean)


def merge(
    storage: Storage, durability: Durability, root: str, owner_of: Callable[[str, int], str | None]
) -> None:
    """Make the directory that of one process again. Raises OSError, IncompatibleFormat.

    Of two workers that have facts about a partition its owner is right: the other had the name before. A
    partition without an owner keeps its recovery point as evidence, and its log is checked.
    """
    shared = f"{root}/{WORKERS}"
    whole = _Files()
    for name in sorted(storage.list_directory(shared)):
        found = _read(storage, durability, root, f"{shared}/{name}")
        for key, point in found.points.items():
            if owner_of(*key) is None:
                whole.points[key] = min(point, whole.points.get(key, point))
        whole.take(
            found,
            lambda topic, partition, name=name: owner_of(topic, partition) == name,  # type: ignore[misc]
        )
    _write(storage, durability, root, root, whole)
    durability.sync(directories=[root])
    _remove(storage, shared + _OLD)
    storage.rename(shared, shared + _OLD)
    durability.sync(directories=[root])
    write_version(storage, durability, root, DIRECTORY_VERSION)
    _remove(storage, shared + _OLD)


def take_away(storage: Storage, root: str, topic: str, partition: int, topic_id: uuid.UUID) -> str | None:
    """Rename a dead worker's removed partition; return the name if records are kept. Raises OSError.

    Nobody has the directory open. A restarted worker or the next start deletes a deleted log's files.
    """
    directory = f"{root}/{topic}-{partition}"
    if not storage.exists(directory):
        return None
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        is_deleted = decode_partition_metadata(storage.read_file(path), path) == topic_id
    except (FileNotFoundError, CorruptCheckpoint):
        files = storage.list_files(directory)
        is_deleted = not any(size for name, size in files.items() if name.endswith(LOG_SUFFIX))
    renamed = rename_away(storage, directory, DELETE_SUFFIX if is_deleted else STRAY_SUFFIX)
    return None if is_deleted else renamed


def _read(storage: Storage, durability: Durability, root: str, files: str) -> _Files:
    logs, is_clean = stopped_logs(storage, files)
    register = DamageRegister()
    register.load(storage, durability, root, files)
    cleaned = read_cleaned_offsets(storage, files)
    path = f"{files}/{RECOVERY_POINTS}"
    points: dict[Key, int] = {}
    is_lost = False
    if storage.exists(path):
        try:
            points = decode_offsets(storage.read_file(path), path)
        except CorruptCheckpoint:
            is_lost = True
    else:
        is_lost = storage.exists(f"{files}/{CLEANER_OFFSETS}")
    return _Files(
        points,
        is_lost,
        cleaned,
        logs,
        is_clean,
        {path: tuple(found) for path, found in register.all().items()},
        {path: tuple(found) for path, found in register.cut().items()},
        register.is_lost,
    )


def _write(storage: Storage, durability: Durability, root: str, files: str, content: _Files) -> None:
    if content.are_points_lost:
        storage.delete(f"{files}/{RECOVERY_POINTS}")
    else:
        durability.replace(f"{files}/{RECOVERY_POINTS}", encode_offsets(content.points))
    if content.cleaned or content.are_points_lost:
        durability.replace(f"{files}/{CLEANER_OFFSETS}", encode_offsets(content.cleaned))
    else:
        storage.delete(f"{files}/{CLEANER_OFFSETS}")
    if content.is_damage_lost:
        durability.replace(f"{files}/{DAMAGED_BATCHES}", _LOST)
    elif content.ranges or content.cut:
        storage.delete(f"{files}/{DAMAGED_BATCHES}")
        register = DamageRegister()
        register.load(storage, durability, root, files)
        register.fill(content.ranges, content.cut)
    else:
        storage.delete(f"{files}/{DAMAGED_BATCHES}")
    for name in (CLEAN_SHUTDOWN, STORED_LOGS):
        storage.delete(f"{files}/{name}")
    write_stored_logs(durability, files, content.logs, all_clean=content.is_clean)


def _remove(storage: Storage, directory: str) -> None:
    if not storage.exists(directory):
        return
    for name in storage.list_directory(directory):
        for file in storage.list_directory(f"{directory}/{name}"):
            storage.delete(f"{directory}/{name}/{file}")
        storage.delete_directory(f"{directory}/{name}")
    storage.delete_directory(directory)
