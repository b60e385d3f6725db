"""Moving a group's committed offsets forward over what it has not read: message TTL and evicted backlogs.

A member that reads behind the new offset goes on, and what it commits next counts, as any commit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.places import TopicPartition


class Target(NamedTuple):
    """Where a group is to go on in a partition; `leader_epoch` is that of the record before the offset, or -1."""

    place: TopicPartition
    offset: int
    leader_epoch: int


def move_forward(
    shard: GroupShard, group_id: str, targets: Sequence[Target], effects: Effects
) -> dict[TopicPartition, int]:
    """Commit what lies ahead of the group's present offsets; returns the offsets before, of what was moved.

    A place without a committed offset is left alone, and one that an open transaction has an offset of: a commit now
    would have that one vanish. Metadata and the time of the commit stay, so that the offset expires when it would have.
    """
    moved: dict[TopicPartition, int] = {}
    for place, offset, leader_epoch in targets:
        value = shard.offsets.of(group_id).get(place)
        if value is None or value.offset >= offset or shard.offsets.pending.is_held(group_id, place):
            continue
        moved[place] = value.offset
        value = value._replace(offset=offset, leader_epoch=leader_epoch)
        shard.commit([OffsetCommitRecord(group_id, *place, value)], effects)
    return moved
