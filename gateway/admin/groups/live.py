"""The groups of a running gateway, from its own objects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from seqgate.gateway.admin.groups.describing import (
    SHARE,
    Committed,
    FoundGroup,
    GroupDescription,
    GroupMember,
    GroupProgress,
    GroupRow,
    ShareDelivery,
    StreamsMemberRow,
    StreamsState,
    StreamsTasks,
    known_lags,
    topology_nodes,
)
from seqgate.gateway.admin.operation import LiveGateway, as_control_error, offline_partitions
from seqgate.gateway.admin.request import ControlError, Elsewhere
from seqgate.gateway.admin.transactions.pending import pending_in_group
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, Member
from seqgate.gateway.coordinator.group.consumer_assignors import CONSUMER_PROTOCOL, assigned_partitions
from seqgate.gateway.coordinator.group.offsets import is_name_group
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.stored_groups import STATES, Group
from seqgate.gateway.coordinator.places import TopicPartition, by_topic
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import DONE, DeliveryState, SharePartition
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment
from seqgate.gateway.coordinator.streams.topology_description import current_description
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.latest_offsets import LatestOffsets


class LiveGroups:
    """The groups that this gateway coordinates: a `GroupSource`."""

    states = STATES

    def __init__(self, gateway: LiveGateway) -> None:
        services = gateway.services
        self._services = services
        self._partitions = services.partitions.registry
        self._groups = services.coordinators.groups
        self._latest = LatestOffsets(
            self._partitions, services.topics.metadata_log.image, services.node.brokers, services.node.peers
        )

    @property
    def now_ms(self) -> int:
        return self._services.node.clock.now_ms()

    @property
    def offline_partitions(self) -> list[int]:
        return offline_partitions(self._partitions, OFFSETS_TOPIC)

    def rows(self, states: Collection[str]) -> Iterator[GroupRow]:
        for shard in self._groups.loaded_shards():
            for group in shard.stored.all_groups():
                if not states or group.state_text in states:
                    yield GroupRow(
                        group.group_id,
                        group.state_text,
                        group.type,
                        *group.protocol,
                        len(group.members),
                        0,
                        0,
                    )

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        found = {}
        shards = list(self._groups.loaded_shards())
        for row in rows:
            shard = next((shard for shard in shards if shard.stored.find(row.group) is not None), None)
            if shard is None:
                continue
            read = await self._progress(shard, row.group, row.type)
            ends = await self.ends({*read.committed, *read.delivered})
            found[row.group] = len(read.committed) + len(read.delivered), sum(known_lags(read, ends).values())
            # Let requests in between: a group may have thousands of partitions.
            await asyncio.sleep(0)
        return found

    async def describe(self, group: str) -> GroupDescription:
        """Return a group once its state is durable."""
        found = await self._find(group)
        if found is None:
            raise ControlError(f"there is no group {group}")
        streams, topology = None, None
        if isinstance(found, StreamsGroup):
            epoch = None if found.topology is None else found.topology.epoch
            streams = StreamsState(found.assignment_epoch, epoch)
            topology = current_description(found)
        return GroupDescription(
            found.group_id,
            found.state_text,
            found.type,
            found.generation,
            *found.protocol,
            members_of(found, self._services),
            [],
            complete=True,
            streams=streams,
            topology=topology_nodes(topology),
        )

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        """Return the groups whose state is durable."""
        found = {group: await self._find(group) for group in groups}
        return {
            name: FoundGroup(group.type, group.state_text, group.is_empty, len(group.members))
            for name, group in found.items()
            if group is not None
        }

    async def _find(self, group_id: str) -> Group | None:
        shard = await self._shard(group_id)
        return None if shard is None else shard.stored.find(group_id)

    async def _shard(self, group_id: str) -> GroupShard | None:
        """Return the shard of a group once its state is durable; None while the gateway has no groups."""
        if not group_id:
            raise ControlError("the group name is empty")
        if is_name_group(group_id):
            raise ControlError(
                f"{group_id} is no group but stands for a producer name; `seqgate names` shows its sequence "
                "ids"
            )
        leader = self._groups.shards.leader_of(group_id)
        if self._groups.shards.is_elsewhere(group_id):
            raise Elsewhere(
                f"group {group_id} is coordinated by broker {leader}, not by this gateway; ask that one, or "
                "name the cluster with --bootstrap"
            )
        if OFFSETS_TOPIC not in self._partitions.by_name:
            return None
        with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
            return await self._groups.durable_shard(group_id)

    async def progress(self, group: str, kind: str) -> GroupProgress:
        shard = await self._shard(group)
        if shard is None:
            return GroupProgress()
        read = await self._progress(shard, group, kind)
        return read._replace(pending=pending_in_group(self._services.coordinators, shard, group))

    async def _progress(self, shard: GroupShard, group: str, kind: str) -> GroupProgress:
        if kind == SHARE:
            return GroupProgress(delivered=await self._delivered(group))
        offsets = shard.offsets.of(group).items()
        return GroupProgress(
            {
                place: Committed(value.offset, value.metadata, value.commit_timestamp_ms)
                for place, value in offsets
            }
        )

    async def _delivered(self, group_id: str) -> dict[TopicPartition, ShareDelivery]:
        """Return the progress in the partitions that a share group (KIP-932) ever read, without those of
        deleted topics. Of a partition whose state another gateway stores only the start offset and the number
        of done records are known.
        """
        topics = self._partitions.by_id
        shares = self._services.coordinators.shares
        found = {key: delivery(partition) for key, partition in shares.known(group_id).items()}
        with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
            keys = (SharePartitionKey(group_id, *place) for place in shares.begun(group_id))
            missing = [key for key in keys if key not in found and shares.persister.is_elsewhere(key)]
            summaries = await shares.persister.summaries(missing)
        for key, summary in summaries.items():
            if summary.start_offset >= 0:
                found[key] = ShareDelivery(
                    summary.start_offset, None, None, None, None, None, summary.done, None
                )
        return {
            (topics[key.topic_id].name, key.partition): told
            for key, told in found.items()
            if key.topic_id in topics
        }

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offsets of the partitions that this gateway leads."""
        found = {place: self._partitions.get(*place) for place in places}
        return {
            place: partition.log.log_start_offset
            for place, partition in found.items()
            if partition is not None
        }

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks, also of partitions that other gateways lead."""
        return await self._latest.of(places)

    def skipped(self, group: str, place: TopicPartition) -> int:
        """Return how many records message TTL or a backlog quota moved the group over."""
        return self._services.upkeep.backlog.skipped.of(group, place).total


def delivery(found: SharePartition) -> ShareDelivery:
    """Count the records of a partition by their delivery state in the group."""
    stretches = itertools.groupby(found.runs, key=lambda run: run.state in DONE)
    done = [sum(map(len, runs)) for is_done, runs in stretches if is_done]
    return ShareDelivery(
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        acquired=sum(len(run) for run in found.runs if run.state is DeliveryState.ACQUIRED),
        waiting=sum(len(run) for run in found.runs if run.is_waiting),
        dying=sum(len(run) for run in found.runs if run.state is DeliveryState.ARCHIVING),
        holes=len(done),
        done_records=sum(done),
        max_delivery_count=max((run.delivery_count for run in found.runs), default=0),
    )


# The members of groups, with their assignments.


def members_of(group: Group, services: Services) -> list[GroupMember]:
    """Return the members of a group with their assignments."""
    if isinstance(group, ClassicGroup):
        return [_classic_member(group, member) for member in group.members.values()]
    partitions = services.partitions.registry
    session_timeout_ms = services.node.config.int(f"group.{group.type}.session.timeout.ms")
    if isinstance(group, ShareGroup):
        return [
            _member(
                member, member.value, session_timeout_ms, _assignment(member.current.assigned, partitions)
            )
            for member in group.members.values()
        ]
    if isinstance(group, StreamsGroup):
        return [
            _member(
                member,
                member.value,
                session_timeout_ms,
                _read_by(group, member, partitions),
                instance_id=member.value.instance_id,
                rebalance_timeout_ms=member.value.rebalance_timeout_ms,
                streams=_streams_member(group, member),
            )
            for member in group.members.values()
        ]
    return [
        _member(
            member,
            member,
            session_timeout_ms,
            _assignment(member.assigned, partitions),
            instance_id=member.instance_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
        )
        for member in group.members.values()
    ]


def _classic_member(group: ClassicGroup, member: Member) -> GroupMember:
    assignment: dict[str, list[int]] | None = None
    if not member.assignment:
        assignment = {}
    elif group.protocol_type == CONSUMER_PROTOCOL:
        assignment = assigned_partitions(member.assignment)
    return _member(
        member,
        member,
        member.session_timeout_ms,
        assignment,
        instance_id=member.group_instance_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        is_leader=member.member_id == group.leader,
    )


def _member(
    member: Any,
    client: Any,
    session_timeout_ms: int,
    assignment: dict[str, list[int]] | None,
    *,
    instance_id: str | None = None,
    rebalance_timeout_ms: int | None = None,
    is_leader: bool = False,
    streams: StreamsMemberRow | None = None,
) -> GroupMember:
    """Return a member of a group of any type; `client` has its client id and host."""
    return GroupMember(
        member.member_id,
        instance_id,
        client.client_id,
        client.client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        is_leader,
        assignment,
        streams,
    )


def _assignment(assigned: Iterable[tuple[UUID, int]], partitions: Partitions) -> dict[str, list[int]]:
    topics = partitions.by_id
    return {
        topics[topic_id].name: sorted(indexes)
        for topic_id, indexes in by_topic(assigned).items()
        if topic_id in topics
    }


def _read_by(group: StreamsGroup, member: StreamsMember, partitions: Partitions) -> dict[str, list[int]]:
    tasks = by_topic(member.current.assigned.active)
    found: dict[str, list[int]] = {}
    for topic, subtopology_id in sorted(group.topology.subtopology_of.items() if group.topology else ()):
        served = partitions.by_name.get(topic)
        if served is not None and subtopology_id in tasks:
            found[topic] = [index for index in tasks[subtopology_id] if index < served.count]
    return found


def _streams_member(group: StreamsGroup, member: StreamsMember) -> StreamsMemberRow:
    return StreamsMemberRow(
        process_id=member.value.process_id,
        member_epoch=member.current.member_epoch,
        topology_epoch=member.value.topology_epoch,
        tasks=_tasks(member.current.assigned.tasks),
        target=_tasks(group.targets.get(member.member_id, NO_ASSIGNMENT)),
    )


def _tasks(tasks: TaskAssignment) -> StreamsTasks:
    return StreamsTasks(by_topic(tasks.active), by_topic(tasks.standby), by_topic(tasks.warmup))
