"""The links of a client to several gateways: one connection to each, the leaders of partitions, and the
coordinators.

As Kafka's clients, it learns leaders from Metadata, and never takes an older leader epoch for a newer one. It
asks again after an error that says that the partition has moved, and after the end of a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import NO_NODE, Connection, Coordinator, Disconnected, Link, Target
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.events_of_clusters import LedBy
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

METADATA_VERSION, FIND_VERSION = 12, 4
BACKOFF_S = 0.1
ANOTHER = 0.5
"""The chance that a client asks another gateway for the leaders than the one that it asked before."""


class ClusterLink(Link):
    def __init__(self, surroundings: Surroundings, client_id: str, random: Random) -> None:
        super().__init__(surroundings, client_id, random)
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The newest leader epoch of each partition that the client knows."""
        self._coordinators: dict[Coordinator, int] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed_s = -BACKOFF_S
        self._preparing: asyncio.Task[None] | None = None

    def _address(self) -> tuple[str, int]:
        assert self._surroundings.cluster is not None
        return self._random.choice(self._surroundings.cluster.addresses)

    async def connect(self, to: Target = None) -> Connection:
        """Connect for ever, in the case of a coordinator also to another gateway than at first.

        Raises `Disconnected` if a partition's leader is not known, or can't be reached.
        """
        if to is None:
            return await super().connect()
        if isinstance(to, int):
            return await self._connect_to(to)
        if isinstance(to, TopicPartition):
            if to not in self._leaders:
                await self._refresh()
            if to not in self._leaders:
                await self._back_off()
                raise Disconnected
            return await self._connect_to(self._leaders[to])
        while True:
            try:
                return await self._connect_to(await self._find(to))
            except Disconnected:
                self._coordinators.pop(to, None)

    async def call(
        self, api: str, version: int, request: Plain, timeout_s: float | None = None, *, to: Target = None
    ) -> Any:
        try:
            answer = await super().call(api, version, request, timeout_s, to=to)
        except Disconnected:
            if isinstance(to, Coordinator):
                self._coordinators.pop(to, None)
            elif isinstance(to, TopicPartition):
                self._leaders.pop(to, None)
            elif isinstance(to, int):
                self._forget_node(to)
            raise
        if api == "find_coordinator":
            self._note_coordinators(request["key_type"], answer)
        return answer

    # --- connections

    async def _connect_to(self, node_id: int) -> Connection:
        """Return the connection to a gateway, opened if it is not open. Raises `Disconnected`."""
        known = self._connections.get(node_id)
        if known is not None and not known.closed:
            return known
        try:
            connection = await self._open(self._addresses[node_id])
        except (OSError, TimeoutError):
            self._forget_node(node_id)
            await self._back_off()
            raise Disconnected from None
        opened = self._connections.get(node_id)
        if opened is not None and not opened.closed:
            connection.close()
            return opened
        connection.node_id = node_id
        self._connections[node_id] = connection
        return connection

    def _forget_node(self, node_id: int) -> None:
        """Ask for the leaders again of what a gateway led that does not answer."""
        self._leaders = {place: leader for place, leader in self._leaders.items() if leader != node_id}

    async def _back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * self._random.uniform(0.5, 1.5))

    def close(self) -> None:
        super().close()
        if self._preparing is not None:
            self._preparing.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- leaders

    async def _refresh(self) -> None:
        """Ask any gateway for the leaders, unless an answer has just come."""
        async with self._refreshing:
            if self._surroundings.now() - self._refreshed_s < BACKOFF_S / 2:
                return
            if self.connection is not None and self._random.random() < ANOTHER:
                super().close()
            names = [{"topic_id": None, "name": topic} for topic in self._surroundings.topics]
            request = {"topics": names, "allow_auto_topic_creation": False}
            try:
                answer = await super().call("metadata", METADATA_VERSION, request)
            except Disconnected:
                return
            self._refreshed_s = self._surroundings.now()
            self._take(answer)

    def _take(self, answer: Any) -> None:
        for broker in answer.brokers:
            self._addresses[broker.node_id] = broker.host, broker.port
        for topic in answer.topics:
            for row in topic.partitions:
                place = TopicPartition(topic.name, row.partition_index)
                self._take_leader(place, row.leader_id, row.leader_epoch)

    def _take_leader(self, place: TopicPartition, leader: int, epoch: int) -> None:
        if epoch < self._epochs.get(place, -1):
            return
        self._epochs[place] = epoch
        if leader in self._addresses:
            self._leaders[place] = leader
        else:
            self._leaders.pop(place, None)

    def moved(self, place: TopicPartition, row: Any = None) -> None:
        self._leaders.pop(place, None)
        told = getattr(row, "current_leader", None)
        if told is not None and told.leader_id != NO_NODE:
            self._take_leader(place, told.leader_id, told.leader_epoch)

    def led(self, to: Target, place: TopicPartition, leader_epoch: int, asked_at_ms: int) -> None:
        if isinstance(to, int) and leader_epoch >= 0:
            at_ms = self._surroundings.at_ms()
            self._surroundings.history.add(LedBy(at_ms, to, place, leader_epoch, asked_at_ms))

    def epoch_of(self, place: TopicPartition) -> int:
        return self._epochs.get(place, -1)

    def another(self, node_id: Target, random: Random) -> Target:
        others = sorted(self._addresses.keys() - {node_id})
        return random.choice(others) if others else node_id

    def is_reached(self, node_id: Target) -> bool:
        assert self._surroundings.cluster is not None
        assert isinstance(node_id, int)
        return self._surroundings.cluster.node_id_at(self._addresses[node_id]) == node_id

    async def by_leader(self, places: Collection[TopicPartition]) -> dict[Target, list[TopicPartition]]:
        if not all(place in self._leaders for place in places):
            await self._refresh()
        found: dict[Target, list[TopicPartition]] = {}
        for place in places:
            if place in self._leaders:
                found.setdefault(self._leaders[place], []).append(place)
        if not found:
            await self._back_off()
        return found

    def lanes(
        self, places: Collection[TopicPartition], woken: Callable[[], None]
    ) -> list[tuple[Connection, Collection[TopicPartition]]]:
        found: dict[int, list[TopicPartition]] = {}
        is_whole = True
        for place in places:
            leader = self._leaders.get(place, NO_NODE)
            connection = self._connections.get(leader)
            if connection is not None and not connection.closed:
                found.setdefault(leader, []).append(place)
            else:
                is_whole = False
                if connection is not None:
                    # the gateway may have lost what it led
                    del self._connections[leader]
                    self._forget_node(leader)
        if not is_whole and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.create_task(self._prepare(list(places), woken))
        return [(self._connections[leader], led) for leader, led in found.items()]

    async def _prepare(self, places: list[TopicPartition], woken: Callable[[], None]) -> None:
        """Open the connections to the leaders of the partitions, as far as they are known and can be reached."""
        for leader in await self.by_leader(places):
            assert isinstance(leader, int)
            known = self._connections.get(leader)
            if known is not None and not known.closed:
                continue
            try:
                await self._connect_to(leader)
            except Disconnected:
                continue
            woken()
        await self._back_off()

    # --- coordinators

    async def _find(self, coordinator: Coordinator) -> int:
        """Return the node id of a coordinator; ask for it until a gateway knows it."""
        request = {"key_type": coordinator.key_type, "coordinator_keys": [coordinator.key]}
        while coordinator not in self._coordinators:
            try:
                await self.call("find_coordinator", FIND_VERSION, request)
            except Disconnected:
                continue
            if coordinator not in self._coordinators:
                await self._back_off()
        return self._coordinators[coordinator]

    def _note_coordinators(self, key_type: int, answer: Any) -> None:
        for row in answer.coordinators:
            coordinator = Coordinator(key_type, row.key)
            if row.error_code is ErrorCode.none:
                self._addresses[row.node_id] = row.host, row.port
                self._coordinators[coordinator] = row.node_id
            else:
                self._coordinators.pop(coordinator, None)
