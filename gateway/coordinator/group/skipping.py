"""Moves a group's committed offsets over records that the group has not read, for message TTL and for evicted
backlogs.

A member that reads behind the new offset continues there. Its next commit counts, as any commit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.places import TopicPartition


class Target(NamedTuple):
    """The new offset of a group in a partition; `leader_epoch` is that of the record before the offset, or -1."""

    place: TopicPartition
    offset: int
    leader_epoch: int


def move_forward(
    shard: GroupShard, group_id: str, targets: Sequence[Target], effects: Effects
) -> dict[TopicPartition, int]:
    """Commit the targets ahead of the group's present offsets; return the former offsets of the places that moved.

    A place without a committed offset is left alone. So is a place in which an open transaction has an offset: a
    commit now would supersede it. Metadata and commit time stay, so that the offset expires when it would have
    expired before.
    """
    moved: dict[TopicPartition, int] = {}
    for place, offset, leader_epoch in targets:
        value = shard.offsets.of(group_id).get(place)
        if value is None or value.offset >= offset or shard.offsets.pending.is_held(group_id, place):
            continue
        moved[place] = value.offset
        value = value._replace(offset=offset, leader_epoch=leader_epoch)
        shard.commits.commit([OffsetCommitRecord(group_id, *place, value)], effects)
    return moved
