"""Groups of all types, classic, consumer (KIP-848) and share (KIP-932), as the commands show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from gateway.control.results import GroupMember
from gateway.coordinator.group.assignment import assigned_partitions
from gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerGroupState, ConsumerMember
from gateway.coordinator.group.shard import GroupShard
from gateway.coordinator.group.share_group import ShareGroup, ShareMember
from gateway.coordinator.group.subscription import CONSUMER_PROTOCOL
from gateway.coordinator.places import by_topic
from gateway.handlers.answering.assignments import Topics
from gateway.handlers.groups.list_groups import CLASSIC, CONSUMER, SHARE
from gateway.handlers.sharing.share_group_describe import ASSIGNOR as SHARE_ASSIGNOR
from gateway.runtime.services import Services

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup
STATES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(state.value for state in (*GroupState, *ConsumerGroupState) if state is not GroupState.DEAD)
)
"""The states that a group can be found in; a share group is Empty or Stable."""


def all_groups(shard: GroupShard) -> Iterator[Group]:
    """The groups of a shard, in no order."""
    yield from shard.groups.values()
    yield from shard.consumers.groups.values()
    yield from shard.shares.groups.values()


def find_group(shard: GroupShard | None, group_id: str) -> Group | None:
    """The group of that id."""
    if shard is None:
        return None
    kinds = shard.groups, shard.consumers.groups, shard.shares.groups
    return next((groups[group_id] for groups in kinds if group_id in groups), None)


def is_empty(group: Group) -> bool:
    """Whether nobody is in it."""
    if isinstance(group, ShareGroup):
        return not group.members
    return group.state is GroupState.EMPTY or group.state is ConsumerGroupState.EMPTY


def state_of(group: Group) -> str:
    """As ListGroups tells it."""
    return group.state if isinstance(group, ShareGroup) else group.state.value


def type_of(group: Group) -> str:
    """As ListGroups tells it."""
    if isinstance(group, ShareGroup):
        return SHARE
    return CLASSIC if isinstance(group, ClassicGroup) else CONSUMER


def generation_of(group: Group) -> int:
    """The generation, or the epoch of a consumer or share group."""
    return group.generation_id if isinstance(group, ClassicGroup) else group.group_epoch


def protocol_of(group: Group) -> tuple[str, str | None]:
    """The protocol's type, and its name or that of the assignor; None without members."""
    if isinstance(group, ClassicGroup):
        return group.protocol_type or "", group.protocol_name
    if isinstance(group, ShareGroup):
        return SHARE, SHARE_ASSIGNOR if group.members else None
    return CONSUMER_PROTOCOL, group.preferred_assignor if group.members else None


def members_of(group: Group, services: Services) -> list[GroupMember]:
    """The members with what is assigned to them."""
    if isinstance(group, ClassicGroup):
        return [_classic_member(group, member) for member in group.members.values()]
    topics = services.partitions.by_id
    if isinstance(group, ShareGroup):
        session_timeout_ms = services.config.int("group.share.session.timeout.ms")
        return [_share_member(member, topics, session_timeout_ms) for member in group.members.values()]
    session_timeout_ms = services.config.int("group.consumer.session.timeout.ms")
    return [_consumer_member(member, topics, session_timeout_ms) for member in group.members.values()]


def _classic_member(group: ClassicGroup, member: Member) -> GroupMember:
    assignment: dict[str, list[int]] | None = None
    if not member.assignment:
        assignment = {}
    elif group.protocol_type == CONSUMER_PROTOCOL:
        assignment = assigned_partitions(member.assignment)
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        is_leader=member.member_id == group.leader,
        assignment=assignment,
    )


def _consumer_member(member: ConsumerMember, topics: Topics, session_timeout_ms: int) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        is_leader=False,
        assignment=_assignment(member, topics),
    )


def _share_member(member: ShareMember, topics: Topics, session_timeout_ms: int) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=None,
        client_id=member.value.client_id,
        client_host=member.value.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment=_assignment(member, topics),
    )


def _assignment(member: ConsumerMember | ShareMember, topics: Topics) -> dict[str, list[int]]:
    return {
        topics[topic_id].name: sorted(partitions)
        for topic_id, partitions in by_topic(member.assigned).items()
        if topic_id in topics
    }
