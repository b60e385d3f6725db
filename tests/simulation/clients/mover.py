"""Moves partitions between gateways as Kafka's tools do: AlterPartitionReassignments, or an election of the
preferred leader.
"""

from __future__ import annotations

from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import METADATA_VERSION
from tests.simulation.history import TopicPartition

REASSIGN_VERSION, ELECT_VERSION = 0, 2
PREFERRED = 0
TIMEOUT_MS = 5_000
REASSIGNED = 0.7
"""The share of moves that name another leader; the others let the preferred one lead again."""
EXPECTED = frozenset(
    {
        ErrorCode.none,
        ErrorCode.election_not_needed,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.reassignment_in_progress,
        ErrorCode.no_reassignment_in_progress,
    }
)
"""Answers that are right where gateways come and go between two requests."""


class Mover:
    """Moves partitions. `pause_s` is the mean time between two moves."""

    def __init__(self, surroundings: Surroundings, name: str, random: Random, pause_s: float) -> None:
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._pause_s = pause_s
        self._link = link_of(surroundings, name, random)

    async def run(self) -> None:
        while not self._surroundings.ending:
            await self._surroundings.pause(self._random, self._pause_s)
            place = self._random.choice([*self._surroundings.partitions(), *self._surroundings.moved_too])
            try:
                if self._random.random() < REASSIGNED:
                    await self._reassign(place)
                await self._elect(place)
            except Disconnected:
                continue
        self._link.close()

    async def _reassign(self, place: TopicPartition) -> None:
        request = {"topics": [{"topic_id": None, "name": place.topic}], "allow_auto_topic_creation": False}
        metadata = await self._link.call("metadata", METADATA_VERSION, request)
        brokers = [broker.node_id for broker in metadata.brokers]
        rows = [row for row in metadata.topics[0].partitions if row.partition_index == place.partition]
        if not brokers or not rows:
            return
        first = self._random.choice(brokers)
        others = [node_id for node_id in rows[0].replica_nodes if node_id != first]
        replicas = [first, *others][: len(rows[0].replica_nodes)]
        answer = await self._link.call(
            "alter_partition_reassignments",
            REASSIGN_VERSION,
            {
                "timeout": TIMEOUT_MS,
                "topics": [
                    {
                        "name": place.topic,
                        "partitions": [{"partition_index": place.partition, "replicas": replicas}],
                    }
                ],
            },
        )
        self._note("AlterPartitionReassignments", answer.responses[0].partitions[0].error_code)

    async def _elect(self, place: TopicPartition) -> None:
        answer = await self._link.call(
            "elect_leaders",
            ELECT_VERSION,
            {
                "election_type": PREFERRED,
                "topic_partitions": [{"topic": place.topic, "partitions": [place.partition]}],
                "timeout": TIMEOUT_MS,
            },
        )
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                self._note("ElectLeaders", row.error_code)

    def _note(self, api: str, error: Any) -> None:
        if error not in EXPECTED and error not in self._surroundings.faults:
            self._surroundings.unexpected(self._name, f"{api}: {error.name}")
