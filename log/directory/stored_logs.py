"""Records the facts about partition logs at a clean stop, so that the next start need not open the logs.

    .kafka_cleanshutdown  written by a stop that closed every log cleanly; a running gateway has no such file
    stored-logs           the facts of the last clean stop, for a start after a crash: a log whose files still
                          have the same sizes was not written to since

Both files are JSON: `version`, and `logs`: by partition directory [topic id, log end offset, base offset of
the newest segment, its bytes, bytes of all segments, largest timestamp of the oldest segment, whether a
transaction is open], and `checksum`, because the next start trusts these facts without a check.
Source: Kafka's `CleanShutdownFileHandler`, which only records that the stop was clean.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from seqgate.log.config import LogConfig
from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files.checkpoints import (
    CLEANER_OFFSETS,
    CorruptCheckpoint,
    check_checkpoint,
    decode_partition_metadata,
)
from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_name
from seqgate.log.files.sparse_disk import META
from seqgate.log.files.storage import DurableFiles, Storage
from seqgate.log.recovery.load import CleanStop
from seqgate.log.segments.damage import DAMAGED_BATCHES

_logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
STORED_LOGS: Final = "stored-logs"
STORED_LOGS_VERSION: Final = 2

_Row = tuple[str, int, int, int, int, int, bool]
_RowOfVersion1 = tuple[int, int, int, int]


class _Version(msgspec.Struct):
    version: int


class _Content(msgspec.Struct):
    version: int
    logs: dict[str, _Row]
    checksum: int | None = None
    """The CRC-32 of the encoded `logs`. Earlier releases wrote none, and ignore it."""


class _ContentOfVersion1(msgspec.Struct):
    logs: dict[str, _RowOfVersion1]


class StoredLog(NamedTuple):
    """A partition log that is not open. `topic_id` and `stop` are None if no clean stop recorded the log.
    `is_recovered`: a recovery of this process made the stop, and wrote anew what it could.
    """

    topic_id: uuid.UUID | None
    stop: CleanStop | None
    recovery_point: int
    is_recovered: bool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments; 0 when unknown."""
        return 0 if self.stop is None else self.stop.size_bytes

    def may_outlive_retention(self, config: LogConfig, now_ms: int) -> bool:
        """Return whether retention may have a segment to remove, so that the log should be opened."""
        stop = self.stop
        if stop is None:
            return True
        if not stop.size_bytes:
            return False
        if 0 <= config.retention_bytes < stop.size_bytes:
            return True
        return config.retention_ms >= 0 and now_ms - stop.oldest_timestamp > config.retention_ms


def read_stored_logs(storage: Storage, durable: DurableFiles, root: str) -> tuple[dict[str, StoredLog], bool]:
    """Return the stored logs of the last clean stop, by partition directory, and whether the last stop was
    clean. Removes the file of the clean stop, so that only the next clean stop vouches for the logs again.
    Raises IncompatibleFormat for a file of a later release, OSError.
    """
    marker, kept = f"{root}/{CLEAN_SHUTDOWN}", f"{root}/{STORED_LOGS}"
    found = _read(storage, marker)
    if found is not None:
        storage.rename(marker, kept)
        durable.sync(directories=[root])
        return found, True
    storage.delete(marker)
    # Without a topic id, a log of the same name and size may belong to a newer topic.
    found = _read(storage, kept) or {}
    return {name: stored for name, stored in found.items() if stored.topic_id is not None}, False


def peek_stored_logs(storage: Storage, root: str) -> dict[str, StoredLog]:
    """Return the clean stop's logs by directory, changing no file. Raises IncompatibleFormat, OSError."""
    return _read(storage, f"{root}/{CLEAN_SHUTDOWN}") or _read(storage, f"{root}/{STORED_LOGS}") or {}


def stopped_logs(storage: Storage, root: str) -> tuple[dict[str, StoredLog], bool]:
    """Return the stored logs, and whether the stop was clean. Raises IncompatibleFormat, OSError."""
    is_clean = _read(storage, f"{root}/{CLEAN_SHUTDOWN}") is not None
    return peek_stored_logs(storage, root), is_clean


def check_stored_logs(storage: Storage, root: str) -> None:
    """Check that this release reads both files, changing neither. Raises IncompatibleFormat, OSError."""
    for name in (CLEAN_SHUTDOWN, STORED_LOGS):
        path = f"{root}/{name}"
        if storage.exists(path):
            content = storage.read_file(path)
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                _check_version(content, path)


def _check_version(content: bytes, path: str) -> int:
    version = msgspec.json.decode(content, type=_Version).version
    if version > STORED_LOGS_VERSION:
        raise IncompatibleFormat(
            f"{path} has version {version}; this program reads versions 1 to {STORED_LOGS_VERSION}."
        )
    return version


def _read(storage: Storage, path: str) -> dict[str, StoredLog] | None:
    if not storage.exists(path):
        return None
    content = storage.read_file(path)
    try:
        if _check_version(content, path) == 1:
            first = msgspec.json.decode(content, type=_ContentOfVersion1).logs
            return {name: StoredLog(None, CleanStop(*row), row[0]) for name, row in first.items()}
        decoded = msgspec.json.decode(content, type=_Content)
        rows = decoded.logs
        if decoded.checksum not in {None, crc32(msgspec.json.encode(rows))}:
            _logger.warning("%s is damaged, so every log is checked", path)
            return None
        ids = {text: uuid.UUID(text) for text in {row[0] for row in rows.values()}}
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        _logger.warning("%s can't be read, so every log is checked: %s", path, error)
        return None
    return {name: StoredLog(ids[row[0]], CleanStop(*row[1:]), row[1]) for name, row in rows.items()}


def write_stored_logs(
    durable: DurableFiles, root: str, logs: Mapping[str, StoredLog], *, all_clean: bool
) -> None:
    """Write the facts of each cleanly closed log, as `.kafka_cleanshutdown` if all are. Raises OSError."""
    rows = {
        name: (stored.topic_id.hex, *stored.stop)
        for name, stored in sorted(logs.items())
        if stored.stop is not None and stored.topic_id is not None
    }
    name = CLEAN_SHUTDOWN if all_clean else STORED_LOGS
    durable.replace(
        f"{root}/{name}",
        msgspec.json.encode(_Content(STORED_LOGS_VERSION, rows, crc32(msgspec.json.encode(rows)))),
    )


def forget_stops(storage: Storage, durable: DurableFiles, root: str, names: Collection[str]) -> None:
    """Drop the facts about these logs, which are to change: the next start checks them. Raises OSError,
    IncompatibleFormat.
    """
    stored, was_clean = read_stored_logs(storage, durable, root)
    others = {name: log for name, log in stored.items() if name not in names}
    write_stored_logs(durable, root, others, all_clean=was_clean)


def is_unchanged(storage: Storage, directory: str, stored: StoredLog) -> bool:
    """Return whether a partition's topic id and file sizes are those of the clean stop. Raises OSError."""
    stop = stored.stop
    if stop is None:
        return False
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        if decode_partition_metadata(storage.read_file(path), path) != stored.topic_id:
            return False
    except (CorruptCheckpoint, IncompatibleFormat, FileNotFoundError):
        return False
    sizes = {name: size for name, size in storage.list_files(directory).items() if name.endswith(LOG_SUFFIX)}
    active = offset_name(stop.active_base_offset, LOG_SUFFIX)
    return (
        sizes.get(active) == stop.active_size_bytes
        and max(sizes) == active
        and sum(sizes.values()) == stop.size_bytes
    )


# The files in a data directory that belong to no partition, and the check of their versions.

LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
BUCKET_SESSION: Final = "bucket-session"
"""Says whose cache the directory is, where the records are durable in a bucket."""
RESIDENCY: Final = "residency"
"""Says which blocks of segment files are absent, because only a bucket has them. A clean stop writes it."""
RESTORED_MANIFESTS: Final = "restored-manifests"
"""Has the manifests of the bucket by which the segment files go. A clean stop writes it, as RESIDENCY."""
PRODUCER_CLIENTS: Final = "producer-clients"
"""Says who the clients of producers are, and has the newest verdicts. The gateway writes it, and a loss costs
only these."""
WORKERS: Final = "workers"
"""The directory with each worker's files while several have the data directory; see `seqgate.log.sharing`."""
STAGING: Final = ".backup"
"""The directory with second names of all files that a backup copies; see `seqgate.log.staging`."""
STAGING_LOCK: Final = ".backup.lock"
"""The file that a `seqgate backup` command locks while it needs STAGING."""
KNOWN_NAMES: Final = frozenset(
    {
        WORKERS,
        f"{WORKERS}.new",
        f"{WORKERS}.old",
        LOCK,
        META,
        CLEAN_SHUTDOWN,
        STORED_LOGS,
        RECOVERY_POINTS,
        CLEANER_OFFSETS,
        DAMAGED_BATCHES,
        BUCKET_SESSION,
        RESIDENCY,
        RESTORED_MANIFESTS,
        PRODUCER_CLIENTS,
        STAGING,
        STAGING_LOCK,
    }
)
"""Files of the data directory itself. A sweep reports any other file as a leak."""


def check_versions(storage: Storage, root: str) -> None:
    """Check that this release reads the files, before it changes any. Raises IncompatibleFormat, OSError."""
    check_stored_logs(storage, root)
    for name in (RECOVERY_POINTS, CLEANER_OFFSETS):
        path = f"{root}/{name}"
        if storage.exists(path):
            check_checkpoint(storage.read_file(path), path)


def check_is_whole(storage: Storage, root: str) -> None:
    """Check that no worker has files of its own in the directory. Raises IncompatibleFormat."""
    if storage.exists(f"{root}/{WORKERS}"):
        raise IncompatibleFormat(
            f"several workers had {root} last and were killed; start a gateway on it, and stop the gateway, "
            "first"
        )


DELETE_SUFFIX: Final = "-delete"
"""The suffix of the directory of a partition that waits for its deletion."""
STRAY_SUFFIX: Final = "-stray"
"""The suffix of the directory of a partition that no log uses, so that a person can inspect it."""
_LONGEST_NAME_KEPT: Final = 180


def rename_away(storage: Storage, directory: str, suffix: str) -> str:
    """Rename a partition's directory uniquely, with this suffix; return the new path. Raises OSError."""
    # Kafka's form is TOPIC-PARTITION.UUID-delete; long topic names are cut to keep the name short.
    # The parent is empty, without a slash, where the data directory is the working directory.
    parent, slash, name = directory.rpartition("/")
    target = f"{parent}{slash}{name[:_LONGEST_NAME_KEPT]}.{uuid.uuid4().hex}{suffix}"
    storage.rename(directory, target)
    return target
