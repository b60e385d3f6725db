"""Opens the store of producer ids that `seqgate.producer.id.store` chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.producer_ids import claim_block, move_next
from seqgate.gateway.metadata.records import ProducerIdsRecord
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.log import LocalDurability, LogError, Storage
from seqgate.pid_allocator import (
    LastSeenPort,
    NextIdBehind,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from pathlib import Path

    from seqgate.pid_allocator.redis_store import RedisBlockStore


SEEN_FILE = "producer-id-store-seen.json"
"""File in the data directory with this gateway's last view of a shared store; no bucket has the file."""


def open_store(
    config: Config, metadata_log: MetadataLog, files: Path, storage: Storage
) -> EmbeddedBlockStore | RedisBlockStore:
    """Return the store of blocks of the settings; `files` is the directory of this process's files."""
    if config.str("seqgate.producer.id.store") == "embedded":
        return EmbeddedBlockStore(metadata_log, config.int("node.id"))
    from seqgate.pid_allocator.seen_file import SeenFile  # noqa: PLC0415 - only with Redis

    return open_redis_store(config, SeenFile(files / SEEN_FILE, LocalDurability(storage).replace))


def open_redis_store(config: Config, last_seen: LastSeenPort | None) -> RedisBlockStore:
    """Return the store shared through Redis. Only this imports its module: most gateways need none."""
    from seqgate.pid_allocator.redis_store import RedisBlockStore  # noqa: PLC0415

    return RedisBlockStore(
        config.str("seqgate.redis.url"),
        key_prefix=config.str("seqgate.redis.prefix"),
        timeout_ms=config.int("seqgate.redis.timeout.ms"),
        last_seen=last_seen,
    )


def open_producer_ids(
    config: Config, store: EmbeddedBlockStore | RedisBlockStore, clock: Clock
) -> ProducerIdAllocator:
    """Return the allocator that hands out the ids of the store's blocks."""
    producer_ids = ProducerIdAllocator(
        store,
        owner=f"node-{config.int('node.id')}",
        clock=clock.now_ms,
        usage=None if isinstance(store, EmbeddedBlockStore) else store,
    )

    def take_sizes() -> None:
        producer_ids.block_size = config.int("seqgate.producer.id.block.size")
        producer_ids.prefetch_at = config.double("seqgate.producer.id.prefetch.ratio")

    config.follow(take_sizes)
    return producer_ids


class EmbeddedBlockStore:
    """A BlockStore of `pid_allocator` over the metadata log; each record names `node_id`. The gateways of a
    cluster share that log, so their blocks never overlap.
    """

    def __init__(self, metadata_log: MetadataLog, node_id: int) -> None:
        self._metadata_log = metadata_log
        self._node_id = node_id

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Claim the next block. Raises StoreUnavailable, ProducerIdsExhausted, ValueError (size below 1)."""
        if size < 1:
            raise ValueError(f"the size of a block of producer ids must be at least 1, not {size}")
        try:
            record = await self._metadata_log.commit(
                lambda image: claim_block(
                    image, size=size, owner=owner, now_ms=now_ms, broker_id=self._node_id
                )
            )
        except ValueError as error:
            raise ProducerIdsExhausted(str(error)) from error
        except LogError as error:
            raise StoreUnavailable(f"the metadata log can't be written: {error}") from error
        return block_of(record)

    async def blocks(self) -> list[ProducerIdBlock]:
        return blocks_of(self._metadata_log.image)

    async def next_producer_id(self) -> int:
        """Return the lowest id at which the next block can begin."""
        return self._metadata_log.image.next_producer_id

    async def move_next(self, producer_id: int) -> int:
        """Skip the ids below `producer_id`; return the old next id. Raises NextIdBehind, StoreUnavailable."""
        try:
            return await self._metadata_log.commit(
                lambda image: move_next(image, next_producer_id=producer_id, broker_id=self._node_id)
            )
        except ValueError as error:
            raise NextIdBehind(str(error)) from error
        except LogError as error:
            raise StoreUnavailable(f"the metadata log can't be written: {error}") from error


def block_of(record: ProducerIdsRecord) -> ProducerIdBlock:
    return ProducerIdBlock(
        first_producer_id=record.first_producer_id,
        last_producer_id=record.next_producer_id - 1,
        owner=record.owner,
        claimed_at_ms=record.claimed_at_ms,
    )


def blocks_of(image: MetadataImage) -> list[ProducerIdBlock]:
    """Return all blocks of an image in the order of their claims; works without a running gateway, too."""
    return [block_of(record) for record in image.producer_id_blocks]
