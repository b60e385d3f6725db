"""Groups of every protocol: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071).

All have the same properties for listing: `type`, `state_text`, `is_empty`, `generation` and `protocol`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerGroupState
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.streams.group import STATES as STREAMS_STATES
from seqgate.gateway.coordinator.streams.group import StreamsGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup

STATES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        (
            *(state.value for state in GroupState if state is not GroupState.DEAD),
            *(state.value for state in ConsumerGroupState),
            *STREAMS_STATES,
        )
    )
)
"""The words for the states of a group that is not deleted; a share group is Empty or Stable."""


def all_groups(shard: GroupShard) -> Iterator[Group]:
    """Yield the groups of a shard, in no order."""
    yield from shard.groups.values()
    yield from shard.consumers.groups.values()
    yield from shard.shares.groups.values()
    yield from shard.streams.groups.values()


def find_group(shard: GroupShard, group_id: str) -> Group | None:
    """Return the group of that id."""
    kinds = shard.groups, shard.consumers.groups, shard.shares.groups, shard.streams.groups
    return next((groups[group_id] for groups in kinds if group_id in groups), None)
