"""Gateways with a disk each, whose metadata names all of them from the start, and leaders that never change.

They test the clients, the network and the faults of a cluster without the gateways' own membership.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.simulation.clients.topics import TopicPlan
from tests.simulation.cluster.gateways import Gateways
from tests.simulation.cluster.plan import PORT
from tests.simulation.node import Node

TOPIC_RESOURCE: Final = 2
IDS_OF_A_GATEWAY: Final = 1_000_000
OFFSETS: Final = TopicPlan("__consumer_offsets", 3, {"cleanup.policy": "compact"})


class FixedLeaders:
    """Commits the same records to each gateway, and spreads the partitions of the topics over them."""

    def __init__(self, topics: Sequence[TopicPlan]) -> None:
        self._topics = [*topics, OFFSETS]

    async def prepare(self, gateways: Gateways) -> None:
        """Write the records, and start the gateways again, so that each takes producer ids of its own."""
        records = self._records(gateways)
        for number, node in enumerate(gateways.nodes):
            ids = ProducerIdsRecord(number + 1, 1, (number + 1) * IDS_OF_A_GATEWAY)
            await node.begin(_commit(node, [*records, ids]))
            await gateways.restart(node)

    def _records(self, gateways: Gateways) -> list[Any]:
        ids = range(1, len(gateways.nodes) + 1)
        records: list[Any] = [
            RegisterBrokerRecord(
                node_id, uuid.UUID(int=node_id), 1, (BrokerEndpoint("PLAINTEXT", node.name, PORT),)
            )
            for node_id, node in zip(ids, gateways.nodes, strict=True)
        ]
        for topic in self._topics:
            topic_id = uuid.uuid5(uuid.NAMESPACE_OID, topic.name)
            records.append(TopicRecord(topic.name, topic_id))
            records += [
                ConfigRecord(TOPIC_RESOURCE, topic.name, name, value) for name, value in topic.configs.items()
            ]
            for index in range(topic.partitions):
                leader = ids[index % len(ids)]
                records.append(PartitionRecord(index, topic_id, (leader,), (leader,), leader, 0))
        return records


async def _commit(node: Node, records: list[Any]) -> None:
    assert node.gateway is not None
    await node.gateway.services.topics.metadata_log.commit(lambda _: Decision(records, None))
