"""The stores of producer-id blocks: that of a running gateway, and Redis."""

from __future__ import annotations

from pathlib import Path

from gateway.admin.pids.blocks import BlockSource
from gateway.admin.pids.messages import EMBEDDED, REDIS
from gateway.config import Config
from gateway.runtime.services import Services
from gateway.runtime.topics.embedded_block_store import EmbeddedBlockStore
from gateway.runtime.topics.producer_id_source import SEEN_FILE
from pid_allocator import LastSeen, LastSeenPort


class _SeenByTheGateway:
    """The highest id that a gateway has seen in the shared store, which an operator's claim reads and never changes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> LastSeen | None:
        """Return the highest id that the gateway has saved, or None if it has saved none."""
        from pid_allocator.seen_file import load_seen  # noqa: PLC0415 - only gateways with Redis need it

        return await load_seen(self._path)

    async def save(self, last_seen: LastSeen) -> None:
        """Save nothing: only the gateway writes the file, and the gateway may be claiming a block now."""


def gateway_source(services: Services) -> BlockSource:
    """Return the store of a running gateway."""
    config = services.node.config
    owner = f"node-{services.node.node_id}"
    allocator = services.coordinators.producer_ids
    current = allocator.state().current
    if config.str("seqgate.producer.id.store") == EMBEDDED:
        image = services.topics.metadata_log.image

        async def next_producer_id() -> int:
            return image.next_producer_id

        return BlockSource(
            name=EMBEDDED,
            store=EmbeddedBlockStore(services.topics.metadata_log, services.node.node_id),
            next_producer_id=next_producer_id,
            shared=False,
            others_run=lambda: len(services.node.brokers.live_ids) > 1,
            allocator=allocator,
            owner=owner,
            first_of_this_run=None if current is None else current.first_producer_id,
        )
    source = redis_source(config, last_seen=_SeenByTheGateway(Path(config.str("log.dirs")) / SEEN_FILE))
    source.allocator = allocator
    source.owner = owner
    return source


def redis_source(config: Config, *, last_seen: LastSeenPort | None = None) -> BlockSource:
    """Return the store in the Redis of the settings. Raises ValueError when the address is malformed."""
    from pid_allocator.redis_store import RedisBlockStore  # noqa: PLC0415 - most gateways do without Redis

    timeout_ms = config.int("seqgate.redis.timeout.ms")
    store = RedisBlockStore(
        config.str("seqgate.redis.url"),
        key_prefix=config.str("seqgate.redis.prefix"),
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        last_seen=last_seen,
    )
    return BlockSource(
        name=REDIS,
        store=store,
        next_producer_id=store.next_producer_id,
        shared=True,
        usage=store,
        close=store.close,
    )
