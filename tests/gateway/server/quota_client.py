"""A client of a node with client quotas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.security.client_quotas import (
    QuotaAlteration,
    QuotaChange,
    alter_client_quotas,
    entity_of,
)
from seqgate.gateway.server.dispatcher import Dispatcher
from tests.gateway.handlers.support import NOW_MS, FakePeer, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import Plain, decode, encode

ANYBODY = (("user", None),)


@dataclass
class Client:
    """Sends requests to the dispatcher of a node, as a connection does."""

    node: Node
    dispatcher: Dispatcher
    peer: FakePeer

    async def begin(self, api: str, version: int, **request: Any) -> Any:
        """Begin a request and return the frame of its answer as bytes; None for no answer."""
        begun = self.dispatcher.begin(memoryview(encode(api, version, request)), self.peer)
        if isinstance(begun, Deferred):
            if begun.answer is None:
                done = asyncio.Event()
                begun.on_resolved = done.set
                await done.wait()
            assert not begun.failed
            begun = begun.answer
        if begun is None or isinstance(begun, bytes):
            return begun
        return b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in begun)

    async def ask(self, api: str, version: int, **request: Any) -> Plain:
        """Return the decoded answer."""
        return decode(api, version, (await self.begin(api, version, **request))[4:]).fields

    async def produce(self, size: int = 1000, *, acks: int = -1, version: int = 9) -> Plain | None:
        batch = Batch(records(1, size), base_timestamp=NOW_MS).encode()
        topic = {"name": "orders", "partition_data": [{"index": 0, "records": batch}]}
        frame = await self.begin(
            "produce", version, acks=acks, timeout=1000, topic_data=[topic], transactional_id=None
        )
        return None if frame is None else decode("produce", version, frame[4:]).fields

    async def fetch(self, *, session_id: int = 0, session_epoch: int = -1, version: int = 12) -> Plain:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        topics = [{"topic": "orders", "partitions": [partition]}] if session_epoch <= 0 else []
        return await self.ask(
            "fetch",
            version,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="",
        )

    async def create(self, name: str, *, version: int = 7, partitions: int = 1, **more: Any) -> Plain:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        return await self.ask("create_topics", version, topics=[topic], timeout=5000, **more)


async def limit(
    node: Node, key: str, value: float | None, entity: tuple[tuple[str, str | None], ...] = ANYBODY
) -> None:
    alteration = QuotaAlteration(entity_of(entity), [QuotaChange(key, value)])
    await node.services.topics.metadata_log.commit(
        lambda image: alter_client_quotas(image, [alteration], max_entities=9, validate_only=False)
    )


@asynccontextmanager
async def serving(path: Path, *settings: str) -> AsyncIterator[Client]:
    async with open_node(path, *settings) as node:
        client = Client(node, Dispatcher(APIS, node.services), node.peer)
        await client.create("orders")
        yield client
