"""The metadata log of a data directory that no gateway has open, opened for a change under the directory's lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.admin.request import ControlError
from gateway.admin.stored_data import locked, metadata_directory
from gateway.admin.system_errors import in_words
from gateway.metadata.records import UnknownRecordError
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.loop.clock import SystemClock
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.topics.metadata_journal import LocalJournal
from gateway.runtime.topics.metadata_log import (
    METADATA_LOG_CONFIG,
    METADATA_TOPIC_ID,
    MetadataLog,
    open_metadata_log,
)
from log import (
    DirectoryLocked,
    IncompatibleFormat,
    LocalDurability,
    LogDirectory,
    LogEnvironment,
    LogError,
    PartitionLog,
    Storage,
)
from log.stopped import durable_ends


@contextlib.asynccontextmanager
async def open_metadata(data_dir: Path, otherwise: str = "") -> AsyncIterator[MetadataLog]:
    """Yield the metadata log of a data directory, replayed, under the directory's lock.

    Raises ControlError, also when a gateway holds the lock. `otherwise` is as in `metadata_directory`.
    """
    directory = metadata_directory(data_dir, otherwise)
    storage = Storage()
    with locked(storage, data_dir):
        flusher = Flusher(asyncio.get_running_loop(), durability=LocalDurability(storage), threads=1)
        flusher.start()
        log: PartitionLog | None = None
        try:
            log = _open_log(storage, directory)
            metadata_log = MetadataLog(LocalJournal(log, flusher, SystemClock()))
            metadata_log.replay()
            yield metadata_log
            await metadata_log.close()
        except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
            raise ControlError(f"the metadata in {data_dir} can't be used: {in_words(error)}") from error
        finally:
            flusher.stop()
            if log is not None:
                log.close(clean=True)


def _open_log(storage: Storage, directory: Path) -> PartitionLog:
    return PartitionLog(
        LogEnvironment(storage),
        str(directory),
        topic=METADATA_TOPIC,
        partition=0,
        topic_id=METADATA_TOPIC_ID,
        config=METADATA_LOG_CONFIG,
        now_ms=SystemClock().now_ms(),
        recovery_point=durable_ends(storage, str(directory.parent)).get(directory.name, 0),
    )


def create_metadata(data_dir: Path, node_id: int) -> bool:
    """Create the data directory with an empty metadata log if it is missing or empty; return whether it was.

    Raises ControlError.
    """
    try:
        if data_dir.exists() and any(data_dir.iterdir()):
            return False
        directory = LogDirectory.open(data_dir, Storage(), node_id=node_id, now_ms=SystemClock().now_ms)
        try:
            open_metadata_log(directory)
        finally:
            directory.close(clean=True)
    except (LogError, IncompatibleFormat, DirectoryLocked, OSError) as error:
        raise ControlError(f"the data directory {data_dir} can't be created: {in_words(error)}") from error
    return True
