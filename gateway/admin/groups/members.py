"""The members of groups, with their assignments."""

from __future__ import annotations

from gateway.admin.groups.messages import GroupMember
from gateway.admin.groups.streams_live import member_of_streams
from gateway.coordinator.group.any_group import Group
from gateway.coordinator.group.assignment import assigned_partitions
from gateway.coordinator.group.classic_group import ClassicGroup, Member
from gateway.coordinator.group.consumer_group import ConsumerMember
from gateway.coordinator.group.share_group import ShareGroup, ShareMember
from gateway.coordinator.group.subscription import CONSUMER_PROTOCOL
from gateway.coordinator.places import by_topic
from gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from gateway.coordinator.streams.tasks import by_subtopology
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services


def members_of(group: Group, services: Services) -> list[GroupMember]:
    """Return the members of a group with their assignments."""
    if isinstance(group, ClassicGroup):
        return [_classic_member(group, member) for member in group.members.values()]
    partitions = services.partitions.registry
    if isinstance(group, ShareGroup):
        session_timeout_ms = services.node.config.int("group.share.session.timeout.ms")
        return [_share_member(member, partitions, session_timeout_ms) for member in group.members.values()]
    if isinstance(group, StreamsGroup):
        session_timeout_ms = services.node.config.int("group.streams.session.timeout.ms")
        return [
            _streams_member(group, member, partitions, session_timeout_ms)
            for member in group.members.values()
        ]
    session_timeout_ms = services.node.config.int("group.consumer.session.timeout.ms")
    return [_consumer_member(member, partitions, session_timeout_ms) for member in group.members.values()]


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


def _consumer_member(member: ConsumerMember, partitions: Partitions, session_timeout_ms: int) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        is_leader=False,
        assignment=_assignment(member, partitions),
    )


def _share_member(member: ShareMember, partitions: Partitions, session_timeout_ms: int) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=None,
        client_id=member.value.client_id,
        client_host=member.value.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment=_assignment(member, partitions),
    )


def _streams_member(
    group: StreamsGroup, member: StreamsMember, partitions: Partitions, session_timeout_ms: int
) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.value.instance_id,
        client_id=member.value.client_id,
        client_host=member.value.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=member.value.rebalance_timeout_ms,
        is_leader=False,
        assignment=_read_by(group, member, partitions),
        streams=member_of_streams(group, member),
    )


def _read_by(group: StreamsGroup, member: StreamsMember, partitions: Partitions) -> dict[str, list[int]]:
    """Return the partitions that the active tasks of a member read."""
    tasks = by_subtopology(member.current.assigned.active)
    found: dict[str, list[int]] = {}
    for topic, subtopology_id in sorted(group.topology.subtopology_of.items() if group.topology else ()):
        served = partitions.by_name.get(topic)
        if served is not None and subtopology_id in tasks:
            found[topic] = [index for index in tasks[subtopology_id] if index < served.count]
    return found


def _assignment(member: ConsumerMember | ShareMember, partitions: Partitions) -> dict[str, list[int]]:
    topics = partitions.by_id
    return {
        topics[topic_id].name: sorted(indexes)
        for topic_id, indexes in by_topic(member.assigned).items()
        if topic_id in topics
    }
