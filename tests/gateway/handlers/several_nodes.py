"""Nodes whose metadata logs follow one list of records, and that ask each other without sockets."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from seqgate.gateway.cluster.wal.sessions import CLUSTER_VERSION
from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import BrokerEndpoint, MetadataRecord, RegisterBrokerRecord
from seqgate.gateway.peer.peers import PeerUnavailable, client_id_of
from seqgate.gateway.protocol.messages import decode_answer, encode_request
from seqgate.gateway.server.dispatcher import Dispatcher
from tests.gateway.handlers.support import FakePeer, Node, open_node

Judge = Callable[[int, int, Any], bool]
"""Says whether a request (from, to, request) suffers a fault."""


def never(_from: int, _to: int, _request: Any) -> bool:
    return False


class Network:
    """Carries requests between nodes. Faults lose a request, or only its answer, or hold an answer back."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.lose: Judge = never
        self.lose_answer: Judge = never
        self.held: asyncio.Event | None = None
        """While set to an event, requests wait for it before they are carried out."""
        self.asked: Counter[tuple[int, int, str]] = Counter()
        """The requests by sender, receiver and type."""
        self.arrived = asyncio.Condition()
        self._dispatchers: dict[int, Dispatcher] = {}

    def join(self, node_id: int, node: Node) -> None:
        self.nodes[node_id] = node
        self._dispatchers[node_id] = Dispatcher(APIS, node.services)

        async def ask(to: int, request: Any, *, timeout_s: float = 30.0) -> Any:
            return await self._carry(node_id, to, request)

        vars(node.services.node.peers)["ask"] = ask

    async def _carry(self, sender: int, to: int, request: Any) -> Any:
        async with self.arrived:
            self.asked[sender, to, type(request).__name__.removesuffix("Request")] += 1
            self.arrived.notify_all()
        if self.held is not None:
            await self.held.wait()
        if to not in self.nodes or self.lose(sender, to, request):
            raise PeerUnavailable(f"broker {to} is away")
        frame = encode_request(request, 1, client_id_of(sender).encode())
        begun = self._dispatchers[to].begin(memoryview(frame)[4:], FakePeer())
        answer = begun.answer if isinstance(begun, Deferred) else begun
        if isinstance(begun, Deferred) and answer is None:
            answered = asyncio.Event()
            begun.on_resolved = answered.set
            await answered.wait()
            answer = begun.answer
        assert isinstance(answer, bytes)
        if self.lose_answer(sender, to, request):
            raise PeerUnavailable(f"the answer of broker {to} is lost")
        return decode_answer(request, answer[4:])

    async def got(self, sender: int, to: int, name: str, count: int = 1) -> None:
        """Wait until so many requests were sent."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.asked[sender, to, name] >= count)


class Cluster:
    """The nodes by id, and the records that all of them have."""

    def __init__(self) -> None:
        self.network = Network()
        self.nodes = self.network.nodes

    async def commit(self, *records: MetadataRecord) -> None:
        """Bring the records to all nodes, one after the other."""
        for node in self.nodes.values():
            await node.services.topics.metadata_log.commit(lambda _: Decision(records, None))


def registration(node_id: int) -> RegisterBrokerRecord:
    place = BrokerEndpoint("PLAINTEXT", f"n{node_id}.example", 9092)
    return RegisterBrokerRecord(node_id, uuid.UUID(int=node_id), 1, (place,), cluster_version=CLUSTER_VERSION)


@asynccontextmanager
async def cluster_of(path: Path, node_ids: Sequence[int], *settings: str) -> AsyncIterator[Cluster]:
    """Open nodes that know each other."""
    cluster = Cluster()
    async with AsyncExitStack() as opened:
        for node_id in node_ids:
            node = await opened.enter_async_context(
                open_node(path / str(node_id), f"node.id={node_id}", *settings)
            )
            cluster.network.join(node_id, node)
        await cluster.commit(*map(registration, node_ids))
        yield cluster
