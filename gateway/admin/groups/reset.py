"""Resets the committed offsets of a group without members."""

from __future__ import annotations

import asyncio
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.coordinators import as_control_error
from seqgate.gateway.admin.groups.live import Committed, durable_shard, not_empty
from seqgate.gateway.admin.groups.messages import (
    OffsetChange,
    OffsetReset,
    ResetOffsetsRequest,
    TopicSelection,
)
from seqgate.gateway.admin.groups.new_offset import PartitionOffsets, offset_change
from seqgate.gateway.admin.named_topics import check_led_here, find_topic
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.coordinator.group.any_group import find_group
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import Services
from seqgate.log import LogError

MAX_PARTITIONS: Final = 10_000
"""Partitions of one reset; a reset of more is refused."""
_REFUSED: Final = {
    ErrorCode.invalid_commit_offset_size: "so many offsets don't fit into one batch; name fewer topics",
    ErrorCode.group_max_size_reached: "the gateway keeps no more groups (seqgate.group.max)",
    ErrorCode.unknown_member_id: "a member joined it meanwhile",
}


async def reset_offsets(gateway: LiveGateway, request: ResetOffsetsRequest) -> OffsetReset:
    """Find the new offsets of the group, and commit all of them at once if `execute` is set. Raises
    ControlError.
    """
    services = gateway.services
    shard = await durable_shard(services, request.group)
    group = None if shard is None else find_group(shard, request.group)
    if isinstance(group, ShareGroup):
        raise ControlError(
            f"{request.group} is a share group, which commits no offsets; "
            f"kafka-share-groups.sh --group {request.group} --reset-offsets sets where it continues"
        )
    if group is not None and not group.is_empty:
        raise ControlError(not_empty(group))
    if request.target == "timestamp" and request.value < 0:
        raise ControlError(f"timestamp must be 0 or higher, not {request.value}")
    committed: Committed = {} if shard is None else dict(shard.offsets.of(request.group))
    changes = []
    for place in _places(services.partitions.registry, request, committed):
        check_led_here(services, *place)
        changes.append(_change(services.partitions.registry, request, place, committed.get(place)))
        # Let requests in between: each partition may read files of its log.
        await asyncio.sleep(0)
    if request.execute:
        await _commit(services, request.group, changes)
    return OffsetReset(request.group, None if group is None else group.state_text, request.execute, changes)


def _places(
    partitions: Partitions, request: ResetOffsetsRequest, committed: Committed
) -> list[TopicPartition]:
    """Return the partitions to reset, in order."""
    if request.topics is None:
        if not committed:
            raise ControlError(f"group {request.group} has no committed offsets; name topics with --topic")
        places = {place for place in committed if partitions.has(*place)}
    else:
        places = {place for selection in request.topics for place in _selected(partitions, selection)}
    if not places:
        raise ControlError("the request names no partition")
    if len(places) > MAX_PARTITIONS:
        raise ControlError(
            f"{len(places)} partitions are more than the {MAX_PARTITIONS} that one reset takes; name fewer "
            "topics"
        )
    return sorted(places)


def _selected(partitions: Partitions, selection: TopicSelection) -> list[TopicPartition]:
    topic = find_topic(partitions, selection.topic, *(selection.partitions or ()))
    indexes = range(topic.count) if selection.partitions is None else selection.partitions
    return [(topic.name, index) for index in indexes]


def _change(
    partitions: Partitions,
    request: ResetOffsetsRequest,
    place: TopicPartition,
    committed: CommittedOffset | None,
) -> OffsetChange:
    name = f"{place[0]}-{place[1]}"
    partition = partitions.get(*place)
    if partition is None:
        raise ControlError(f"partition {name} was deleted during the reset; repeat the command without it")
    log = partition.log
    if log.offline:
        raise ControlError(
            f"partition {name} is offline; bring it back first (seqgate reopen {place[0]} {place[1]})"
        )
    committed_offset = None if committed is None else committed.offset
    known = PartitionOffsets(
        log.log_start_offset, log.high_watermark, committed_offset, _at_timestamp(partition, request)
    )
    return offset_change(request, place, known)


def _at_timestamp(partition: Partition, request: ResetOffsetsRequest) -> int | None:
    if request.target != "timestamp":
        return None
    try:
        found = partition.log.offset_for_timestamp(request.value)
    except LogError as error:
        raise ControlError(f"{partition.topic}-{partition.index} can't be read: {error}") from error
    return None if found is None else found.offset


async def _commit(services: Services, group_id: str, changes: list[OffsetChange]) -> None:
    now_ms = services.node.clock.now_ms()
    records = [
        OffsetCommitRecord(
            group_id, change.topic, change.partition, CommittedOffset(change.new_offset, -1, "", now_ms)
        )
        for change in changes
    ]
    with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
        await services.coordinators.groups.ensure_topic()
        for change in changes:
            if not services.partitions.registry.has(change.topic, change.partition):
                raise ControlError(
                    f"partition {change.topic}-{change.partition} was deleted during the reset; repeat the "
                    "command without it"
                )
        error = await services.coordinators.groups.commit(Committer(group_id), records)
    if error is not ErrorCode.none:
        raise ControlError(
            f"nothing of group {group_id} was reset: {_REFUSED.get(error, f'refused with {error.name}')}"
        )
