"""Opens the store of producer ids that `seqgate.producer.id.store` chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.runtime.loop.clock import Clock
from gateway.runtime.topics.embedded_block_store import EmbeddedBlockStore
from gateway.runtime.topics.follow_settings import follow_producer_ids
from gateway.runtime.topics.metadata_log import MetadataLog
from log import Durability
from pid_allocator import ProducerIdAllocator

if TYPE_CHECKING:
    from pathlib import Path

    from pid_allocator.redis_store import RedisBlockStore

SEEN_FILE = "producer-id-store-seen.json"
"""File in the data directory with this gateway's last view of a shared store."""


def open_store(
    config: Config, metadata_log: MetadataLog, files: Path, durability: Durability
) -> EmbeddedBlockStore | RedisBlockStore:
    """Return the store of blocks that the settings choose; `files` is the directory of the files of this process."""
    if config.str("seqgate.producer.id.store") == "embedded":
        return EmbeddedBlockStore(metadata_log, config.int("node.id"))
    return open_redis_store(config, files, durability)


def open_redis_store(config: Config, data_dir: Path, durability: Durability) -> RedisBlockStore:
    """Return the store shared through Redis; its modules are imported only here, because most gateways need none."""
    from pid_allocator.redis_store import RedisBlockStore  # noqa: PLC0415
    from pid_allocator.seen_file import SeenFile  # noqa: PLC0415

    return RedisBlockStore(
        config.str("seqgate.redis.url"),
        key_prefix=config.str("seqgate.redis.prefix"),
        connect_timeout_ms=config.int("seqgate.redis.timeout.ms"),
        request_timeout_ms=config.int("seqgate.redis.timeout.ms"),
        last_seen=SeenFile(data_dir / SEEN_FILE, durability.replace),
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
    follow_producer_ids(config, producer_ids)
    return producer_ids
