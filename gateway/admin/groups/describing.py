"""`seqgate groups describe`: a group, its members, and how far it has read.

The request and rows, the command, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import Output, asks
from seqgate.gateway.admin.groups.sources import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    ClusterGroups,
    Group,
    LiveGroups,
    ShareDelivery,
    asked_of,
    group_state,
    group_type,
    lag_of,
    listed,
    share_lag,
)
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ControlError, PagedRequest, Request, from_source, nearest_hint, page
from seqgate.gateway.admin.tables import (
    NONE,
    Block,
    Column,
    PartitionNumber,
    TopicName,
    count,
    counted,
    duration,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.transactions.pending import PendingOffset, pending_of_group

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.streams_group_describe.v0 import response as described

    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, Member
    from seqgate.gateway.coordinator.group.stored_groups import Group as StoredGroup
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
    from seqgate.gateway.coordinator.streams.task_assignor import TaskAssignment
    from seqgate.gateway.runtime.partitions.registry import Partitions
    from seqgate.gateway.runtime.services import Services

# The request for a group, and what `seqgate groups describe --json` prints.
# Times are milliseconds since the Unix epoch. A value that nobody knows is None.


LONGEST_METADATA: Final = 60
"""Characters of the metadata of a commit that a table shows."""


def _metadata(text: str) -> str:
    """Return a commit's metadata without the zero byte that confluent-kafka for Python puts at its end."""
    return shown(text.rstrip("\0"), LONGEST_METADATA)


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


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition in which a group has a committed offset, an assignment (to the member `member_id`), or
    pending offsets.

    `pending` are the offsets that open transactions hold, in the order they came. The log's offsets are None
    when the partition is gone, the commit's values when the group has no committed offset. `lag` is never
    negative. A share group commits no offset and may have several readers of a partition. It has `delivery`
    instead, None before its first read, and its `lag` counts the records that are not done. `skipped` counts
    the records that message TTL or a backlog quota moved the group over unread since the gateway started.
    """

    topic: TopicName
    partition: PartitionNumber
    committed_offset: Annotated[int | None, Column("committed", number)]
    log_start_offset: Annotated[int | None, Column("log\nstart", number)]
    high_watermark: Annotated[int | None, Column("log\nend", number)]
    lag: Annotated[int | None, Column("lag", count)]
    metadata: Annotated[str | None, Column("metadata", _metadata, "")]
    commit_timestamp: int | None
    age_ms: Annotated[int | None, Column("age", duration)]
    member_id: str | None
    pending: list[PendingOffset]
    delivery: ShareDelivery | None
    skipped: int = 0

    @property
    def is_outside(self) -> bool:
        """Whether the committed offset is known to be outside of the log."""
        committed, start, end = self.committed_offset, self.log_start_offset, self.high_watermark
        return (
            committed is not None and start is not None and end is not None and not start <= committed <= end
        )


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with some of its partitions; `complete`: no partition comes after the last row.

    `generation_id` is the epoch of a consumer, share or streams group. `members` and `topology` come with the
    first partitions only; a group without a description of its topology has no `topology`.
    """

    group: str
    state: str
    type: str
    generation_id: int | None
    protocol_type: str
    protocol_name: str | None
    members: list[GroupMember]
    partitions: list[GroupPartition] = []
    complete: bool = True
    streams: StreamsState | None = None
    topology: list[TopologyNode] = []


class DescribeGroupRequest(PagedRequest[GroupDescription], tag="groups.describe"):
    """One group, with its partitions from the first one after `after` (topic, partition) on."""

    rows = "partitions members topology"
    key = "topic partition"
    group: str
    after: tuple[str, int] | None = None


# The command.


@asks(gateway_or_cluster)
def describe(opened: Opened[Asker], group: Group) -> Output:
    """Show a group's members and how far the group has read.

    \b
    Columns of the partitions:
      committed    the offset of the next record the group will read; `-`: none, auto.offset.reset decides
      log start    the oldest record of the log
      log end      after the newest record that consumers can see (the high watermark)
      lag          records from the committed offset to the log end
      age          time since the commit
      metadata     what the consumer wrote beside the offset

    A second table lists the offsets that open transactions hold, with the transaction of each. They are
    committed or dropped with the transaction.

    `kafka-consumer-groups.sh --describe` shows the same, with CURRENT-OFFSET for `committed`.

    \b
    Columns of the partitions of a share group (a record is done when accepted, rejected or archived):
      start             the oldest record that is not done; `-`: the group has not read the partition yet
      given out to      after the newest record that was ever delivered to a member
      log end           after the newest record that consumers can see (the high watermark)
      lag               records that are not done
      acquired          records delivered to a member that has not acknowledged them yet
      waiting           released records that wait for the end of their delay (`seqgate help dead-letters`)
      dying             records whose dead letter is not written yet
      holes             stretches of records that are done, after the start
      most deliveries   the highest delivery count of a record after the start

    \b
    Columns of the members of a streams group:
      process           the instance of the application; each of its threads is a member
      epoch             the group epoch of the assignment that the member has adopted
      topology epoch    the topology that the member runs
      active            tasks that it processes, as partitions by subtopology
      standby           tasks whose state it follows, ready to take them over
      warm-up           tasks whose state it follows until they move to it

    \b
    Columns of the topology of a streams group, which Kafka Streams 4.4 describes (KIP-1331):
      subtopology       a connected part; each has a task for each partition. `global`: a global store
      node              as Topology#describe() of the application names it
      topics            that a source reads, or a sink writes; `-`: known at run time only
      next              the nodes that get its records
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        description = client.ask(DescribeGroupRequest(group))
    return Output(description, description_text(description))


# The text for people. Names that clients choose are escaped for the terminal.


def description_text(description: GroupDescription) -> Iterator[Block]:
    """Yield a group: its state, its members, its partitions."""
    members = counted(len(description.members), "member")
    yield (
        f"Group {shown(description.group)} ({description.type}): {description.state}, {members}, "
        f"{_epochs(description)}protocol "
        f"{protocol_text(description.protocol_type, description.protocol_name)}."
    )
    yield ""
    if description.members:
        yield from _members_text(description)
        yield ""
    if description.type == SHARE:
        yield from _share_partitions_text(description.partitions)
    else:
        yield from _partitions_text(description.partitions)
        yield from pending_of_group([held for row in description.partitions for held in row.pending])
    if description.topology:
        yield ""
        yield table(TopologyNode, description.topology, "subtopology name type topics stores successors")
    skipped = sum(row.skipped for row in description.partitions)
    if skipped:
        yield (
            f"{counted(skipped, 'record')} skipped unread since the gateway started, by message.ttl.ms or a "
            "backlog quota (seqgate backlog TOPIC)."
        )


def _epochs(description: GroupDescription) -> str:
    if description.generation_id is None:
        return ""
    if description.streams is None:
        return f"generation {description.generation_id}, "
    epoch = description.streams.topology_epoch
    return (
        f"group epoch {description.generation_id}, assignment epoch {description.streams.assignment_epoch}, "
        f"topology epoch {NONE if epoch is None else epoch}, "
    )


def _members_text(description: GroupDescription) -> Iterator[Block]:
    members = description.members
    if description.streams is None:
        columns = "name group_instance_id client_id client_host session_timeout_ms assignment"
        yield table(GroupMember, members, columns)
        return
    yield table(
        GroupMember,
        [member for member in members if member.streams is not None],
        "member_id group_instance_id client_id client_host streams.process_id streams.member_epoch "
        "streams.topology_epoch streams.tasks.active streams.tasks.standby streams.tasks.warmup",
    )
    moving = [
        each for each in members if each.streams is not None and each.streams.tasks != each.streams.target
    ]
    if moving:
        names = ", ".join(shown(member.member_id) for member in moving)
        yield f"Tasks are moving from or to {names}; --json shows the target."


def _partitions_text(partitions: Sequence[GroupPartition]) -> Iterator[Block]:
    yield table(
        GroupPartition,
        partitions,
        "topic partition committed_offset log_start_offset high_watermark lag age_ms metadata",
    )
    lag = sum(row.lag or 0 for row in partitions)
    yield f"{counted(len(partitions), 'partition')}, {counted(lag, 'record')} to read."
    outside = sum(row.is_outside for row in partitions)
    if outside:
        yield (
            f"{counted(outside, 'committed offset')} outside of the log: auto.offset.reset decides where the "
            "group continues."
        )


def _share_partitions_text(partitions: Sequence[GroupPartition]) -> Iterator[Block]:
    yield table(
        GroupPartition,
        partitions,
        "topic partition delivery.start_offset delivery.end_offset high_watermark lag delivery.acquired "
        "delivery.waiting delivery.dying delivery.holes delivery.max_delivery_count",
    )
    lag = sum(row.lag or 0 for row in partitions)
    acquired = sum(row.delivery.acquired or 0 for row in partitions if row.delivery is not None)
    yield (
        f"{counted(len(partitions), 'partition')}, {counted(lag, 'record')} to acknowledge, "
        f"{acquired:,} of them acquired."
    )


# The answer, from what any source knows of groups.


async def describe_group(
    source: ClusterDescriptions | LiveDescriptions, request: DescribeGroupRequest
) -> GroupDescription:
    """Return a group with one page of its partitions; the first page has its members."""
    group = await source.describe(request.group)
    read = await source.progress(request.group, group.type)
    owners = _owners(group.members)
    found = {*read.committed, *read.pending, *read.delivered, *owners}
    places, complete = page(found, request.after, request.limit, key=lambda place: place)
    ends, starts = await source.ends(places), await source.starts(places)
    now_ms = source.now_ms
    rows = []
    for place in places:
        committed, delivered, end = read.committed.get(place), read.delivered.get(place), ends.get(place)
        time_ms = None if committed is None else committed.timestamp_ms
        rows.append(
            GroupPartition(
                *place,
                committed_offset=None if committed is None else committed.offset,
                log_start_offset=starts.get(place),
                high_watermark=end,
                lag=lag_of(committed, end) if delivered is None else share_lag(read, place, end),
                metadata=None if committed is None else committed.metadata,
                commit_timestamp=time_ms,
                age_ms=None if time_ms is None else max(0, now_ms - time_ms),
                member_id=None if group.type == SHARE else owners.get(place),
                pending=read.pending.get(place, []),
                delivery=delivered,
                skipped=source.skipped(request.group, place),
            )
        )
    if request.after is not None:
        group = msgspec.structs.replace(group, members=[], topology=[])
    return msgspec.structs.replace(group, partitions=rows, complete=complete)


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


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, str]:
    return {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }


# Over the Kafka protocol: any cluster's answer. kafka-python describes no consumer, share and streams groups.


class ClusterDescriptions(ClusterGroups):
    """The groups of a cluster. The coroutines wait for nothing but the network."""

    now_ms: Final = 0
    """No age is known."""

    async def describe(self, group: str) -> GroupDescription:
        groups = listed(self._cluster)
        row = groups.get(group)
        if row is None:
            raise ControlError(f"there is no group {group}{nearest_hint(group, groups)}")
        kind = group_type(row)
        told = members_of(self._cluster, group, kind)
        return GroupDescription(
            group,
            group_state(row),
            kind,
            told.group_epoch,
            row["protocol_type"],
            told.assignor,
            told.members,
            streams=told.streams,
            topology=list(told.topology),
        )

    def skipped(self, group: str, place: TopicPartition) -> int:  # noqa: ARG002 - the port has them
        """Return 0: the Kafka protocol does not report it."""
        return 0


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    DescribeGroupRequest: from_source(ClusterDescriptions, describe_group)
}
"""The answers to the requests of commands."""


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


def describing(
    kind: str, groups: Iterable[str], version: int | None = None, **fields: Any
) -> tuple[Any, type[Any]]:
    """Return the question that describes groups of a type, and the type of its answer."""
    from seqgate.gateway.protocol.messages import request_type, response_type  # noqa: PLC0415 - slow to import

    key, usual = _DESCRIBE[kind]
    asked = key, usual if version is None else version
    fields["groups" if kind == CLASSIC else "group_ids"] = tuple(groups)
    return request_type(*asked)(include_authorized_operations=False, **fields), response_type(*asked)


def members_of(cluster: Cluster, group: str, kind: str) -> GroupMembers:
    """Return the members of a group of a type. Raises ControlError."""
    if kind not in {CONSUMER, SHARE, STREAMS}:
        return _classic_members(cluster, group)
    asked = describing(kind, [group])
    if kind == STREAMS:
        return streams_members(asked_of(cluster, group, *(_with_topology(cluster, group) or asked)))
    found = asked_of(cluster, group, *asked)
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


_FIRST_WITH_TOPOLOGY: Final = 1
"""The first version of StreamsGroupDescribe that has the description of the topology."""


def _with_topology(cluster: Cluster, group: str) -> tuple[Any, type[Any]] | None:
    """Return the question for a streams group with its topology; None where brokers are older than that."""
    from seqgate.gateway.admin.remote.broker import api_versions  # noqa: PLC0415 - slow to import

    known = {int(row.api_key): int(row.max_version) for row in api_versions(cluster.reached).api_keys}
    if known.get(_DESCRIBE[STREAMS][0], 0) < _FIRST_WITH_TOPOLOGY:
        return None
    return describing(STREAMS, [group], _FIRST_WITH_TOPOLOGY, include_topology_description=True)


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


class _Classic(NamedTuple):
    """A classic group as DescribeGroups reports it; `error` is the reason of a refusal."""

    members: list[GroupMember]
    protocol: str
    error: str | None


def _classic_members(cluster: Cluster, group: str) -> GroupMembers:
    found = classic_groups(cluster, [group])[group]
    if found.error is not None:
        raise ControlError(found.error)
    return GroupMembers(found.members, None, found.protocol or None)


def classic_groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, _Classic]:
    """Return the classic groups, by group id."""
    from seqgate.gateway.admin.remote.broker import GROUP  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import refusal_of_text  # noqa: PLC0415
    from seqgate.gateway.protocol.messages import response_type  # noqa: PLC0415

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
    found = [
        _member(each, each, decoded(each.member_assignment), instance_id=each.group_instance_id)
        for each in members
    ]
    return _Classic(found, protocol, error)


def _assigned(assignment: bytes) -> dict[str, list[int]] | None:
    from seqgate.gateway.coordinator.group.consumer_assignors import assigned_partitions  # noqa: PLC0415

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


# In the gateway: its answer on the control socket.


class LiveDescriptions(LiveGroups):
    """The groups that this gateway coordinates."""

    @property
    def now_ms(self) -> int:
        return self.services.node.clock.now_ms()

    async def describe(self, group: str) -> GroupDescription:
        """Return a group once its state is durable."""
        from seqgate.gateway.coordinator.streams.group import StreamsGroup  # noqa: PLC0415 - slow to import
        from seqgate.gateway.coordinator.streams.topology_description import current_description  # noqa: PLC0415

        found = await self.stored(group)
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
            live_members(found, self.services),
            streams=streams,
            topology=topology_nodes(topology),
        )

    def skipped(self, group: str, place: TopicPartition) -> int:
        """Return how many records message TTL or a backlog quota moved the group over."""
        return self.services.upkeep.backlog.skipped.of(group, place).total


def live_members(group: StoredGroup, services: Services) -> list[GroupMember]:
    """Return the members of a group with their assignments."""
    from seqgate.gateway.coordinator.group.classic_group import ClassicGroup  # noqa: PLC0415 - slow to import
    from seqgate.gateway.coordinator.group.share_group import ShareGroup  # noqa: PLC0415
    from seqgate.gateway.coordinator.streams.group import StreamsGroup  # noqa: PLC0415

    if isinstance(group, ClassicGroup):
        return [_live_classic(group, member) for member in group.members.values()]
    partitions = services.partitions.registry
    timeout_ms = services.node.config.int(f"group.{group.type}.session.timeout.ms")
    if isinstance(group, ShareGroup):
        return [
            _member(
                member,
                member.value,
                _assignment(member.current.assigned, partitions),
                session_timeout_ms=timeout_ms,
            )
            for member in group.members.values()
        ]
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
            member,
            _assignment(member.assigned, partitions),
            instance_id=member.instance_id,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
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
