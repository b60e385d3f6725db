"""Requests of share group members for one topic, as the dispatcher hands them over."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.sharing import share_fetch, share_group
from seqgate.gateway.metadata.image import GROUP_RESOURCE
from seqgate.gateway.protocol.messages import build
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import NOW_MS, Node

TOPIC = "flights"
GROUP = "readers"
SETTINGS = ("share.coordinator.state.topic.num.partitions=1", "offsets.topic.num.partitions=1")


async def begin(node: Node, configs: dict[str, str | None] | None = None) -> uuid.UUID:
    """Create a topic and the topics that share groups need; return the topic's id."""
    await node.services.coordinators.groups.ensure_topic()
    await node.services.coordinators.shares.ensure_topic()
    await create(node, TOPIC, configs=configs)
    await alter(node, GROUP_RESOURCE, GROUP, {"share.auto.offset.reset": "earliest"})
    await beat(node, "z", 0, TOPIC)
    return node.services.partitions.registry.by_name[TOPIC].topic_id


def key_of(node: Node) -> SharePartitionKey:
    return SharePartitionKey(GROUP, node.services.partitions.registry.by_name[TOPIC].topic_id, 0)


async def beat(node: Node, member_id: str, member_epoch: int, *names: str, group_id: str = GROUP) -> Any:
    def make(_: Any) -> dict[str, Any]:
        asked = {"group_id": group_id, "member_id": member_id, "member_epoch": member_epoch, "rack_id": None}
        return {**asked, "subscribed_topic_names": names or None}

    return await node.ask(share_group.SHARE_GROUP_HEARTBEAT_API, 1, make)


async def write(node: Node, count: int, timestamp: int = NOW_MS) -> None:
    """Append one batch, durably."""
    await append(node, build_batch([NewRecord(b"v", timestamp=timestamp)] * count))


async def append(node: Node, batch: bytes) -> None:
    """Append a batch at the clock's time and wait until it is durable."""
    partition = node.services.partitions.registry.get(TOPIC, 0)
    assert partition is not None
    info = partition.append(batch, node.clock.now_ms())
    assert await partition.persisted(info.last_offset)


async def fetch(
    node: Node, topic_id: uuid.UUID, member_id: str = "a", session_epoch: int = 0, **fields: Any
) -> Any:
    def make(module: Any) -> dict[str, Any]:
        partition = build(module.FetchPartition, partition_index=0, acknowledgement_batches=())
        topic = build(module.FetchTopic, topic_id=topic_id, partitions=(partition,))
        asked = {"group_id": GROUP, "max_wait": timedelta(0), "min_bytes": 1, "max_bytes": 1 << 20}
        asked |= {"max_records": 500, "batch_size": 500, "share_acquire_mode": 0, "is_renew_ack": False}
        asked |= {"member_id": member_id, "share_session_epoch": session_epoch, "topics": (topic,)}
        return {**asked, "forgotten_topics_data": (), **fields}

    return await node.ask(share_fetch.SHARE_FETCH_API, 2, make)


async def acknowledge(
    node: Node,
    topic_id: uuid.UUID,
    first: int,
    last: int,
    kind: int,
    *,
    is_renew_ack: bool = False,
    session_epoch: int = 1,
) -> Any:
    def make(module: Any) -> dict[str, Any]:
        said = build(
            module.AcknowledgementBatch, first_offset=first, last_offset=last, acknowledge_types=(kind,)
        )
        partition = build(module.AcknowledgePartition, partition_index=0, acknowledgement_batches=(said,))
        topic = build(module.AcknowledgeTopic, topic_id=topic_id, partitions=(partition,))
        asked = {
            "group_id": GROUP,
            "member_id": "a",
            "share_session_epoch": session_epoch,
            "is_renew_ack": is_renew_ack,
        }
        return {**asked, "topics": (topic,)}

    return await node.ask(share_fetch.SHARE_ACKNOWLEDGE_API, 2, make)


def acquired(response: Any) -> list[tuple[int, int]]:
    return [
        (one.first_offset, one.last_offset)
        for topic in response.responses
        for partition in topic.partitions
        for one in partition.acquired_records
    ]
