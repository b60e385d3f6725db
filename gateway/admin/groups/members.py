"""The members of a group: their rows, and how a cluster or a running gateway reports them. Functions raise
ControlError.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from seqgate.gateway.admin.tables import NONE, Column, duration, number, shown

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.streams_group_describe.v0 import response as described

    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, Member
    from seqgate.gateway.coordinator.group.stored_groups import Group as StoredGroup
    from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
    from seqgate.gateway.coordinator.streams.task_assignor import TaskAssignment
    from seqgate.gateway.runtime.partitions.registry import Partitions
    from seqgate.gateway.runtime.services import Services

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"


def protocol_text(protocol_type: str, protocol_name: str | None) -> str:
    """Return the type and the name of a protocol as text."""
    return shown(", ".join(filter(None, (protocol_type, protocol_name)))) or NONE


def assigned(assignment: dict[str, list[int]] | None) -> str:
    """Return partitions by topic: `flights 0-3, 7; orders 0`."""
    if assignment is None:
        return "not readable"
    parts = (f"{shown(topic)} {ranges(partitions)}" for topic, partitions in assignment.items() if partitions)
    return "; ".join(parts) or NONE


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with ranges for neighbours: `0-3, 7`."""
    runs = itertools.groupby(enumerate(sorted(set(numbers))), key=lambda entry: entry[1] - entry[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


class StreamsTasks(msgspec.Struct, frozen=True):
    """The tasks of a member of a streams group (KIP-1071), as partitions by subtopology."""

    active: Annotated[dict[str, list[int]], Column("active", assigned)]
    standby: Annotated[dict[str, list[int]], Column("standby", assigned)]
    warmup: Annotated[dict[str, list[int]], Column("warm-up", assigned)]


class StreamsMemberRow(msgspec.Struct, frozen=True):
    """The fields of a member that only streams groups have. `target` is its tasks after the rebalance."""

    process_id: Annotated[str, Column("process")]
    member_epoch: Annotated[int, Column("epoch", number)]
    topology_epoch: Annotated[int, Column("topology\nepoch", number)]
    tasks: StreamsTasks
    target: StreamsTasks


class StreamsState(msgspec.Struct, frozen=True):
    """The fields of a group that only streams groups have. `topology_epoch` is None while the group has no
    topology. An assignment epoch below the group epoch means that the coordinator has not computed the
    assignment yet.
    """

    assignment_epoch: int
    topology_epoch: int | None


def _names(names: Iterable[str]) -> str:
    return shown(", ".join(names)) or NONE


class TopologyNode(msgspec.Struct, frozen=True):
    """A node of the topology of a streams group, as its members describe it (KIP-1331).

    `topics` are those that a source reads, or the one that a sink writes; a node that finds its topics at run
    time has none. A global store has a source and a processor, whose `subtopology` is None.
    """

    subtopology: Annotated[str | None, Column("subtopology", none="global")]
    name: Annotated[str, Column("node")]
    type: Annotated[Literal["source", "processor", "sink"], Column("type")]
    topics: Annotated[list[str], Column("topics", _names)]
    stores: Annotated[list[str], Column("stores", _names)]
    successors: Annotated[list[str], Column("next", _names)]


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group. `assignment` is partitions by topic, None where the gateway can't decode it.

    `rebalance_timeout_ms` is None in a share group, which never waits for its members to revoke partitions.
    In a streams group `assignment` has the partitions that the active tasks read.
    """

    member_id: Annotated[str, Column("member")]
    group_instance_id: Annotated[str | None, Column("instance")]
    client_id: Annotated[str, Column("client")]
    client_host: Annotated[str, Column("host")]
    session_timeout_ms: Annotated[int | None, Column("session", duration)]
    rebalance_timeout_ms: int | None
    is_leader: bool
    assignment: Annotated[dict[str, list[int]] | None, Column("assigned", assigned, "not readable")]
    streams: StreamsMemberRow | None = None

    @property
    def name(self) -> Annotated[str, Column("member")]:
        """The id of the member, marked if it leads the group."""
        return self.member_id + (" (leader)" if self.is_leader else "")


_NODE_TYPES: Final[Mapping[int, Any]] = {1: "source", 2: "processor", 3: "sink"}


def topology_nodes(description: Any) -> list[TopologyNode]:
    """Return the nodes of a description, of Kafka's protocol or of the coordinator; none for None."""
    if description is None:
        return []
    nodes = [(part.subtopology_id, node) for part in description.subtopologies for node in part.nodes]
    nodes += [(None, node) for store in description.global_stores for node in (store.source, store.processor)]
    return [
        TopologyNode(
            subtopology=subtopology,
            name=node.name,
            type=_NODE_TYPES[node.node_type],
            topics=[*node.source_topics, *([] if node.sink_topic is None else [node.sink_topic])],
            stores=list(node.stores),
            successors=list(node.successors),
        )
        for subtopology, node in nodes
        if node.node_type in _NODE_TYPES
    ]


# Over the Kafka protocol.


class GroupMembers(NamedTuple):
    """The members of a group, its epoch, its protocol or assignor, and the fields of streams groups."""

    members: list[GroupMember]
    group_epoch: int | None
    assignor: str | None
    streams: StreamsState | None = None
    topology: Sequence[TopologyNode] = ()


_DESCRIBE: Final[Mapping[str, tuple[int, int, int]]] = {
    CLASSIC: (15, 5, 0),
    CONSUMER: (69, 1, 0),
    SHARE: (77, 1, 1),
    STREAMS: (89, 1, 0),
}
"""The API that describes groups of a type, its newest version, and the oldest one."""


def describing(cluster: Cluster, kind: str, groups: Iterable[str], *, with_topology: bool = False) -> Any:
    """Return the question that describes groups of a type; brokers that describe topologies add those of
    streams groups.
    """
    names = tuple(groups)
    return cluster.request(
        *_DESCRIBE[kind],
        groups=names,
        group_ids=names,
        include_authorized_operations=False,
        include_topology_description=with_topology,
    )


def members_of(cluster: Cluster, group: str, kind: str) -> GroupMembers:
    """Return the members of a group of a type. Raises ControlError."""
    if kind not in {CONSUMER, SHARE, STREAMS}:
        kind = CLASSIC
    found = cluster.ask_coordinator(group, describing(cluster, kind, [group], with_topology=True))
    if kind == CLASSIC:
        return GroupMembers(_classic_members(found), None, found.protocol_data or None)
    if kind == STREAMS:
        return streams_members(found)
    members = [
        _member(
            member,
            member,
            {
                str(row.topic_name): sorted(int(index) for index in row.partitions)
                for row in member.assignment.topic_partitions
            },
            instance_id=getattr(member, "instance_id", None),
        )
        for member in found.members
    ]
    return GroupMembers(members, found.group_epoch, found.assignor_name or None)


def _member(
    member: Any,
    client: Any,
    assignment: dict[str, list[int]] | None,
    *,
    instance_id: str | None = None,
    session_timeout_ms: int | None = None,
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


def _classic_members(group: Any) -> list[GroupMember]:
    from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions  # noqa: PLC0415

    return [
        _member(
            member,
            member,
            assigned_partitions(member.member_assignment) if member.member_assignment else {},
            instance_id=member.group_instance_id,
        )
        for member in group.members
    ]


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
        members.append(_member(member, member, assignment, instance_id=member.instance_id, streams=streams))
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


# In the gateway: from its own objects.


def live_members(group: StoredGroup, services: Services) -> list[GroupMember]:
    """Return the members of a group with their assignments."""
    from seqgate.gateway.coordinator.group.classic_group import ClassicGroup  # noqa: PLC0415 - slow to import
    from seqgate.gateway.coordinator.streams.group import StreamsGroup  # noqa: PLC0415

    if isinstance(group, ClassicGroup):
        return [_live_classic(group, member) for member in group.members.values()]
    partitions = services.partitions.registry
    timeout_ms = services.node.config.int(f"group.{group.type}.session.timeout.ms")
    if isinstance(group, StreamsGroup):
        return [
            _member(
                member,
                member.value,
                _read_by(group, member, partitions),
                instance_id=member.value.instance_id,
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=member.value.rebalance_timeout_ms,
                streams=_live_streams(group, member),
            )
            for member in group.members.values()
        ]
    return [
        _member(
            member,
            member.value,
            _assignment(member.current.assigned, partitions),
            instance_id=member.group_instance_id,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=getattr(member.value, "rebalance_timeout_ms", None),
        )
        for member in group.members.values()
    ]


def _live_classic(group: ClassicGroup, member: Member) -> GroupMember:
    from seqgate.gateway.coordinator.group.consumer_assignors import CONSUMER_PROTOCOL, assigned_partitions  # noqa: PLC0415 - slow to import

    assignment: dict[str, list[int]] | None = None
    if not member.assignment:
        assignment = {}
    elif group.protocol_type == CONSUMER_PROTOCOL:
        assignment = assigned_partitions(member.assignment)
    return _member(
        member,
        member,
        assignment,
        instance_id=member.group_instance_id,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        is_leader=member.member_id == group.leader,
    )


def _assignment(assigned: Iterable[tuple[UUID, int]], partitions: Partitions) -> dict[str, list[int]]:
    from seqgate.gateway.coordinator.places import by_topic  # noqa: PLC0415 - slow to import

    topics = partitions.by_id
    return {
        topics[topic_id].name: sorted(indexes)
        for topic_id, indexes in by_topic(assigned).items()
        if topic_id in topics
    }


def _read_by(group: StreamsGroup, member: StreamsMember, partitions: Partitions) -> dict[str, list[int]]:
    from seqgate.gateway.coordinator.places import by_topic  # noqa: PLC0415 - slow to import

    tasks = by_topic(member.current.assigned.active)
    found: dict[str, list[int]] = {}
    for topic, subtopology_id in sorted(group.topology.subtopology_of.items() if group.topology else ()):
        served = partitions.by_name.get(topic)
        if served is not None and subtopology_id in tasks:
            found[topic] = [index for index in tasks[subtopology_id] if index < served.count]
    return found


def _live_streams(group: StreamsGroup, member: StreamsMember) -> StreamsMemberRow:
    from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT  # noqa: PLC0415 - slow

    return StreamsMemberRow(
        process_id=member.value.process_id,
        member_epoch=member.current.member_epoch,
        topology_epoch=member.value.topology_epoch,
        tasks=_live_tasks(member.current.assigned.tasks),
        target=_live_tasks(group.targets.get(member.member_id, NO_ASSIGNMENT)),
    )


def _live_tasks(tasks: TaskAssignment) -> StreamsTasks:
    from seqgate.gateway.coordinator.places import by_topic  # noqa: PLC0415 - slow to import

    return StreamsTasks(by_topic(tasks.active), by_topic(tasks.standby), by_topic(tasks.warmup))
