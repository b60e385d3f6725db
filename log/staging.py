"""Gives second names to the files of a data directory, so that a backup can copy them meanwhile.

    .backup/cut.json    when the data directory was as the files say; the bytes of each file that still grows
    .backup/data/       hard links to the files, under the names that they have in the data directory
    .backup/NAME.share  of a worker's share, what `cut.json` has of the whole
    .backup.lock        locked by the `seqgate backup` command for as long as it needs `.backup`

`capture` notes in one turn of the event loop where every log ends. `stage` then links the files, in any
thread. A log file is only appended to, and every other file is replaced by a rename, so a link keeps what its
file had; what was appended later lies behind the bytes of `cut.json`. The copy is therefore what a process
that is killed in the turn of `capture` leaves, and a start recovers it.

Between `capture` and the end of `stage` the caller prevents three things: a compacted segment must not take
the place of others, and `Storage.keeps_deleted` keeps old snapshots, and removed segments and partitions
under the names that they have until they are deleted. Everything else may go on.

Of a directory that several workers have, each links its share, as of a moment at which all of them stood
still. The links are then what workers that are killed in that moment leave, with `workers/` in it.
"""

from __future__ import annotations

import errno
import hashlib
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from seqgate.log.directory.log_directory import LogDirectory
from seqgate.log.directory.stored_logs import (
    CLEAN_SHUTDOWN,
    DELETE_SUFFIX,
    RECOVERY_POINTS,
    STAGING,
    STAGING_LOCK,
    STORED_LOGS,
    WORKERS,
)
from seqgate.log.durability.durability import LocalDurability
from seqgate.log.errors import DirectoryLocked, StorageFailed
from seqgate.log.files.checkpoints import (
    CLEANER_OFFSETS,
    CorruptCheckpoint,
    decode_offset,
    decode_partition_metadata,
    encode_offsets,
    read_cleaned_offsets,
)
from seqgate.log.files.disk import FileEntry, FileSystemFlush
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    NAMES_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SIDE_FILES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_name,
    parse_offset_name,
    parse_partition_directory,
)
from seqgate.log.files.page_cache import PageRange
from seqgate.log.files.sparse_disk import META, check_directory_version, read_properties
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.partition_log import PartitionLog
from seqgate.log.recovery.checking import CUT_SUFFIX
from seqgate.log.segments.damage import DAMAGED_BATCHES

# names of other modules that belong to this face
__all__ = ["META", "STAGING", "STAGING_LOCK", "FileEntry", "read_properties"]

_CUT: Final = "cut.json"
_SHARE_SUFFIX: Final = ".share"
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_MAX_TRIES: Final = 100
"""How often a partition's linking begins again after retention removed a segment; then the backup fails."""


class LogCut(NamedTuple):
    """Where a log ended at `capture`. The active segment's bytes beyond `active_size_bytes` came later. The
    topic id, the end and the active segment of a log that is not open are None where no clean stop recorded
    them, and its start is.
    """

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    recovery_point: int
    log_start_offset: int | None
    log_end_offset: int | None
    active_base_offset: int | None
    active_size_bytes: int | None
    base_offsets: tuple[int, ...] | None
    """The segments of an open log."""


class Staged(msgspec.Struct, frozen=True):
    """The result of staging: the state's time (ms), the number of partitions, and the bytes (`sizes`) of
    files that may have grown, by paths below the data directory.
    """

    taken_ms: int
    partitions: int
    sizes: dict[str, int]
    is_live: bool


def capture(directory: LogDirectory) -> list[LogCut]:
    """Return where every log of a directory ends now. Runs in the thread of the logs, and reads no file."""
    cuts = [cut_of(log) for log in directory.logs()]
    for (topic, partition), stored in directory.stored().items():
        end, base, size = (None, None, None) if stored.stop is None else stored.stop[:3]
        point = stored.recovery_point
        cuts.append(LogCut(topic, partition, stored.topic_id, point, None, end, base, size, None))
    return cuts


def cut_of(log: PartitionLog) -> LogCut:
    """Return where an open log ends now."""
    active = log.segments.active
    return LogCut(
        log.topic,
        log.partition,
        log.topic_id,
        log.recovery_point,
        log.log_start_offset,
        log.log_end_offset,
        active.base_offset,
        active.size_bytes,
        tuple(log.segments.bases),
    )


def stage(
    storage: Storage, root: str, cuts: Iterable[LogCut], taken_ms: int, other_files: Collection[str]
) -> Staged:
    """Link the files of all logs as of `capture`; return what was staged. A thread needs its own storage.
    `other_files` are other files of the data directory. Raises OSError, StorageFailed, IncompatibleFormat.
    """
    data = _begin(storage, root)
    _link_present(storage, root, data, (META,))
    partitions, sizes = _link_logs(storage, root, "", cuts, other_files)
    return _end(storage, root, Staged(taken_ms, partitions, sizes, is_live=True))


def begin_shares(storage: Storage, root: str) -> None:
    """Make the directories that workers link their shares into. Raises OSError, StorageFailed."""
    data = _begin(storage, root)
    _link_present(storage, root, data, (META,))
    storage.make_directory(f"{data}/{WORKERS}")


def stage_share(
    storage: Storage, root: str, name: str, cuts: Iterable[LogCut], other_files: Collection[str]
) -> None:
    """Link the files of a worker's logs as of `capture`, and its own in `workers/NAME`. The shares of several
    workers may be linked at once. Raises OSError, StorageFailed, IncompatibleFormat.
    """
    storage.make_directory(f"{data_path(root)}/{WORKERS}/{name}")
    share = _link_logs(storage, root, f"/{WORKERS}/{name}", cuts, other_files)
    storage.write_file(f"{root}/{STAGING}/{name}{_SHARE_SUFFIX}", msgspec.json.encode(share))


def join_shares(storage: Storage, root: str, taken_ms: int) -> Staged:
    """Return what all workers have staged, once all have. Raises OSError."""
    partitions = 0
    sizes: dict[str, int] = {}
    for name in storage.list_directory(f"{root}/{STAGING}"):
        if name.endswith(_SHARE_SUFFIX):
            content = storage.read_file(f"{root}/{STAGING}/{name}")
            count, grown = msgspec.json.decode(content, type=tuple[int, dict[str, int]])
            partitions += count
            sizes |= grown
    return _end(storage, root, Staged(taken_ms, partitions, sizes, is_live=True))


def detach(storage: Storage, root: str, name: str) -> None:
    """Replace the links in a staged partition by copies as of `capture`, which may be written to. Raises
    OSError.
    """
    staged, directory = read_staged(storage, root), f"{data_path(root)}/{name}"
    for file, present_bytes in storage.list_files(directory).items():
        path = f"{directory}/{file}"
        size_bytes = staged.sizes.get(f"{name}/{file}", present_bytes)
        copy_file(storage, path, path + TEMPORARY_SUFFIX, size_bytes, lambda _: None)
        storage.rename(path + TEMPORARY_SUFFIX, path)
    sizes = {path: size for path, size in staged.sizes.items() if not path.startswith(f"{name}/")}
    _end(storage, root, msgspec.structs.replace(staged, sizes=sizes))


def _link_logs(
    storage: Storage, root: str, files: str, cuts: Iterable[LogCut], other_files: Collection[str]
) -> tuple[int, dict[str, int]]:
    """Link the files of logs, and those that the process that has them keeps in `files` of the data
    directory; return the number of partitions, and the bytes of grown files.
    """
    data = data_path(root)
    sizes: dict[str, int] = {}
    points: dict[tuple[str, int], int] = {}
    partitions = 0
    for cut in cuts:
        name = f"{cut.topic}-{cut.partition}"
        found = _link_partition(storage, root, cut, f"{data}/{name}")
        if found is None:
            continue
        partitions += 1
        points[cut.topic, cut.partition] = cut.recovery_point
        sizes |= {f"{name}/{file}": size for file, size in found.items()}
    source, target = root + files, data + files
    cleaned = {
        key: offset
        for key, offset in read_cleaned_offsets(storage, source).items()
        if offset <= points.get(key, -1)
    }
    _link_present(storage, source, target, (STORED_LOGS, DAMAGED_BATCHES, *other_files))
    storage.write_file(f"{target}/{RECOVERY_POINTS}", encode_offsets(points))
    if cleaned:
        storage.write_file(f"{target}/{CLEANER_OFFSETS}", encode_offsets(cleaned))
    return partitions, sizes


def stage_stopped(storage: Storage, root: str, taken_ms: int, other_files: Collection[str]) -> Staged:
    """Link all files of a directory that no gateway has open, locked by the caller; return what was staged.
    Raises OSError, StorageFailed, IncompatibleFormat: the release is later.
    """
    check_directory_version(storage, root)
    data = _begin(storage, root)
    partitions = 0
    for name in storage.list_directory(root):
        if parse_partition_directory(name) is None:
            continue
        storage.make_directory(f"{data}/{name}")
        partitions += 1
        for file in storage.list_files(f"{root}/{name}"):
            if not file.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                _link(storage, f"{root}/{name}/{file}", f"{data}/{name}/{file}")
    own = (CLEAN_SHUTDOWN, STORED_LOGS, RECOVERY_POINTS, CLEANER_OFFSETS, DAMAGED_BATCHES, *other_files)
    _link_present(storage, root, data, (META, *own))
    if storage.exists(f"{root}/{WORKERS}"):
        # Several workers had the directory last, and were killed.
        storage.make_directory(f"{data}/{WORKERS}")
        for name in storage.list_directory(f"{root}/{WORKERS}"):
            files = f"{WORKERS}/{name}"
            storage.make_directory(f"{data}/{files}")
            _link_present(storage, f"{root}/{files}", f"{data}/{files}", own)
    return _end(storage, root, Staged(taken_ms, partitions, {}, is_live=False))


def data_path(root: str) -> str:
    """Return the directory with the links."""
    return f"{root}/{STAGING}/data"


def read_staged(storage: Storage, root: str) -> Staged:
    """Return what was staged in a data directory. Raises OSError."""
    return msgspec.json.decode(storage.read_file(f"{root}/{STAGING}/{_CUT}"), type=Staged)


def remove_staging(storage: Storage, root: str) -> None:
    """Delete the links and their directory, if there; the files stay. Any thread may call. Raises OSError."""
    path = f"{root}/{STAGING}"
    if storage.exists(path):
        storage.remove_tree(path)


def remove_abandoned(storage: Storage, root: str) -> None:
    """Delete the links if no command holds STAGING_LOCK, which this call holds meanwhile. Raises OSError."""
    path = f"{root}/{STAGING_LOCK}"
    with suppress(DirectoryLocked):
        storage.lock(path)
        try:
            remove_staging(storage, root)
        finally:
            storage.unlock(path)


def _begin(storage: Storage, root: str) -> str:
    remove_staging(storage, root)
    storage.make_directory(f"{root}/{STAGING}")
    data = data_path(root)
    storage.make_directory(data)
    return data


def _end(storage: Storage, root: str, staged: Staged) -> Staged:
    storage.write_file(f"{root}/{STAGING}/{_CUT}", msgspec.json.encode(staged))
    return staged


def _link_present(storage: Storage, root: str, data: str, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            _link(storage, f"{root}/{name}", f"{data}/{name}")


def _link(storage: Storage, source: str, target: str) -> None:
    """Link a file. Raises FileNotFoundError, OSError, and StorageFailed where files can't have two names."""
    try:
        storage.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StorageFailed(
            f"the file system has no hard links for {source} ({error.strerror}); stop the gateway and copy "
            "the directory, or take a snapshot of the volume"
        ) from error


def _link_partition(storage: Storage, root: str, cut: LogCut, target: str) -> dict[str, int] | None:
    """Link the files of a log; return the bytes of grown ones, or None for a log without a directory.

    Retention, or the end of the topic, may rename files between the listing and the links. Then everything of
    the log is linked again. Raises OSError, StorageFailed.
    """
    for _ in range(_MAX_TRIES):
        directory = _directory_of(storage, root, cut)
        if directory is None:
            if cut.log_end_offset:
                raise StorageFailed(
                    f"the files of {cut.topic}-{cut.partition} were removed while the backup began; try again"
                )
            return None
        storage.make_directory(target)
        try:
            files = storage.list_files(directory)
            for name, source in _wanted(files, cut).items():
                _link(storage, f"{directory}/{source}", f"{target}/{name}")
        except FileNotFoundError:
            storage.remove_tree(target)
            continue
        if _directory_of(storage, root, cut) == directory:
            _write_log_start(storage, cut, target)
            return _grown(files, cut)
        # The topic was deleted meanwhile, and some of the links may lead to files of a new topic.
        storage.remove_tree(target)
    raise StorageFailed(
        f"the files of {cut.topic}-{cut.partition} change faster than the backup can begin; try again"
    )


def _wanted(files: Mapping[str, int], cut: LogCut) -> dict[str, str]:
    """Return the names in the copy of a log's files as they were at `capture`, and their names now."""
    wanted = {name: name for name in files if _is_of_cut(name, files, cut)}
    if any(name.endswith(SWAP_SUFFIX) for name in files):
        # A swap of compaction has failed and took the log offline. Its files may be the only ones with the
        # records, and a start mends them.
        wanted |= {name: name for name in files if name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX))}
    for base_offset in cut.base_offsets or ():
        if offset_name(base_offset, LOG_SUFFIX) not in files:
            # Retention removed the segment after `capture`. A start needs it to learn of its producers.
            for suffix in SEGMENT_SUFFIXES:
                name = offset_name(base_offset, suffix)
                if name + DELETED_SUFFIX in files and (
                    suffix == LOG_SUFFIX or base_offset != cut.active_base_offset
                ):
                    wanted[name] = name + DELETED_SUFFIX
    return wanted


def _is_of_cut(name: str, files: Mapping[str, int], cut: LogCut) -> bool:
    """Return whether a log had a file at `capture`, or it tells nothing that would mislead a start."""
    parsed = parse_offset_name(name)
    if parsed is None:
        return name in SIDE_FILES or name.endswith(CUT_SUFFIX)
    offset, suffix = parsed
    active = cut.active_base_offset
    if suffix in SEGMENT_SUFFIXES:
        if active is None or offset < active:
            return True
        # Indexes of the active segment from its closing may lead beyond the cut. A start rebuilds them.
        return offset == active and (suffix == LOG_SUFFIX or _is_unchanged(files, cut))
    is_snapshot = suffix in {SNAPSHOT_SUFFIX, NAMES_SUFFIX}
    return is_snapshot and (cut.log_end_offset is None or offset <= cut.log_end_offset)


def _is_unchanged(files: Mapping[str, int], cut: LogCut) -> bool:
    """Return whether nothing was written to a log since `capture`, as far as its files tell."""
    if cut.active_base_offset is None:
        return False
    active = offset_name(cut.active_base_offset, LOG_SUFFIX)
    newest = max((name for name in files if name.endswith(LOG_SUFFIX)), default="")
    return newest == active and files[active] == cut.active_size_bytes


def _write_log_start(storage: Storage, cut: LogCut, target: str) -> None:
    """Write the log start offset as it was at `capture`, in place of a later one. Raises OSError.

    A log that was not open may have been shortened since. Its start is then at most its end.
    """
    offset = cut.log_start_offset
    path = f"{target}/{LOG_START_OFFSET}"
    if offset is None:
        if cut.log_end_offset is None or not storage.exists(path):
            return
        try:
            found = decode_offset(storage.read_file(path), path)
        except CorruptCheckpoint:
            return
        offset = min(found, cut.log_end_offset)
    storage.delete(path)
    if offset:
        storage.write_file(path, encode_offsets({(cut.topic, cut.partition): offset}))


def _grown(files: Mapping[str, int], cut: LogCut) -> dict[str, int]:
    """Return the bytes of the active segment that the log had at `capture`."""
    if cut.active_base_offset is None or cut.active_size_bytes is None:
        return {}
    name = offset_name(cut.active_base_offset, LOG_SUFFIX)
    present_bytes = files.get(name, files.get(name + DELETED_SUFFIX))
    return {} if present_bytes is None else {name: min(cut.active_size_bytes, present_bytes)}


def _directory_of(storage: Storage, root: str, cut: LogCut) -> str | None:
    """Return a log's directory, also after its topic's deletion; None without one. Raises OSError."""
    path = f"{root}/{cut.topic}-{cut.partition}"
    if cut.topic_id is None:
        return path if storage.exists(path) else None
    if _has_id(storage, path, cut.topic_id, otherwise=storage.exists(path)):
        return path
    start = f"{cut.topic}-{cut.partition}."
    for name in storage.list_directory(root):
        other = f"{root}/{name}"
        is_deleted = name.startswith(start) and name.endswith(DELETE_SUFFIX)
        if is_deleted and _has_id(storage, other, cut.topic_id, otherwise=False):
            return other
    return None


def _has_id(storage: Storage, directory: str, topic_id: uuid.UUID, *, otherwise: bool) -> bool:
    """Return whether a directory is of a topic's log; `otherwise` if its metadata is damaged."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        return decode_partition_metadata(storage.read_file(path), path) == topic_id
    except FileNotFoundError:
        return False
    except CorruptCheckpoint:
        return otherwise


# Copies files with their checksums, persists the copies, and deletes them. The copies leave the page cache.

CHUNK_BYTES: Final = 1 << 20
"""Bytes that are read, added to the checksum and written at once."""

SEPARATE_FILES: Final = 500
"""Files that are flushed one by one. A flush of the file system waits for other programs' bytes, too."""

Spend = Callable[[int], None]
#: Called after each chunk with its bytes; may wait, to bound the rate.


class ReadContent(NamedTuple):
    """The bytes that were read: their number, and their SHA-256 in hexadecimal."""

    size_bytes: int
    sha256: str


def copy_file(storage: Storage, source: str, target: str, size_bytes: int, spend: Spend) -> ReadContent:
    """Copy the first `size_bytes` of a file, or all of it, not durably; return what was copied. The copy gets
    the modification time of the source, which tells a start a segment's age. Raises OSError.
    """
    file = DataFile(target)
    storage.create(file)
    try:
        content = _read(
            storage, source, size_bytes, spend, lambda chunk, at: storage.write_all(file, chunk, at)
        )
    finally:
        storage.descriptors.release(file)
    storage.set_modified_ms(target, storage.modified_ms(source))
    return content


def digest(storage: Storage, path: str, size_bytes: int, spend: Spend) -> ReadContent:
    """Read the first `size_bytes` of a file, or all of a shorter one. Raises OSError."""
    return _read(storage, path, size_bytes, spend, lambda _chunk, _at: None)


def _read(
    storage: Storage, path: str, size_bytes: int, spend: Spend, take: Callable[[bytes, int], object]
) -> ReadContent:
    checksum = hashlib.sha256()
    position = 0
    while position < size_bytes:
        chunk = storage.read_by_name(path, min(CHUNK_BYTES, size_bytes - position), position)
        if not chunk:
            break
        checksum.update(chunk)
        take(chunk, position)
        position += len(chunk)
        spend(len(chunk))
    return ReadContent(position, checksum.hexdigest())


class Flush:
    """Makes new files below a directory durable: many with one flush of the file system, if it has that."""

    def __init__(self, storage: Storage, directory: str, files: int) -> None:
        """Begin before any of at most `files` files is written, to learn of all errors. Raises OSError."""
        self._storage = storage
        self._common: FileSystemFlush | None = None
        if files > SEPARATE_FILES:
            self._common = LocalDurability(storage).begin_common_flush(directory)

    def run(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Persist the files and the directories' names, then drop the files' pages. Raises OSError."""
        if self._common is None:
            LocalDurability(self._storage).sync(paths=files, directories=directories)
        else:
            self._common.run()
        for path in files:
            self._storage.drop_cached(PageRange(path, 0, 0))
