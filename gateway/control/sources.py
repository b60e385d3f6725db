"""Where the blocks of producer ids are, for a running gateway and for an operator with the Redis address."""

from __future__ import annotations

from pathlib import Path

from gateway.config import Config
from gateway.control.blocks import BlockSource
from gateway.runtime.services import Services
from gateway.runtime.topics.embedded_block_store import EmbeddedBlockStore
from gateway.runtime.topics.producer_id_source import SEEN_FILE
from pid_allocator import LastSeen, LastSeenPort

EMBEDDED = "embedded"
REDIS = "redis"


class _SeenByTheGateway:
    """What a gateway remembers of the shared store, for an operator's claim: looked at and never changed."""

    def __init__(self, path: Path) -> None:
        from pid_allocator.seen_file import SeenFile  # noqa: PLC0415 - only gateways with Redis need it

        self._file = SeenFile(path)

    async def load(self) -> LastSeen | None:
        """Return what the gateway saved last."""
        return await self._file.load()

    async def save(self, last_seen: LastSeen) -> None:
        """Leave the gateway's memory to the gateway, whose own claims may be under way."""


def gateway_source(services: Services) -> BlockSource:
    """The blocks of a running gateway."""
    config = services.config
    owner = f"node-{services.node_id}"
    allocator = services.producer_ids
    current = allocator.state().current
    if config.str("seqgate.producer.id.store") == EMBEDDED:
        image = services.metadata_log.image

        async def next_producer_id() -> int:
            return image.next_producer_id

        return BlockSource(
            name=EMBEDDED,
            store=EmbeddedBlockStore(services.metadata_log, services.node_id),
            next_producer_id=next_producer_id,
            shared=False,
            allocator=allocator,
            owner=owner,
            first_of_this_run=None if current is None else current.first_producer_id,
        )
    source = redis_source(config, last_seen=_SeenByTheGateway(Path(config.str("log.dirs")) / SEEN_FILE))
    source.allocator = allocator
    source.owner = owner
    return source


def redis_source(
    config: Config,
    *,
    url: str | None = None,
    prefix: str | None = None,
    last_seen: LastSeenPort | None = None,
) -> BlockSource:
    """The blocks in Redis, of all gateways that share it.

    Address and prefix are those of the settings unless given. Raises ValueError for an address that can't be read.
    """
    from pid_allocator.redis_store import RedisBlockStore  # noqa: PLC0415 - most gateways do without Redis

    timeout_ms = config.int("seqgate.redis.timeout.ms")
    store = RedisBlockStore(
        url or config.str("seqgate.redis.url"),
        key_prefix=config.str("seqgate.redis.prefix") if prefix is None else prefix,
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
