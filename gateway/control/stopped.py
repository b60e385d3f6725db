"""The blocks of producer ids of a gateway that does not run, from its data directory.

Looking needs no lock and changes nothing: the metadata log's batches are read up to the first that is torn. Claiming
and moving take the directory's lock and go the way a gateway goes, so that they are durable before they are told.
Only the metadata log is opened; the partitions stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from gateway.control.blocks import BlockSource
from gateway.control.errors import ControlError
from gateway.control.sources import EMBEDDED
from gateway.control.stored_batches import stored_batches
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import UnknownRecordError, decode_record
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.loop.clock import SystemClock
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.topics.embedded_block_store import EmbeddedBlockStore, blocks_of
from gateway.runtime.topics.metadata_log import METADATA_LOG_CONFIG, METADATA_TOPIC_ID, MetadataLog
from gateway.runtime.topics.producer_id_source import SEEN_FILE
from log import DirectoryLocked, IncompatibleFormat, LogError, Storage, UnifiedLog
from log.directory.log_directory import LOCK
from log.environment import LogEnvironment
from log.files.versions import META, read_properties
from log.format.records import iterate_records
from pid_allocator import ProducerIdBlock, StoreUnavailable

_OR_REDIS: Final = ", or Redis with --redis"
_METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"


class _BlocksToLookAt:
    """A store that only tells its blocks."""

    def __init__(self, blocks: list[ProducerIdBlock]) -> None:
        self._blocks = blocks

    async def blocks(self) -> list[ProducerIdBlock]:
        return self._blocks

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:  # noqa: ARG002 - the port's
        raise StoreUnavailable("the data directory is open for looking only")

    async def move_next(self, producer_id: int) -> int:  # noqa: ARG002 - the port's
        raise StoreUnavailable("the data directory is open for looking only")


def look_at(data_dir: Path) -> BlockSource:
    """What the data directory holds, without the lock and without a change. Raises ControlError."""
    image = read_image(metadata_directory(data_dir, _OR_REDIS))
    _check_is_embedded(data_dir, image)
    return _source(_BlocksToLookAt(blocks_of(image)), image)


@contextlib.asynccontextmanager
async def open_to_change(data_dir: Path, node_id: int) -> AsyncIterator[BlockSource]:
    """The store of a data directory, under its lock. Raises ControlError, also when a gateway holds the lock."""
    directory = metadata_directory(data_dir, _OR_REDIS)
    storage = Storage()
    lock = str(data_dir / LOCK)
    try:
        storage.lock(lock)
    except DirectoryLocked as error:
        raise ControlError(
            f"{data_dir} is in use by a process that does not answer on its control socket: a gateway that starts or "
            "stops, or another seqgate command; try again"
        ) from error
    except OSError as error:
        raise ControlError(f"{data_dir} can't be locked: {error.strerror or error}") from error
    flusher = Flusher(asyncio.get_running_loop(), threads=1)
    flusher.start()
    log: UnifiedLog | None = None
    try:
        log = _open_log(storage, directory)
        metadata_log = MetadataLog(log, flusher, SystemClock())
        metadata_log.replay()
        _check_is_embedded(data_dir, metadata_log.image)
        yield _source(EmbeddedBlockStore(metadata_log, node_id), metadata_log.image)
        await metadata_log.close()
    except (LogError, IncompatibleFormat, OSError, UnknownRecordError) as error:
        raise ControlError(f"the metadata in {data_dir} can't be used: {error}") from error
    finally:
        flusher.stop()
        if log is not None:
            log.close(clean=True)
        storage.unlock(lock)


def _open_log(storage: Storage, directory: Path) -> UnifiedLog:
    return UnifiedLog(
        LogEnvironment(storage),
        str(directory),
        topic=METADATA_TOPIC,
        partition=0,
        topic_id=METADATA_TOPIC_ID,
        config=METADATA_LOG_CONFIG,
        now_ms=SystemClock().now_ms(),
    )


def _source(store: _BlocksToLookAt | EmbeddedBlockStore, image: MetadataImage) -> BlockSource:
    async def next_producer_id() -> int:
        return image.next_producer_id

    return BlockSource(name=EMBEDDED, store=store, next_producer_id=next_producer_id, shared=False)


def metadata_directory(data_dir: Path, otherwise: str = "") -> Path:
    """Where the metadata log lies. Raises ControlError for what is no data directory, or that of a later release.

    `otherwise` tells what else could be named.
    """
    directory = data_dir / _METADATA_DIRECTORY
    if not directory.is_dir():
        raise ControlError(
            f"{data_dir} is no data directory of a gateway; name the right one with --data-dir{otherwise}"
        )
    meta = data_dir / META
    if meta.exists():
        try:
            read_properties(Storage(), str(meta))
        except (IncompatibleFormat, OSError) as error:
            raise ControlError(f"{data_dir} can't be used: {error}") from error
    return directory


def _check_is_embedded(data_dir: Path, image: MetadataImage) -> None:
    """An id claimed here would mean nothing to a gateway that takes its ids from Redis."""
    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        raise ControlError(
            f"the gateway of {data_dir} takes its producer ids from Redis; name that with --redis, or the gateway's "
            "settings file with --config"
        )


def read_image(directory: Path) -> MetadataImage:
    """The metadata that lies in the metadata log's directory. Raises ControlError."""
    image = MetadataImage()
    try:
        for _, batch in stored_batches(directory):
            for record in iterate_records(batch):
                image.replay(decode_record(record.value or b""))
    except (LogError, OSError, UnknownRecordError) as error:
        raise ControlError(f"the metadata in {directory} can't be read: {error}") from error
    return image
