"""The groups of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of
kafka-python.

Unlike the control socket of a gateway, the Kafka protocol does not report when an offset was committed, nor
which open transactions hold offsets; these fields stay empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.schema.types import GroupId

from seqgate.gateway.admin.groups.describing import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
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
    TopologyNode,
    known_lags,
    topology_nodes,
)
from seqgate.gateway.admin.remote.cluster import (
    EARLIEST,
    GROUP,
    LATEST,
    Cluster,
    api_versions,
    ask_coordinator,
    check,
    refusal_of_text,
)
from seqgate.gateway.admin.request import ControlError, nearest_hint
from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.messages import request_module, request_type, response_type

if TYPE_CHECKING:
    from kio.schema.streams_group_describe.v0 import response as described

EMPTY_STATES: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""
NO_OFFSET: Final = -1
_SHARE_OFFSETS: Final = (90, 1)
"""The API DescribeShareGroupOffsets, and its version."""


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the answers of ListGroups about each group, by group id."""
    told = cluster.ask_all(ListGroupsRequest(states_filter=(), types_filter=()), ListGroupsResponse)
    if told is None:
        return {row["group_id"]: row for row in cluster.admin.list_groups()}
    fields = "protocol_type", "group_state", "group_type"
    return {
        str(row.group_id): {name: getattr(row, name) for name in fields} for one in told for row in one.groups
    }


def group_state(row: Mapping[str, Any]) -> str:
    """Return the state of a group that ListGroups reports."""
    return str(row.get("group_state") or "Unknown")


def group_type(row: Mapping[str, Any]) -> str:
    """Return the type of a group: classic, consumer, share or streams."""
    return str(row.get("group_type") or CLASSIC).lower()


def committed_offsets(cluster: Cluster, names: list[str]) -> dict[str, dict[TopicPartition, Committed]]:
    """Return the committed offsets of each group, by partition."""
    if not names:
        return {}
    told = cluster.ask_coordinators(GROUP, names, offsets_question, OffsetFetchResponse)
    groups: list[Any] = [group for answer in told or () for group in answer.groups]
    places = [
        (str(group.group_id), (str(topic.name), int(row.partition_index)), row)
        for group in groups
        for topic in group.topics
        for row in topic.partitions
    ]
    if told is not None and not any(part.error_code for part in (*groups, *(row for *_, row in places))):
        committed: dict[str, dict[TopicPartition, Committed]] = {name: {} for name in names}
        for name, place, row in places:
            if row.committed_offset >= 0:
                committed[name][place] = Committed(row.committed_offset, row.metadata)
        return committed
    found = cluster.admin.list_group_offsets(dict.fromkeys(names))
    return {
        name: {
            tuple(place): Committed(offset.offset, offset.metadata)
            for place, offset in offsets.items()
            if offset.offset >= 0
        }
        for name, offsets in found.items()
    }


def offsets_question(groups: Iterable[str]) -> OffsetFetchRequest:
    """Return the question for all committed offsets of groups."""
    wanted = tuple(OffsetFetchRequestGroup(group_id=GroupId(group), topics=None) for group in groups)
    return OffsetFetchRequest(groups=wanted)


def share_offsets(groups: Iterable[str]) -> tuple[Any, type[Any]]:
    """Return the question how far share groups have read, and the type of its answer."""
    module = request_module(*_SHARE_OFFSETS)
    wanted = tuple(
        module.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None) for group in groups
    )
    return module.DescribeShareGroupOffsetsRequest(groups=wanted), response_type(*_SHARE_OFFSETS)


def share_progress(found: Any) -> GroupProgress:
    """Return what DescribeShareGroupOffsets answers about one group: the oldest records that are not done."""
    rows = {
        (str(topic.topic_name), int(row.partition_index)): row
        for topic in found.topics
        for row in topic.partitions
        if not row.error_code and row.start_offset != NO_OFFSET
    }
    return GroupProgress(
        delivered={
            place: ShareDelivery(int(row.start_offset), None, None, None, None, None, None, None)
            for place, row in rows.items()
        },
        lags={place: None if row.lag < 0 else int(row.lag) for place, row in rows.items()},
    )


class ClusterGroups:
    """The groups of a cluster: a `GroupSource` whose coroutines wait for nothing but the network."""

    states: Final = (
        "NotReady",
        "Unknown",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Empty",
        "Assigning",
        "Reconciling",
    )
    now_ms: Final = 0
    """No age is known."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def offline_partitions(self) -> list[int]:
        """No partition: the groups of a coordinator that is out of service are missing."""
        return []

    def rows(self, states: Collection[str]) -> Iterable[GroupRow]:
        """Return the groups; share groups without the number of their members."""
        found = listed(self._cluster)
        wanted = {state.lower() for state in states}
        if wanted:
            found = {name: row for name, row in found.items() if group_state(row).lower() in wanted}
        members = self._member_counts(found)
        return [
            GroupRow(
                group=name,
                state=group_state(row),
                type=group_type(row),
                protocol_type=row["protocol_type"],
                protocol_name=None,
                members=members.get(name),
                committed_partitions=None,
                total_lag=None,
            )
            for name, row in found.items()
        ]

    def _member_counts(self, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        counts = {
            name: len(members_of(self._cluster, name, kind).members)
            for name, row in rows.items()
            if (kind := group_type(row)) in {CONSUMER, STREAMS}
        }
        classic = [name for name, row in rows.items() if group_type(row) == CLASSIC]
        if classic:
            found = _classic_groups(self._cluster, classic)
            counts |= {name: len(told.members) for name, told in found.items() if told.error is None}
        return counts

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        """Return the number of partitions and the lag of all groups but share groups."""
        committed = committed_offsets(self._cluster, [row.group for row in rows if row.type != SHARE])
        ends = await self.ends({place for offsets in committed.values() for place in offsets})
        return {
            name: (len(offsets), sum(known_lags(GroupProgress(offsets), ends).values()))
            for name, offsets in committed.items()
        }

    async def describe(self, group: str) -> GroupDescription:
        groups = listed(self._cluster)
        row = groups.get(group)
        if row is None:
            raise ControlError(f"there is no group {group}{nearest_hint(group, groups)}")
        kind = group_type(row)
        told = members_of(self._cluster, group, kind)
        return GroupDescription(
            group=group,
            state=group_state(row),
            type=kind,
            generation_id=told.group_epoch,
            protocol_type=row["protocol_type"],
            protocol_name=told.assignor,
            members=told.members,
            partitions=[],
            complete=True,
            streams=told.streams,
            topology=list(told.topology),
        )

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        known = listed(self._cluster)
        found = {name: known[name] for name in groups if name in known}
        return {
            name: FoundGroup(group_type(row), group_state(row), group_state(row) in EMPTY_STATES)
            for name, row in found.items()
        }

    async def progress(self, group: str, kind: str) -> GroupProgress:
        """Return the committed offsets, or the oldest records of a share group that are not done."""
        if kind != SHARE:
            return GroupProgress(committed_offsets(self._cluster, [group]).get(group, {}))
        return share_progress(_asked(self._cluster, group, *share_offsets([group])))

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._cluster.offsets(self._led.intersection(places), EARLIEST)

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._cluster.offsets(self._led.intersection(places), LATEST)

    @cached_property
    def _led(self) -> set[TopicPartition]:
        return set(self._cluster.leaders())

    def skipped(self, group: str, place: TopicPartition) -> int:  # noqa: ARG002 - the port has them
        """Return 0: the Kafka protocol does not report it."""
        return 0


# The members of groups. kafka-python can't describe consumer, share and streams groups (KIP-848, KIP-932,
# KIP-1071).


class GroupMembers(NamedTuple):
    """The members of a group, its epoch, its protocol or assignor, and the fields of streams groups."""

    members: list[GroupMember]
    group_epoch: int | None
    assignor: str | None
    streams: StreamsState | None = None
    topology: Sequence[TopologyNode] = ()


_DESCRIBE: Final[Mapping[str, tuple[int, int]]] = {
    CLASSIC: (15, 5),
    CONSUMER: (69, 1),
    SHARE: (77, 1),
    STREAMS: (89, 0),
}
"""The API and the version that describe groups of a type."""


def describing(kind: str, groups: Iterable[str]) -> tuple[Any, type[Any]]:
    """Return the question that describes groups of a type, and the type of its answer."""
    named = {"groups" if kind == CLASSIC else "group_ids": tuple(map(GroupId, groups))}
    request = request_type(*_DESCRIBE[kind])(**named, include_authorized_operations=False)
    return request, response_type(*_DESCRIBE[kind])


def members_of(cluster: Cluster, group: str, kind: str) -> GroupMembers:
    """Return the members of a group of a type. Raises ControlError."""
    if kind not in {CONSUMER, SHARE, STREAMS}:
        return _classic_members(cluster, group)
    asked = describing(kind, [group])
    if kind == STREAMS:
        return streams_members(_asked(cluster, group, *(_with_topology(cluster, group) or asked)))
    found = _asked(cluster, group, *asked)
    members = [
        _member(
            member,
            getattr(member, "instance_id", None),
            {
                str(row.topic_name): sorted(int(index) for index in row.partitions)
                for row in member.assignment.topic_partitions
            },
        )
        for member in found.members
    ]
    return GroupMembers(members, found.group_epoch, found.assignor_name or None)


_FIRST_WITH_TOPOLOGY: Final = 1
"""The first version of StreamsGroupDescribe that has the description of the topology."""


def _with_topology(cluster: Cluster, group: str) -> tuple[Any, type[Any]] | None:
    """Return the question for a streams group with its topology; None where brokers are older than that."""
    for row in api_versions(cluster.reached).api_keys:
        if row.api_key == _DESCRIBE[STREAMS][0] and row.max_version >= _FIRST_WITH_TOPOLOGY:
            key = row.api_key, _FIRST_WITH_TOPOLOGY
            asked = request_type(*key)(
                group_ids=(GroupId(group),),
                include_authorized_operations=False,
                include_topology_description=True,
            )
            return asked, response_type(*key)
    return None


def _asked(cluster: Cluster, group: str, asked: Any, response_type: type[Any]) -> Any:
    """Return what the coordinator answers about the one group of a request."""
    found = ask_coordinator(cluster.reached, group, asked, response_type).groups[0]
    check(found, f"group {found.group_id}: ")
    return found


def _member(
    member: Any,
    instance_id: str | None,
    assignment: dict[str, list[int]] | None,
    streams: StreamsMemberRow | None = None,
) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=None,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment=assignment,
        streams=streams,
    )


class _Classic(NamedTuple):
    """A classic group as DescribeGroups reports it; `error` is the reason of a refusal."""

    members: list[GroupMember]
    protocol: str
    error: str | None


def _classic_members(cluster: Cluster, group: str) -> GroupMembers:
    found = _classic_groups(cluster, [group])[group]
    if found.error is not None:
        raise ControlError(found.error)
    return GroupMembers(found.members, None, found.protocol or None)


def _classic_groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, _Classic]:
    told = cluster.ask_coordinators(
        GROUP, groups, lambda some: describing(CLASSIC, some)[0], response_type(*_DESCRIBE[CLASSIC])
    )
    rows = [group for answer in told or () for group in answer.groups]
    if told is not None and not any(group.error_code for group in rows):
        return {
            str(group.group_id): _classic(group.members, group.protocol_data, _assigned) for group in rows
        }
    return {
        name: _classic(
            [SimpleNamespace(**member) for member in row["members"]],
            row["protocol_data"],
            _decoded,
            None if row["error"] is None else refusal_of_text(row["error"]) or row["error"],
        )
        for name, row in cluster.admin.describe_groups(groups).items()
    }


def _classic(
    members: Iterable[Any],
    protocol: str,
    decoded: Callable[[Any], dict[str, list[int]] | None],
    error: str | None = None,
) -> _Classic:
    found = [_member(each, each.group_instance_id, decoded(each.member_assignment)) for each in members]
    return _Classic(found, protocol, error)


def _assigned(assignment: bytes) -> dict[str, list[int]] | None:
    return assigned_partitions(assignment) if assignment else {}


def _decoded(assignment: Any) -> dict[str, list[int]] | None:
    """Return partitions by topic; None where kafka-python could not decode the assignment."""
    if not assignment:
        return {}
    if not isinstance(assignment, Mapping):
        return None
    return {row["topic"]: list(row["partitions"]) for row in assignment["assigned_partitions"]}


def streams_members(group: described.DescribedGroup) -> GroupMembers:
    """Return the members, tasks and epochs of a streams group from an answer of StreamsGroupDescribe."""
    sources = _sources(group.topology)
    members = []
    for member in group.members:
        tasks = _tasks(member.assignment)
        assignment = {
            topic: partitions
            for subtopology_id, partitions in tasks.active.items()
            for topic in sources.get(subtopology_id, ())
        }
        streams = StreamsMemberRow(
            process_id=member.process_id,
            member_epoch=int(member.member_epoch),
            topology_epoch=int(member.topology_epoch),
            tasks=tasks,
            target=_tasks(member.target_assignment),
        )
        members.append(_member(member, member.instance_id, assignment, streams))
    epoch = None if group.topology is None else int(group.topology.epoch)
    return GroupMembers(
        members,
        int(group.group_epoch),
        None,
        StreamsState(int(group.assignment_epoch), epoch),
        topology_nodes(getattr(group, "topology_description", None)),
    )


def _sources(topology: described.Topology | None) -> dict[str, list[str]]:
    rows = () if topology is None else topology.subtopologies or ()
    return {
        row.subtopology_id: sorted(
            {*map(str, row.source_topics), *(str(topic.name) for topic in row.repartition_source_topics)}
        )
        for row in rows
    }


def _tasks(assignment: described.Assignment) -> StreamsTasks:
    return StreamsTasks(
        *(
            {row.subtopology_id: sorted(int(index) for index in row.partitions) for row in rows}
            for rows in (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
        )
    )
