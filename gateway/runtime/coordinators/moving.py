"""Moves a group's offsets forward at the gateway that coordinates the group, on behalf of the leader of the partitions.

The leader sends OffsetCommit with a member id that no member has. The coordinator answers it for a client with CLUSTER_ACTION on the cluster: it
moves each offset forward as `move_forward` does, never back. A place that did not move has UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.shard import Target
from gateway.coordinator.places import TopicPartition
from gateway.peer.asking import AsksPeers
from gateway.peer.errors import PeerUnavailable
from gateway.protocol.messages import build, request_module, request_type
from gateway.runtime.operations.operations import Unavailable

MOVER: Final = "seqgate:backlog"
"""The member id of such a commit."""
NOT_MOVED: Final = ErrorCode.unstable_offset_commit
ASK_TIMEOUT_S: Final = 5.0
"""Time for the answer of a coordinator; a group that did not move is moved at a later measurement."""
_OFFSET_COMMIT: Final = 8
_VERSION: Final = 8
_NO_GENERATION: Final = 2**31 - 1
"""A generation that no group has: a coordinator that does not know the member id refuses the commit."""


async def move_there(
    peers: AsksPeers, leader: int, group_id: str, targets: Sequence[Target]
) -> set[TopicPartition]:
    """Move the group's offsets at its coordinator; return the places that moved. Raises Unavailable."""
    module = request_module(_OFFSET_COMMIT, _VERSION)
    by_topic: dict[str, list[Any]] = {}
    for place, offset, leader_epoch in targets:
        row = build(
            module.OffsetCommitRequestPartition,
            partition_index=place[1],
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=None,
        )
        by_topic.setdefault(place[0], []).append(row)
    request = build(
        request_type(_OFFSET_COMMIT, _VERSION),
        group_id=group_id,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id=MOVER,
        group_instance_id=None,
        topics=tuple(
            build(module.OffsetCommitRequestTopic, name=name, partitions=tuple(rows))
            for name, rows in by_topic.items()
        ),
    )
    try:
        answer = await peers.ask(leader, request, timeout_s=ASK_TIMEOUT_S)
    except PeerUnavailable as error:
        raise Unavailable from error
    moved = set()
    for topic in answer.topics:
        for row in topic.partitions:
            code = ErrorCode(int(row.error_code))
            if code is ErrorCode.none:
                moved.add((topic.name, row.partition_index))
            elif code is not NOT_MOVED:
                raise Unavailable(code)
    return moved
