"""Asks other gateways for the sequence ids of producer names in the partitions that they lead.

The question is OffsetFetch for the name's group, with a member id that limits the answer to the partitions that the other gateway leads: so
no question is passed on. An answer that lacks a partition would let the application send records again that are stored, so the client gets an
error instead, and asks again. Source: none; Kafka has no producer names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.name_groups import NAME_GROUP_PREFIX
from gateway.coordinator.group.records import CommittedOffset
from gateway.coordinator.places import TopicPartition
from gateway.peer.asking import AsksPeers
from gateway.peer.errors import PeerUnavailable
from gateway.protocol.messages import build, request_module, request_type
from gateway.runtime.operations.operations import Unavailable

LED_HERE: Final = "seqgate:led-here"
"""The member id of a request that asks only for partitions that the answering gateway leads."""
_OFFSET_FETCH: Final = 9
_VERSION: Final = 9
_NO_TIME: Final = -1

Pending = tuple[CommittedOffset, bool]
"""The offset of a partition, and whether an open transaction may change it: then the offset is not known."""


async def ask_leaders(
    peers: AsksPeers,
    name: bytes,
    by_leader: Mapping[int, Iterable[TopicPartition]],
    *,
    require_stable: bool,
    timeout_s: float,
) -> dict[TopicPartition, Pending]:
    """Return the name's offsets at these leaders, in the given partitions. Raises Unavailable.

    The partitions are named one by one, so that a gateway that has not heard of its leadership yet refuses the question.
    """
    asked = (
        _ask(peers, leader, _request(name, places, require_stable=require_stable), timeout_s)
        for leader, places in by_leader.items()
    )
    found: dict[TopicPartition, Pending] = {}
    for some in await asyncio.gather(*asked):
        found |= some
    return found


async def _ask(
    peers: AsksPeers, leader: int, request: Any, timeout_s: float
) -> dict[TopicPartition, Pending]:
    try:
        answer = await peers.ask(leader, request, timeout_s=timeout_s)
    except PeerUnavailable as error:
        raise Unavailable from error
    group = answer.groups[0]
    if int(group.error_code):
        raise Unavailable(ErrorCode.coordinator_load_in_progress)
    found: dict[TopicPartition, Pending] = {}
    for topic in group.topics:
        for row in topic.partitions:
            code = int(row.error_code)
            if code not in {0, int(ErrorCode.unstable_offset_commit)}:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            if code or row.committed_offset >= 0:
                offset = CommittedOffset(row.committed_offset, -1, row.metadata or "", _NO_TIME)
                found[topic.name, row.partition_index] = offset, bool(code)
    return found


def _request(name: bytes, places: Iterable[TopicPartition], *, require_stable: bool) -> Any:
    module = request_module(_OFFSET_FETCH, _VERSION)
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    topics = tuple(
        build(module.OffsetFetchRequestTopics, name=topic, partition_indexes=tuple(indexes))
        for topic, indexes in by_topic.items()
    )
    group = build(
        module.OffsetFetchRequestGroup,
        group_id=NAME_GROUP_PREFIX + name.decode("utf-8", "surrogatepass"),
        member_id=LED_HERE,
        member_epoch=-1,
        topics=topics,
    )
    return build(request_type(_OFFSET_FETCH, _VERSION), groups=(group,), require_stable=require_stable)
