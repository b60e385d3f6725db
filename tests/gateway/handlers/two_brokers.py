"""A node beside another broker, and requests for partitions that either of them leads."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kio.schema.errors import ErrorCode

from seqgate.gateway.cluster.wal.sessions import CLUSTER_VERSION
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import Plain

TOPIC_ID = uuid.UUID("5d9c7319-dc40-44ae-a1b6-b2b2b584141a")
OFFSETS_ID = uuid.UUID("6d9c7319-dc40-44ae-a1b6-b2b2b584141a")
THIS, OTHER = 1, 2
PATIENCE_S = 120.0
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
FENCED_EPOCH = int(ErrorCode.fenced_leader_epoch)
ADDRESSES = {THIS: ("gateway.example", 9092), OTHER: ("other.example", 19092)}


def broker(node_id: int, epoch: int = 1) -> RegisterBrokerRecord:
    host, port = ADDRESSES[node_id]
    return RegisterBrokerRecord(
        node_id,
        uuid.UUID(int=node_id),
        epoch,
        (BrokerEndpoint("PLAINTEXT", host, port),),
        rack=f"r{node_id}",
        cluster_version=CLUSTER_VERSION,
    )


def partition(topic_id: uuid.UUID, index: int, leader: int, leader_epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(index, topic_id, (leader,), (leader,), leader, leader_epoch)


async def commit(node: Node, *records: MetadataRecord) -> None:
    await node.services.topics.metadata_log.commit(lambda _: Decision(records, None))


@asynccontextmanager
async def node_of_two(path: Path) -> AsyncIterator[Node]:
    """Open node 1 of two; topic `t` has partition 0 here, and partition 1 in epoch 7 on node 2."""
    async with open_node(path) as node:
        await commit(
            node,
            broker(THIS),
            broker(OTHER),
            TopicRecord("t", TOPIC_ID),
            partition(TOPIC_ID, 0, THIS, 3),
            partition(TOPIC_ID, 1, OTHER, 7),
        )
        yield node


async def metadata(node: Node, version: int = 12) -> Plain:
    topics = [{"name": "t", "topic_id": None}]
    return await Asking(node).ask("metadata", version, topics=topics, allow_auto_topic_creation=False)


async def produce(node: Node, version: int, index: int) -> tuple[Plain, Plain]:
    """Return the answer to one record for the partition, and its row."""
    topic = {"topic_id": str(TOPIC_ID)} if version >= 13 else {"name": "t"}
    batch = Batch(records(1), base_timestamp=NOW_MS).encode()
    topic_data = [{**topic, "partition_data": [{"index": index, "records": batch}]}]
    answer = await Asking(node).ask(
        "produce", version, transactional_id=None, acks=-1, timeout=1000, topic_data=topic_data
    )
    return answer, answer["responses"][0]["partition_responses"][0]


async def fetch(node: Node, version: int, index: int, epoch: int = -1) -> tuple[Plain, Plain]:
    """Return the answer to a fetch of the partition from its start, and its row."""
    topic = {"topic_id": str(TOPIC_ID)} if version >= 13 else {"topic": "t"}
    partition = {
        "partition": index,
        "current_leader_epoch": epoch,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
        **({"last_fetched_epoch": -1} if version >= 12 else {}),
    }
    fields: Plain = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    if version < 15:
        fields["replica_id"] = -1
    answer = await Asking(node).ask("fetch", version, **fields)
    return answer, answer["responses"][0]["partitions"][0]
