"""`seqgate groups describe`: a group, its members, and how far it has read.

The request and rows, the command, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError. `members.py` has the members. The
other commands of `seqgate groups` ask `ClusterGroups` and `LiveGroups`, too.

Unlike the control socket of a gateway, the Kafka protocol does not report when an offset was committed, nor
which open transactions hold offsets; these fields stay empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks, flag
from seqgate.gateway.admin.completion import group_names
from seqgate.gateway.admin.groups.members import (
    CLASSIC,
    SHARE,
    GroupMember,
    StreamsState,
    TopologyNode,
    live_members,
    members_of,
    protocol_text,
    topology_nodes,
)
from seqgate.gateway.admin.operation import LiveGateway, as_control_error
from seqgate.gateway.admin.options import Asker, Consent, Opened, consent_by, gateway_or_cluster
from seqgate.gateway.admin.request import (
    ClusterAnswers,
    ControlError,
    Elsewhere,
    PagedRequest,
    from_source,
    nearest_hint,
    page,
)
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
from seqgate.gateway.admin.transactions.pending_offsets import PendingOffset, known_producers, pending_offset

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.group.offsets import HeldOffset
    from seqgate.gateway.coordinator.group.shard import GroupShard
    from seqgate.gateway.coordinator.group.stored_groups import Group as StoredGroup
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.share.share_partition import SharePartition
    from seqgate.gateway.runtime.services import CoordinatorServices

# The request for a group, and what `seqgate groups describe --json` prints.
# Times are milliseconds since the Unix epoch. A value that nobody knows is None.


LONGEST_METADATA: Final = 60
"""Characters of the metadata of a commit that a table shows."""


def _metadata(text: str) -> str:
    """Return a commit's metadata without the zero byte that confluent-kafka for Python puts at its end."""
    return shown(text.rstrip("\0"), LONGEST_METADATA)


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

Group = Annotated[str, argument("GROUP", "The group.id of the consumers.", autocompletion=group_names)]
Consented = Annotated[
    Consent, consent_by(flag("--yes --execute", "Do not ask; --execute is the old spelling."))
]


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


def pending_of_group(pending: Sequence[PendingOffset]) -> Iterator[Block]:
    """Yield the offsets of one group that open transactions hold."""
    if pending:
        yield ""
        yield "Held by open transactions, to be committed with them:"
        columns = "topic partition offset transactional_id producer_id producer_epoch note"
        yield table(PendingOffset, pending, columns)


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


class Committed(NamedTuple):
    """A committed offset; `timestamp_ms` is None where the source does not report the time of the commit."""

    offset: int
    metadata: str | None
    timestamp_ms: int | None = None


class FoundGroup(NamedTuple):
    """A group by its type and state; `members` counts its members, None where the source does not. A cluster
    tells its `protocol_type`.
    """

    type: str
    state: str
    is_empty: bool
    members: int | None = None
    protocol_type: str = ""


class GroupProgress(NamedTuple):
    """The progress of a group by partition: offsets that it committed and that open transactions hold, or
    what was delivered to a share group. `lags` are the lags of a share group where the source reports no done
    records; None: compute them.
    """

    committed: Mapping[TopicPartition, Committed] = {}
    pending: Mapping[TopicPartition, list[PendingOffset]] = {}
    delivered: Mapping[TopicPartition, ShareDelivery] = {}
    lags: Mapping[TopicPartition, int | None] | None = None


def lag_of(committed: Committed | None, high_watermark: int | None) -> int | None:
    """Return how many records a group has not read; 0 when its offset is beyond the high watermark."""
    if committed is None or high_watermark is None:
        return None
    return max(0, high_watermark - committed.offset)


def share_lag(read: GroupProgress, place: TopicPartition, high_watermark: int | None) -> int | None:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    if read.lags is not None:
        return read.lags[place]
    if high_watermark is None:
        return None
    delivered = read.delivered[place]
    return max(0, high_watermark - delivered.start_offset - (delivered.done_records or 0))


def refusal_if_it_has_members(name: str, found: FoundGroup) -> str | None:
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


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, str]:
    return {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }


# Over the Kafka protocol: any cluster's groups, and its answer.

EMPTY_STATES: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""
NO_OFFSET: Final = -1
_LIST, _OFFSETS, _SHARE_OFFSETS = (16, 5, 4), (9, 8), (90, 1, 1)
"""The APIs ListGroups, OffsetFetch and DescribeShareGroupOffsets, with the newest version and the oldest."""


def listed(cluster: Cluster) -> dict[str, FoundGroup]:
    """Return the groups that any broker lists, by group id."""
    found = {}
    for answer in cluster.ask_all(cluster.request(*_LIST, states_filter=(), types_filter=())):
        for row in answer.groups:
            state, kind = str(row.group_state) or "Unknown", getattr(row, "group_type", "") or CLASSIC
            found[str(row.group_id)] = FoundGroup(
                str(kind).lower(), state, state in EMPTY_STATES, protocol_type=str(row.protocol_type)
            )
    return found


def committed_offsets(cluster: Cluster, names: list[str]) -> dict[str, dict[TopicPartition, Committed]]:
    """Return the committed offsets of each group, by partition."""
    from seqgate.gateway.admin.remote.broker import GROUP  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415

    found: dict[str, dict[TopicPartition, Committed]] = {name: {} for name in names}
    for some in asked_at_once(cluster, names):
        for name, group in cluster.ask_coordinators(GROUP, some, partial(offsets, cluster)).items():
            check(group, f"group {name}: ")
            for place, row in committed_rows(group):
                check(row, f"group {name}, {place[0]}-{place[1]}: ")
                found[name][place] = Committed(row.committed_offset, row.metadata)
    return found


def asked_at_once(cluster: Cluster, names: list[str]) -> list[list[str]]:
    """Return the groups of each question for committed offsets; before Kafka 3.0 it is about one group."""
    return [names] if cluster.serves(*_OFFSETS) else [[name] for name in names]


def committed_rows(group: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield what OffsetFetch answers about the partitions of a group, without those that have no offset."""
    for topic in group.topics:
        for row in topic.partitions:
            if row.error_code or row.committed_offset != NO_OFFSET:
                yield (str(topic.name), int(row.partition_index)), row


def offsets(cluster: Cluster, groups: Sequence[str]) -> Any:
    """Return the question for all committed offsets of groups, of one where brokers take one at a time."""
    wanted = [{"group_id": group, "topics": None} for group in groups]
    return cluster.request(*_OFFSETS, groups=wanted, group_id=groups[0], topics=None)


def share_offsets(cluster: Cluster, groups: Iterable[str]) -> Any:
    """Return the question how far share groups have read."""
    wanted = [{"group_id": group, "topics": None} for group in groups]
    return cluster.request(*_SHARE_OFFSETS, groups=wanted)


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
    """The groups of a cluster. The coroutines wait for nothing but the network."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        known = listed(self._cluster)
        return {name: known[name] for name in groups if name in known}

    async def progress(self, group: str, kind: str) -> GroupProgress:
        """Return the committed offsets, or the oldest records of a share group that are not done."""
        if kind != SHARE:
            return GroupProgress(committed_offsets(self._cluster, [group]).get(group, {}))
        return share_progress(self._cluster.ask_coordinator(group, share_offsets(self._cluster, [group])))

    async def starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._cluster.starts(self._led.intersection(places))

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._cluster.ends(self._led.intersection(places))

    @cached_property
    def _led(self) -> set[TopicPartition]:
        return set(self._cluster.leaders())


class ClusterDescriptions(ClusterGroups):
    """The groups of a cluster. The coroutines wait for nothing but the network."""

    now_ms: Final = 0
    """No age is known."""

    async def describe(self, group: str) -> GroupDescription:
        groups = listed(self._cluster)
        found = groups.get(group)
        if found is None:
            raise ControlError(f"there is no group {group}{nearest_hint(group, groups)}")
        told = members_of(self._cluster, group, found.type)
        return GroupDescription(
            group,
            found.state,
            found.type,
            told.group_epoch,
            found.protocol_type,
            told.assignor,
            told.members,
            streams=told.streams,
            topology=list(told.topology),
        )

    def skipped(self, group: str, place: TopicPartition) -> int:  # noqa: ARG002 - the port has them
        """Return 0: the Kafka protocol does not report it."""
        return 0


OPERATIONS: Final[ClusterAnswers] = {DescribeGroupRequest: from_source(ClusterDescriptions, describe_group)}


# In the gateway: the groups that it coordinates, from its own objects, and its answer on the control socket.


class LiveGroups:
    """The groups that this gateway coordinates."""

    def __init__(self, gateway: LiveGateway) -> None:
        from seqgate.gateway.runtime.topics.latest_offsets import LatestOffsets  # noqa: PLC0415 - slow

        services = self.services = gateway.services
        self.partitions = services.partitions.registry
        self.groups = services.coordinators.groups
        self._latest = LatestOffsets(
            self.partitions, services.topics.metadata_log.image, services.node.brokers, services.node.peers
        )

    async def find(self, groups: Iterable[str]) -> Mapping[str, FoundGroup]:
        """Return the groups whose state is durable."""
        found = {group: await self.stored(group) for group in groups}
        return {
            name: FoundGroup(group.type, group.state_text, group.is_empty, len(group.members))
            for name, group in found.items()
            if group is not None
        }

    async def stored(self, group_id: str) -> StoredGroup | None:
        """Return a group once its state is durable."""
        shard = await self._shard(group_id)
        return None if shard is None else shard.find(group_id)

    async def _shard(self, group_id: str) -> GroupShard | None:
        """Return the shard of a group once its state is durable; None while the gateway has no groups."""
        from seqgate.gateway.coordinator.group.offsets import is_name_group  # noqa: PLC0415 - slow to import
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415

        if is_name_group(group_id):
            raise ControlError(
                f"{group_id} is no group but stands for a producer name; `seqgate names` shows its sequence "
                "ids"
            )
        leader = self.groups.shards.leader_of(group_id)
        if self.groups.shards.is_elsewhere(group_id):
            raise Elsewhere(
                f"group {group_id} is coordinated by broker {leader}, not by this gateway; ask that one, or "
                "name the cluster with --bootstrap"
            )
        if OFFSETS_TOPIC not in self.partitions.by_name:
            return None
        with as_control_error(f"group {group_id}", OFFSETS_TOPIC):
            return await self.groups.durable_shard(group_id)

    async def progress(self, group: str, kind: str) -> GroupProgress:
        shard = await self._shard(group)
        if shard is None:
            return GroupProgress()
        read = await self.read_in(shard, group, kind)
        return read._replace(pending=pending_in_group(self.services.coordinators, shard, group))

    async def read_in(self, shard: GroupShard, group: str, kind: str) -> GroupProgress:
        """Return the progress of a group in its shard, without pending offsets."""
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
        from seqgate.gateway.coordinator.share.records import SharePartitionKey  # noqa: PLC0415 - slow
        from seqgate.gateway.metadata.image import SHARE_STATE_TOPIC  # noqa: PLC0415

        topics = self.partitions.by_id
        shares = self.services.coordinators.shares
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
        found = {place: self.partitions.get(*place) for place in places}
        return {
            place: partition.log.log_start_offset
            for place, partition in found.items()
            if partition is not None
        }

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks, also of partitions that other gateways lead."""
        return await self._latest.of(places)


def delivery(found: SharePartition) -> ShareDelivery:
    """Count the records of a partition by their delivery state in the group."""
    from seqgate.gateway.coordinator.share.share_partition import DONE, DeliveryState  # noqa: PLC0415 - slow

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


def pending_in_group(
    coordinators: CoordinatorServices, shard: GroupShard, group_id: str
) -> dict[TopicPartition, list[PendingOffset]]:
    """Return the offsets of a group that open transactions hold, by partition, in the order they came."""
    found = shard.offsets.pending.of_group(group_id)
    if not found:
        return {}
    find = known_producers(coordinators)

    def row(held: HeldOffset) -> PendingOffset:
        known = find(held.producer_id)
        return pending_offset(held, None if known is None else known.transactional_id)

    return {place: [row(held) for held in holders] for place, holders in found.items()}


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
