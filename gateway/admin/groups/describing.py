"""`seqgate groups list` and `describe`: groups, their members, and how far they have read.

The requests and rows, the commands, and the answers, each once for every source: a `GroupSource` says what it
knows of groups. remote.py has the one of any cluster, over the Kafka protocol; live.py has the one of a
running gateway. Functions that answer raise ControlError.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks, flag, option
from seqgate.gateway.admin.completion import group_names
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ControlError, PagedRequest, Request, from_source, page
from seqgate.gateway.admin.tables import (
    NONE,
    UNKNOWN,
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
    from seqgate.gateway.admin.groups.remote import ClusterGroups
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.places import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

# The requests about groups, and what `seqgate groups … --json` prints.
# Times are milliseconds since the Unix epoch. A value that nobody knows is None.


LONGEST_METADATA: Final = 60
"""Characters of the metadata of a commit that a table shows."""


def _metadata(text: str) -> str:
    """Return a commit's metadata without the zero byte that confluent-kafka for Python puts at its end."""
    return shown(text.rstrip("\0"), LONGEST_METADATA)


class GroupRow(msgspec.Struct, frozen=True):
    """A group of type `classic`, `consumer` (KIP-848), `share` (KIP-932) or `streams` (KIP-1071).

    `protocol_name` is the protocol that the members agreed on, None before they agree. `total_lag` counts the
    records between the committed offsets and the high watermarks; of a share group it counts the records that
    are not done, and `committed_partitions` counts the partitions that the group ever read.
    """

    group: Annotated[str, Column("group")]
    state: Annotated[str, Column("state")]
    type: Annotated[str, Column("type")]
    protocol_type: str
    protocol_name: str | None
    members: Annotated[int | None, Column("members", count, UNKNOWN)]
    committed_partitions: Annotated[int | None, Column("partitions", count, UNKNOWN)]
    total_lag: Annotated[int | None, Column("lag", count, UNKNOWN)]

    @property
    def protocol(self) -> Annotated[str, Column("protocol", str)]:
        """The type and the name of the protocol, as text."""
        return protocol_text(self.protocol_type, self.protocol_name)


class GroupPage(msgspec.Struct, frozen=True):
    """Some of the groups; `complete`: no group comes after the last row. `offline_partitions` are the
    partitions of `__consumer_offsets` that are out of service; their groups are missing.
    """

    groups: list[GroupRow]
    complete: bool
    offline_partitions: list[int]


class ListGroupsRequest(PagedRequest[GroupPage], tag="groups.list"):
    """The groups by their ids, from the first one after `after` on; of the named states, or of all states."""

    is_spread = True
    rows = "groups"
    key = "group"
    states: list[str] = msgspec.field(default_factory=list)
    after: str | None = None


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


class ShareDelivery(msgspec.Struct, frozen=True):
    """The progress of a share group in a partition (KIP-932). A record is done when it was accepted, rejected
    or archived.

    `start_offset` is the oldest record that is not done, `end_offset` follows the newest record that was ever
    delivered. The counts are of records between the two: `acquired` records wait for an acknowledgement,
    `waiting` ones for the end of their retry delay, `dying` ones for their dead letter; `holes` are stretches
    of done records, with `done_records` in them. `max_delivery_count` is the highest delivery count of a
    record. Over the Kafka protocol only `start_offset` is known.
    """

    start_offset: Annotated[int, Column("start", number)]
    end_offset: Annotated[int | None, Column("given\nout to", number)]
    acquired: Annotated[int | None, Column("acquired", count)]
    waiting: Annotated[int | None, Column("waiting", count)]
    dying: Annotated[int | None, Column("dying", count)]
    holes: Annotated[int | None, Column("holes", count)]
    done_records: int | None
    max_delivery_count: Annotated[int | None, Column("most\ndeliveries", count)]


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
    partitions: list[GroupPartition]
    complete: bool
    streams: StreamsState | None = None
    topology: list[TopologyNode] = []


class DescribeGroupRequest(PagedRequest[GroupDescription], tag="groups.describe"):
    """One group, with its partitions from the first one after `after` (topic, partition) on."""

    rows = "partitions members topology"
    key = "topic partition"
    group: str
    after: tuple[str, int] | None = None


# The commands.

Group = Annotated[str, argument("GROUP", "The group.id of the consumers.", autocompletion=group_names)]
Yes = Annotated[bool, flag("--yes --execute", "Do not ask; --execute is the old spelling.")]


@asks(gateway_or_cluster)
def list_groups(
    opened: Opened[Asker],
    states: list[str] | None = option(
        "--state", "STATE", "Only groups in this state; may be repeated.", show_default="all"
    ),
) -> Output:
    """List the consumer groups, share groups and streams groups.

    \b
    Columns:
      protocol     how the members share partitions; `-` where no member ever joined
      partitions   with a committed offset; of a share group, the partitions that it ever read
      lag          records after the committed offsets; of a share group, records that are not done

    \b
    States:
      Empty                 it has no members; its offsets can be reset, and it can be deleted
      PreparingRebalance    waits for its members to join again
      CompletingRebalance   waits for the leader to share out the partitions
      Assigning             the gateway is about to share them out (group.protocol=consumer, streams)
      Reconciling           members still revoke or wait for partitions (group.protocol=consumer, streams)
      NotReady              topics are missing or have a wrong number of partitions (group.protocol=streams)
      Stable                its members read
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        page = client.ask(ListGroupsRequest(states or []))
    document = {"groups": page.groups, "offline_partitions": page.offline_partitions}
    return Output(document, _listing_text(page))


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


def _listing_text(page: GroupPage) -> Iterator[Block]:
    yield table(GroupRow, page.groups, "group state type protocol members committed_partitions total_lag")
    yield f"{counted(len(page.groups), 'group')}."
    if page.offline_partitions:
        missing = ranges(page.offline_partitions)
        yield f"Groups are missing: {missing} of __consumer_offsets is offline (seqgate status)."


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


# The answers, from what any source knows of groups.


class Committed(NamedTuple):
    """A committed offset; `timestamp_ms` is None where the source does not report the time of the commit."""

    offset: int
    metadata: str | None
    timestamp_ms: int | None = None


class FoundGroup(NamedTuple):
    """A group by its type and state; `members` counts its members, None where the source does not."""

    type: str
    state: str
    is_empty: bool
    members: int | None = None


class GroupProgress(NamedTuple):
    """The progress of a group by partition: offsets that it committed and that open transactions hold, or
    what was delivered to a share group. `lags` are the lags of a share group where the source reports no done
    records; None: compute them.
    """

    committed: Mapping[TopicPartition, Committed] = {}
    pending: Mapping[TopicPartition, list[PendingOffset]] = {}
    delivered: Mapping[TopicPartition, ShareDelivery] = {}
    lags: Mapping[TopicPartition, int | None] | None = None


class GroupSource(Protocol):
    """Reads and changes the groups of a running gateway or of a cluster. Each method raises ControlError."""

    @property
    def states(self) -> Collection[str]:
        """The states that groups may be in."""

    @property
    def now_ms(self) -> int:
        """The time by which ages are told."""

    @property
    def offline_partitions(self) -> list[int]:
        """The partitions of `__consumer_offsets` that are known to be out of service."""

    def rows(self, states: Collection[str]) -> Iterable[GroupRow]:
        """Return the groups in these states, in any state without one, in no order and without their lags."""

    async def totals(self, rows: Sequence[GroupRow]) -> Mapping[str, tuple[int, int | None]]:
        """Return how many partitions each group has read, and its lag in all of them."""

    async def describe(self, group: str) -> GroupDescription:
        """Return a group with its members and without partitions."""

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        """Return those of the groups that exist."""

    async def progress(self, group: str, kind: str) -> GroupProgress:
        """Return the progress of a group of a type in its partitions."""

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offsets that are known."""

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks that are known."""

    def skipped(self, group: str, place: TopicPartition) -> int:
        """Return how many records the group was moved over unread."""


async def list_groups_of(source: GroupSource, request: ListGroupsRequest) -> GroupPage:
    """Return one page of the groups that the request asks for, by their ids."""
    names = {state.lower(): state for state in source.states}
    for state in request.states:
        if state.lower() not in names:
            raise ControlError(
                f"{state} is not a state of a group; the states are {', '.join(source.states)}"
            )
    found = source.rows({names[state.lower()] for state in request.states})
    rows, complete = page(found, request.after, request.limit, key=lambda row: row.group)
    totals = await source.totals(rows)
    told = [
        msgspec.structs.replace(
            row, committed_partitions=totals[row.group][0], total_lag=totals[row.group][1]
        )
        if row.group in totals
        else row
        for row in rows
    ]
    return GroupPage(told, complete, source.offline_partitions)


async def describe_group(source: GroupSource, request: DescribeGroupRequest) -> GroupDescription:
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
                lag=_lag(committed, end) if delivered is None else _share_lag(read, place, end),
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


def known_lags(read: GroupProgress, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the lag in each partition whose high watermark is known."""
    lags = {place: _lag(committed, ends.get(place)) for place, committed in read.committed.items()}
    lags |= {place: _share_lag(read, place, ends.get(place)) for place in read.delivered}
    return {place: lag for place, lag in lags.items() if lag is not None}


def _lag(committed: Committed | None, high_watermark: int | None) -> int | None:
    """Return how many records a group has not read; 0 when its offset is beyond the high watermark."""
    if committed is None or high_watermark is None:
        return None
    return max(0, high_watermark - committed.offset)


def _share_lag(read: GroupProgress, place: TopicPartition, high_watermark: int | None) -> int | None:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    if read.lags is not None:
        return read.lags[place]
    if high_watermark is None:
        return None
    delivered = read.delivered[place]
    return max(0, high_watermark - delivered.start_offset - (delivered.done_records or 0))


def in_use(name: str, found: FoundGroup) -> str | None:
    """Return the sentence that refuses to change a group with members; None for a group without."""
    if found.is_empty:
        return None
    members = "" if found.members is None else f"{found.members:,} members, "
    if found.members == 1:
        members = "1 member, "
    return (
        f"group {name} is in use: {members}state {found.state}; "
        "stop its consumers, or wait until their sessions end"
    )


def cluster_groups(cluster: Cluster) -> ClusterGroups:
    """Return the groups of a cluster, over the Kafka protocol."""
    from seqgate.gateway.admin.groups.remote import ClusterGroups  # noqa: PLC0415 - slow to import

    return ClusterGroups(cluster)


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    ListGroupsRequest: from_source(cluster_groups, list_groups_of),
    DescribeGroupRequest: from_source(cluster_groups, describe_group),
}
"""The answers of a cluster to the requests of commands."""
