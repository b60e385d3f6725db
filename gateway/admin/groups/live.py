"""The groups of a running gateway."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.coordinators import as_control_error, offline_partitions
from seqgate.gateway.admin.groups import messages
from seqgate.gateway.admin.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    GroupDeletion,
    GroupDeletions,
    GroupDescription,
    GroupMember,
    GroupPage,
    GroupPartition,
    GroupRow,
    ListGroupsRequest,
    ShareDelivery,
)
from seqgate.gateway.admin.operation import LiveGateway, page
from seqgate.gateway.admin.request import ControlError, Elsewhere
from seqgate.gateway.admin.transactions.live import pending_in_group
from seqgate.gateway.admin.transactions.messages import PendingOffset
from seqgate.gateway.coordinator.group.any_group import STATES, Group, all_groups, find_group
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, Member
from seqgate.gateway.coordinator.group.consumer_assignors import CONSUMER_PROTOCOL, assigned_partitions
from seqgate.gateway.coordinator.group.consumer_group import ConsumerMember
from seqgate.gateway.coordinator.group.name_groups import is_name_group
from seqgate.gateway.coordinator.group.records import CommittedOffset
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import ShareGroup, ShareMember
from seqgate.gateway.coordinator.places import TopicPartition, by_topic
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import DONE, DeliveryState, SharePartition
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import CoordinatorServices, Services, UpkeepServices
from seqgate.gateway.runtime.topics.latest_offsets import LatestOffsets

MAX_DELETED_GROUPS: Final = 1_000
"""Groups that one request deletes; a request with more is refused."""
_STATES: Final[dict[str, str]] = {state.lower(): state for state in STATES}
Committed = Mapping[TopicPartition, CommittedOffset]


async def list_groups(gateway: LiveGateway, request: ListGroupsRequest) -> GroupPage:
    """Return one page of the groups, by their ids. Raises ControlError."""
    services = gateway.services
    states = {_state(name) for name in request.states}
    found = (
        (group, shard)
        for shard in services.coordinators.groups.loaded_shards()
        for group in all_groups(shard)
        if not states or group.state_text in states
    )
    groups, complete = page(found, request.after, request.limit, key=lambda entry: entry[0].group_id)
    rows = []
    for group, shard in groups:
        if isinstance(group, ShareGroup):
            delivered = await delivered_to(services, group.group_id)
            ends = await latest_offsets(services).of(delivered)
            rows.append(_row(group, len(delivered), total_share_lag(ends, delivered)))
        else:
            committed = shard.offsets.of(group.group_id)
            ends = await latest_offsets(services).of(committed)
            rows.append(_row(group, len(committed), _total_lag(ends, committed)))
        # Let requests in between: a group may have thousands of partitions.
        await asyncio.sleep(0)
    return GroupPage(rows, complete, offline_partitions(services.partitions.registry, OFFSETS_TOPIC))


async def describe_group(gateway: LiveGateway, request: DescribeGroupRequest) -> GroupDescription:
    """Return a group with one page of its partitions; the first page has its members. Raises ControlError."""
    services = gateway.services
    shard = await durable_shard(services, request.group)
    group = None if shard is None else find_group(shard, request.group)
    if shard is None or group is None:
        raise ControlError(f"there is no group {request.group}")
    members = members_of(group, services)
    if isinstance(group, ShareGroup):
        partitions, complete = await _share_partitions(services, group, request)
    else:
        partitions, complete = await _partitions(services, shard, members, request)
    return _description(
        group,
        members if request.after is None else [],
        [_with_skipped(services.upkeep, request.group, row) for row in partitions],
        complete=complete,
    )


async def _partitions(
    services: Services, shard: GroupShard, members: list[GroupMember], request: DescribeGroupRequest
) -> tuple[list[GroupPartition], bool]:
    """Return one page of the partitions of a group that commits offsets, and whether no partition comes after
    them.
    """
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }
    committed = shard.offsets.of(request.group)
    pending = pending_in_group(services.coordinators, shard, request.group)
    places, complete = _page({*committed, *owners, *pending}, request)
    ends = await latest_offsets(services).of(places)
    now_ms = services.node.clock.now_ms()
    rows = [
        _partition(
            services.partitions.registry,
            place,
            ends.get(place),
            committed.get(place),
            owners.get(place),
            pending.get(place, []),
            now_ms,
        )
        for place in places
    ]
    return rows, complete


async def _share_partitions(
    services: Services, group: ShareGroup, request: DescribeGroupRequest
) -> tuple[list[GroupPartition], bool]:
    """Return one page of the partitions of a share group, and whether no partition comes after them."""
    delivered = await delivered_to(services, group.group_id)
    places, complete = _page({*delivered, *assigned_in(services, group)}, request)
    ends = await latest_offsets(services).of(places)
    registry = services.partitions.registry
    rows = [share_partition(registry, place, delivered.get(place), ends.get(place)) for place in places]
    return rows, complete


def latest_offsets(services: Services) -> LatestOffsets:
    """Return the lookup of high watermarks, also of partitions that other gateways lead."""
    image = services.topics.metadata_log.image
    return LatestOffsets(services.partitions.registry, image, services.node.brokers, services.node.peers)


def _page(places: set[TopicPartition], request: DescribeGroupRequest) -> tuple[list[TopicPartition], bool]:
    return page(places, request.after, request.limit, key=lambda place: place)


def _with_skipped(upkeep: UpkeepServices, group_id: str, row: GroupPartition) -> GroupPartition:
    """Add the number of records that the group was moved over unread."""
    total = upkeep.backlog.skipped.of(group_id, (row.topic, row.partition)).total
    return msgspec.structs.replace(row, skipped=total) if total else row


def _description(
    group: Group, members: list[GroupMember], partitions: list[GroupPartition], *, complete: bool
) -> GroupDescription:
    protocol_type, protocol_name = group.protocol
    return GroupDescription(
        group=group.group_id,
        state=group.state_text,
        type=group.type,
        generation_id=group.generation,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        members=members,
        partitions=partitions,
        complete=complete,
        streams=streams_state(group),
    )


async def delete_groups(gateway: LiveGateway, request: DeleteGroupsRequest) -> GroupDeletions:
    """Delete each group that has no members, or report which groups could be deleted. Raises ControlError."""
    if not 1 <= len(request.groups) <= MAX_DELETED_GROUPS:
        raise ControlError(f"name 1 to {MAX_DELETED_GROUPS} groups to delete, not {len(request.groups)}")
    names = dict.fromkeys(request.groups)
    services = gateway.services
    return GroupDeletions([await _delete(services, name, execute=request.execute) for name in names])


async def _delete(services: Services, group_id: str, *, execute: bool) -> GroupDeletion:
    shard = await durable_shard(services, group_id)
    group = None if shard is None else find_group(shard, group_id)
    if shard is None or group is None:
        return GroupDeletion(group_id, None, 0, deleted=False, refusal=f"there is no group {group_id}")
    is_share_group = isinstance(group, ShareGroup)
    read = await delivered_to(services, group_id) if is_share_group else shard.offsets.of(group_id)
    count = len(read)
    state = group.state_text
    if not group.is_empty:
        return GroupDeletion(group_id, state, count, deleted=False, refusal=not_empty(group))
    if not execute:
        return GroupDeletion(group_id, state, count, deleted=False, refusal=None)
    error = await _delete_empty(services.coordinators, group)
    if error is not ErrorCode.none:
        refusal = f"{group_id} was not deleted: {error.name}"
        return GroupDeletion(group_id, state, count, deleted=False, refusal=refusal)
    return GroupDeletion(group_id, state, count, deleted=True, refusal=None)


async def _delete_empty(coordinators: CoordinatorServices, group: Group) -> ErrorCode:
    group_id = group.group_id
    if isinstance(group, ShareGroup):
        with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
            error = await coordinators.shares.delete(group_id)
        return ErrorCode.group_id_not_found if error is None else error
    with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
        return await coordinators.groups.run(
            group_id, lambda shard, effects: shard.delete_group(group_id, effects)
        )


async def durable_shard(services: Services, group_id: str) -> GroupShard | None:
    """Return the shard of a group once its state is durable; None while the gateway has no groups. Raises
    ControlError.
    """
    if not group_id:
        raise ControlError("the group name is empty")
    if is_name_group(group_id):
        raise ControlError(
            f"{group_id} is no group but stands for a producer name; `seqgate names` shows its sequence ids"
        )
    leader = services.coordinators.groups.shards.leader_of(group_id)
    if services.coordinators.groups.shards.is_elsewhere(group_id):
        raise Elsewhere(
            f"group {group_id} is coordinated by broker {leader}, not by this gateway; ask that one, or name "
            "the cluster with --bootstrap"
        )
    if OFFSETS_TOPIC not in services.partitions.registry.by_name:
        return None
    with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
        return await services.coordinators.groups.durable_shard(group_id)


def not_empty(group: Group) -> str:
    """Return the sentence that refuses to change a group with members."""
    count = len(group.members)
    members = "1 member" if count == 1 else f"{count:,} members"
    return (
        f"group {group.group_id} is in use: {members}, state {group.state_text}; "
        "stop its consumers, or wait until their sessions end"
    )


def _lag(committed_offset: int, high_watermark: int) -> int:
    """Return how many records a group has not read; 0 when its offset is beyond the high watermark."""
    return max(0, high_watermark - committed_offset)


def _state(name: str) -> str:
    state = _STATES.get(name.lower())
    if state is None:
        raise ControlError(f"{name} is not a state of a group; the states are {', '.join(STATES)}")
    return state


def _total_lag(ends: Mapping[TopicPartition, int], committed: Committed) -> int:
    return sum(_lag(value.offset, ends[place]) for place, value in committed.items() if place in ends)


def _row(group: Group, partitions: int, total_lag: int) -> GroupRow:
    protocol_type, protocol_name = group.protocol
    return GroupRow(
        group=group.group_id,
        state=group.state_text,
        type=group.type,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        members=len(group.members),
        committed_partitions=partitions,
        total_lag=total_lag,
    )


def _partition(
    partitions: Partitions,
    place: TopicPartition,
    high_watermark: int | None,
    committed: CommittedOffset | None,
    member_id: str | None,
    pending: list[PendingOffset],
    now_ms: int,
) -> GroupPartition:
    partition = partitions.get(*place)
    log = None if partition is None else partition.log
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed_offset=None if committed is None else committed.offset,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=high_watermark,
        lag=None if high_watermark is None or committed is None else _lag(committed.offset, high_watermark),
        metadata=None if committed is None else committed.metadata,
        commit_timestamp=None if committed is None else committed.commit_timestamp_ms,
        age_ms=None if committed is None else max(0, now_ms - committed.commit_timestamp_ms),
        member_id=member_id,
        pending=pending,
        delivery=None,
    )


# The progress of share groups (KIP-932) in their partitions.

Delivered: TypeAlias = Mapping[TopicPartition, ShareDelivery]


async def delivered_to(services: Services, group_id: str) -> Delivered:
    """Return the progress in the partitions that a group ever read, without those of deleted topics. Raises
    ControlError.

    Of a partition whose state another gateway stores only the start offset and the number of done records are
    known.
    """
    topics = services.partitions.registry.by_id
    shares = services.coordinators.shares
    found = {key: delivery(partition) for key, partition in shares.known(group_id).items()}
    with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
        keys = (SharePartitionKey(group_id, *place) for place in shares.begun(group_id))
        missing = [key for key in keys if key not in found and shares.persister.is_elsewhere(key)]
        summaries = await shares.persister.summaries(missing)
    for key, summary in summaries.items():
        if summary.start_offset >= 0:
            found[key] = ShareDelivery(summary.start_offset, None, None, None, summary.done, None)
    return {
        (topics[key.topic_id].name, key.partition): told
        for key, told in found.items()
        if key.topic_id in topics
    }


def assigned_in(services: Services, group: ShareGroup) -> set[TopicPartition]:
    """Return the partitions that are assigned to any member."""
    topics = services.partitions.registry.by_id
    return {
        (topics[topic_id].name, index)
        for member in group.members.values()
        for topic_id, index in member.assigned
        if topic_id in topics
    }


def delivery(found: SharePartition) -> ShareDelivery:
    """Count the records of a partition by their delivery state in the group."""
    stretches = itertools.groupby(found.runs, key=lambda run: run.state in DONE)
    done = [sum(map(len, runs)) for is_done, runs in stretches if is_done]
    return ShareDelivery(
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        acquired=sum(len(run) for run in found.runs if run.state is DeliveryState.ACQUIRED),
        holes=len(done),
        done_records=sum(done),
        max_delivery_count=max((run.delivery_count for run in found.runs), default=0),
    )


def share_lag(found: ShareDelivery, high_watermark: int) -> int:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    return max(0, high_watermark - found.start_offset - (found.done_records or 0))


def total_share_lag(ends: Mapping[TopicPartition, int], delivered: Delivered) -> int:
    """Return the lag in all partitions, up to these high watermarks."""
    return sum(share_lag(found, ends[place]) for place, found in delivered.items() if place in ends)


def share_partition(
    partitions: Partitions, place: TopicPartition, delivered: ShareDelivery | None, high_watermark: int | None
) -> GroupPartition:
    """Return the row of a partition that a share group has read or is assigned."""
    partition = partitions.get(*place)
    log = None if partition is None else partition.log
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed_offset=None,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=high_watermark,
        lag=None if high_watermark is None or delivered is None else share_lag(delivered, high_watermark),
        metadata=None,
        commit_timestamp=None,
        age_ms=None,
        member_id=None,
        pending=[],
        delivery=delivered,
    )


# The members of groups, with their assignments.


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
    tasks = by_topic(member.current.assigned.active)
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


# Reads what only a streams group of a running gateway has: the epochs of the group, and the tasks of its
# members.


def streams_state(group: Group) -> messages.StreamsState | None:
    """Return the epochs of a streams group; None for a group of another type."""
    if not isinstance(group, StreamsGroup):
        return None
    epoch = None if group.topology is None else group.topology.epoch
    return messages.StreamsState(group.assignment.assignment_epoch, epoch)


def member_of_streams(group: StreamsGroup, member: StreamsMember) -> messages.StreamsMember:
    """Return process, epochs and tasks of a member."""
    return messages.StreamsMember(
        process_id=member.value.process_id,
        member_epoch=member.current.member_epoch,
        topology_epoch=member.value.topology_epoch,
        tasks=_tasks(member.current.assigned.tasks),
        target=_tasks(group.targets.get(member.member_id, NO_ASSIGNMENT)),
    )


def _tasks(tasks: TaskAssignment) -> messages.StreamsTasks:
    return messages.StreamsTasks(by_topic(tasks.active), by_topic(tasks.standby), by_topic(tasks.warmup))
