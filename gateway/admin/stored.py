"""The content of a data directory that no gateway has open, read without a lock and without a change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage
from seqgate.gateway.metadata.records import UnknownRecordError, decode_record
from seqgate.gateway.runtime.loop.clock import SystemClock
from seqgate.gateway.runtime.partitions.flusher import Flusher
from seqgate.gateway.runtime.topics.metadata_log import (
    METADATA_LOG_CONFIG,
    METADATA_TOPIC_ID,
    LocalJournal,
    MetadataLog,
    open_metadata_log,
)
from seqgate.log import (
    DirectoryLocked,
    IncompatibleFormat,
    LocalDurability,
    LogDirectory,
    LogEnvironment,
    LogError,
    PartitionLog,
    Storage,
)
from seqgate.log.format.records import iterate_records
from seqgate.log.rebuilding import BUCKET_SESSION
from seqgate.log.sharing import ensure_topic_id
from seqgate.log.stopped import (
    LOCK,
    StoredLog,
    check_directory_version,
    durable_ends,
    read_stored_logs,
    stored_batches,
    write_stored_logs,
)

_METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"


def existing_metadata_directory(data_dir: Path, otherwise: str = "") -> Path:
    """Return the directory of the metadata log.

    Raises ControlError when `data_dir` is no data directory, or one of a later release. `otherwise` is
    appended to the error; it says how to name another store.
    """
    directory = data_dir / _METADATA_DIRECTORY
    if not directory.is_dir():
        raise ControlError(
            f"{data_dir} is no data directory of a gateway; name the right one with --data-dir{otherwise}"
        )
    try:
        check_directory_version(Storage(), str(data_dir))
    except (IncompatibleFormat, OSError) as error:
        raise ControlError(f"{data_dir} can't be used: {in_words(error)}") from error
    return directory


def check_is_no_cache(
    storage: Storage,
    data_dir: Path,
    instead: str = "which would never get the change; start the gateway with --cluster, and run the command "
    "while it runs",
) -> None:
    """Check that the data directory itself has its records. Raises ControlError for the cache of a bucket;
    `instead` ends the sentence.
    """
    if storage.exists(str(data_dir / BUCKET_SESSION)):
        raise ControlError(f"{data_dir} is a cache of a bucket, {instead}")


def whole_state(data_dir: Path, otherwise: str = "") -> Path:
    """Return the directory of the metadata log where the data directory has all state. Raises ControlError,
    as `existing_metadata_directory`, and for the cache of a bucket, which may lack what the cluster has.
    """
    directory = existing_metadata_directory(data_dir, otherwise)
    check_is_no_cache(Storage(), data_dir, "which has the state; ask a running gateway")
    return directory


@contextlib.contextmanager
def locked(storage: Storage, data_dir: Path) -> Iterator[None]:
    """Hold the lock of a data directory. Raises ControlError: it is taken, or this is a bucket's cache."""
    lock = str(data_dir / LOCK)
    try:
        storage.lock(lock)
    except DirectoryLocked as error:
        raise ControlError(
            f"{data_dir} is in use by a process that does not answer on its control socket: a gateway that "
            "starts or stops, or another seqgate command; try again"
        ) from error
    except OSError as error:
        raise ControlError(f"{data_dir} can't be locked: {error.strerror or error}") from error
    try:
        check_is_no_cache(storage, data_dir)
        yield
    finally:
        storage.unlock(lock)


def read_image(directory: Path) -> MetadataImage:
    """Replay the metadata log in its directory. Raises ControlError."""
    image = MetadataImage()
    try:
        for _, batch in stored_batches(Storage(), directory):
            for record in iterate_records(batch):
                image.replay(decode_record(record.value or b""))
    except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
        raise ControlError(f"the metadata in {directory} can't be read: {in_words(error)}") from error
    return image


def partition_directories(data_dir: Path, topic: str) -> list[Path]:
    """Return the directories of a topic's partitions, without those being deleted. Raises OSError."""
    return sorted(
        path
        for path in data_dir.glob(f"{topic}-*")
        if path.is_dir() and path.name.removeprefix(f"{topic}-").isdecimal()
    )


# The metadata log of a data directory that no gateway has open, opened for a change under the directory's
# lock.


@contextlib.asynccontextmanager
async def open_metadata(data_dir: Path, otherwise: str = "") -> AsyncIterator[MetadataLog]:
    """Yield the metadata log of a data directory, replayed, under the directory's lock. A directory that was
    cleanly stopped still is afterwards: the next start checks nothing.

    Raises ControlError, also when a gateway holds the lock. `otherwise` is as in
    `existing_metadata_directory`.
    """
    directory = existing_metadata_directory(data_dir, otherwise)
    storage = Storage()
    with locked(storage, data_dir):
        durability, root = LocalDurability(storage), str(data_dir)
        flusher = Flusher(asyncio.get_running_loop(), durability=durability, threads=1)
        flusher.start()
        log: PartitionLog | None = None
        stored: dict[str, StoredLog] = {}
        was_clean = False
        try:
            ensure_topic_id(storage, durability, str(directory), METADATA_TOPIC_ID)
            stored, was_clean = read_stored_logs(storage, durability, root)
            log = _open_log(storage, directory, stored.get(directory.name) if was_clean else None)
            metadata_log = MetadataLog(LocalJournal(log, flusher, SystemClock()))
            metadata_log.replay()
            yield metadata_log
            await metadata_log.close()
        except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
            raise ControlError(f"the metadata in {data_dir} can't be used: {in_words(error)}") from error
        finally:
            flusher.stop()
            stop = None if log is None else log.close(clean=True)
            if was_clean and stop is not None:
                stored[directory.name] = StoredLog(METADATA_TOPIC_ID, stop, stop.log_end_offset)
                # Without the file the next start checks the logs.
                with contextlib.suppress(OSError):
                    write_stored_logs(durability, root, stored, all_clean=True)


def _open_log(storage: Storage, directory: Path, stored: StoredLog | None) -> PartitionLog:
    return PartitionLog(
        LogEnvironment(storage),
        str(directory),
        topic=METADATA_TOPIC,
        partition=0,
        topic_id=METADATA_TOPIC_ID,
        config=METADATA_LOG_CONFIG,
        now_ms=SystemClock().now_ms(),
        recovery_point=durable_ends(storage, str(directory.parent)).get(directory.name, 0),
        clean_stop=None if stored is None else stored.stop,
    )


def create_metadata(data_dir: Path, node_id: int) -> bool:
    """Create the data directory with an empty metadata log, or what a crash has left of that undone; return
    whether anything was missing. Raises ControlError.
    """
    storage = Storage()
    if storage.exists(str(data_dir / _METADATA_DIRECTORY)):
        return False
    check_is_no_cache(storage, data_dir)
    try:
        directory = LogDirectory.open(data_dir, storage, node_id=node_id, now_ms=SystemClock().now_ms)
        try:
            open_metadata_log(directory)
        finally:
            directory.close(clean=True)
    except (LogError, IncompatibleFormat, DirectoryLocked, OSError) as error:
        raise ControlError(f"the data directory {data_dir} can't be created: {in_words(error)}") from error
    return True
