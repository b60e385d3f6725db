"""Two gateways without sockets that are one cluster: they follow the same metadata, and ask each other in the
process.

Each gateway has a metadata log of its own; a change of either is committed to the other in the background.
`settled` waits for that. Change the metadata at one gateway at a time.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import MetadataRecord, TopicRecord
from tests.gateway.handlers.several_nodes import Network
from tests.gateway.handlers.support import Node, open_node
from tests.gateway.handlers.two_brokers import OTHER, THIS, broker, partition

PATIENCE_S = 120.0
GROUPS_ID = uuid.UUID("1d9c7319-dc40-44ae-a1b6-b2b2b584141a")
SHARES_ID = uuid.UUID("2d9c7319-dc40-44ae-a1b6-b2b2b584141a")


class Cluster:
    """The two gateways: `here` is node 1, `there` is node 2."""

    def __init__(self, here: Node, there: Node) -> None:
        self.here = here
        self.there = there
        self.nodes = {THIS: here, OTHER: there}
        self.network = Network()
        self.silent: set[int] = set()
        """The gateways that do not answer."""
        self.network.lose = lambda _, to, __: to in self.silent
        self._tasks: set[asyncio.Task[None]] = set()
        self._mirrored: set[int] = set()
        for node_id, node in self.nodes.items():
            self.network.join(node_id, node)

    @property
    def asked(self) -> list[tuple[int, str]]:
        """The node id and the name of each request between the gateways, sorted; without the news that the
        metadata has changed.
        """
        asked = self.network.asked.elements()
        return sorted((to, name) for (_, to, name) in asked if name != "BrokerHeartbeat")

    async def commit(self, *records: MetadataRecord) -> None:
        """Change the metadata of both gateways."""
        await self.here.services.topics.metadata_log.commit(lambda _: Decision(records, None))
        await self.settled()

    def follow_each_other(self) -> None:
        """Begin to commit the changes of either gateway to the other."""
        for node, other in ((self.here, self.there), (self.there, self.here)):
            node.services.topics.metadata_log.add_listener(self._mirror_to(other))

    def _mirror_to(self, other: Node) -> Any:
        async def mirror(records: Sequence[MetadataRecord]) -> None:
            if id(records) in self._mirrored:
                self._mirrored.discard(id(records))
                return
            self._mirrored.add(id(records))
            log = other.services.topics.metadata_log
            task = asyncio.create_task(log.commit(lambda _: Decision(records, None)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return mirror

    async def settled(self) -> None:
        """Wait until both gateways have the same metadata."""
        async with asyncio.timeout(PATIENCE_S):
            while self._tasks:
                await asyncio.gather(*self._tasks)

    async def store_state(self, groups: int = OTHER, shares: int = OTHER) -> None:
        """Let these gateways coordinate all groups, and store the state of all share groups."""
        await self.commit(
            TopicRecord("__consumer_offsets", GROUPS_ID),
            partition(GROUPS_ID, 0, groups),
            TopicRecord("__share_group_state", SHARES_ID),
            partition(SHARES_ID, 0, shares),
        )


@asynccontextmanager
async def open_cluster(path: Path, *overrides: str) -> AsyncIterator[Cluster]:
    """Open two gateways beside each other, without topics."""
    async with (
        open_node(path / "1", "node.id=1", *overrides) as here,
        open_node(path / "2", "node.id=2", *overrides) as there,
    ):
        cluster = Cluster(here, there)
        cluster.follow_each_other()
        await cluster.commit(broker(THIS), broker(OTHER))
        try:
            yield cluster
        finally:
            await cluster.settled()
