"""`seqgate groups`: consumer groups and streams groups with their committed offsets, and share groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from seqgate.gateway.admin.commands import AsJson, Commands, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.completion import group_names, topic_names
from seqgate.gateway.admin.options import Asker, DryRun, Opened, carried_out, gateway_or_cluster
from seqgate.gateway.admin.request import PagedRequest, Request
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
    moment,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.times import timestamp_ms
from seqgate.gateway.admin.transactions.pending import PendingOffset, pending_of_group

app = Commands("""Look at and administer consumer groups, share groups and streams groups.

The consumers of a group share the partitions of their topics among themselves, \
and commit how far they have read: per
partition the offset of the next record. A group without members keeps its offsets \
until its consumers come back or
offsets.retention.minutes are over.

The consumers of a share group read the same partitions together and acknowledge record by record (KIP-932).

The instances of a Kafka Streams application with group.protocol=streams are a streams group: \
they share tasks, each of which
reads one partition of the topics of its subtopology (KIP-1071).

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap.
""")

Group = Annotated[str, argument("GROUP", "The group.id of the consumers.", autocompletion=group_names)]
Yes = Annotated[bool, flag("--yes --execute", "Do not ask; --execute is the old spelling.")]


@app.command("list")
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


@app.command("describe")
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


@app.command("reset")
@asks(gateway_or_cluster)
def reset(
    opened: Opened[Asker],
    group: Group,
    topics: list[str] | None = option(
        "--topic",
        "TOPIC[:P,P]",
        "The topic, or these partitions of it; may be repeated.",
        autocompletion=topic_names,
    ),
    all_topics: bool = flag("--all-topics", "Every partition in which the group has a committed offset."),
    earliest: bool = flag("--to-earliest", "To the oldest record, to read everything again."),
    latest: bool = flag("--to-latest", "To the log end, to skip all present records."),
    timestamp: str | None = option(
        "--to-timestamp",
        "MOMENT",
        "To the first record at or after a time: 2026-01-31T13:45:00 (local time, or with Z or "
        "+02:00), or milliseconds.",
    ),
    shift: int | None = option(
        "--shift-by", "N", "By N offsets from the committed one: forward, or back with -N."
    ),
    offset: int | None = option("--to-offset", "N", "To this offset."),
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Output:
    """Reset a group's offsets.

    Shows the new offset of each partition, and asks; then commits all of them, or none. With --json the
    command never asks: without --yes it only reports. The group must have no members, so stop its consumers
    first. An offset outside of the log is clamped to the log start or end, and marked. A group that does not
    exist yet is created with these offsets, before its consumers start.

    Not for share groups: kafka-share-groups.sh --reset-offsets sets where they continue.

    \b
    For example:
      seqgate groups reset billing --all-topics --to-earliest
      seqgate groups reset billing --topic orders:0,3 --shift-by -100 --dry-run
      seqgate groups reset billing --topic orders --to-timestamp 2026-01-31T13:45:00Z --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    if bool(topics) == all_topics:
        raise stop("name either topics with --topic, or --all-topics", code=2)
    try:
        target, value = reset_target(
            earliest=earliest, latest=latest, timestamp=timestamp, shift=shift, offset=offset
        )
        selections = None if topics is None else topic_selections(topics)
    except ValueError as error:
        raise stop(str(error), code=2) from None

    def text(done: OffsetReset) -> Iterator[Block]:
        return _reset_text(done, value if target == "timestamp" else None)

    with opened as client:
        done = carried_out(
            lambda execute: client.ask(ResetOffsetsRequest(group, target, value, selections, execute)),
            text,
            "Commit these offsets?",
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
        )
    return Output(done, text(done))


@app.command("delete")
@asks(gateway_or_cluster)
def delete(
    opened: Opened[Asker],
    groups: list[str] = argument("GROUP", "Names of groups to delete.", autocompletion=group_names),
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Output:
    """Delete groups with their offsets, or with what a share group has acknowledged.

    Shows which groups it would delete, and asks. With --json the command never asks: without --yes it only
    reports. A group with members is never deleted. Consumers that return to a deleted group begin at
    auto.offset.reset. Exits with 1 when a group can't be deleted.
    """
    with opened as client:
        done = carried_out(
            lambda execute: client.ask(DeleteGroupsRequest(groups, execute)),
            _deletions_text,
            "Delete them?",
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            is_needed=lambda planned: any(entry.refusal is None for entry in planned.groups),
        )
    refusals = [shown(entry.refusal) for entry in done.groups if entry.refusal is not None]
    return Output(done, _deletions_text(done), refusals=refusals)


# Parses the options of `seqgate groups reset`. Raises ValueError with a sentence.

TARGETS: Final = ("--to-earliest", "--to-latest", "--to-timestamp", "--shift-by", "--to-offset")


def reset_target(
    *, earliest: bool, latest: bool, timestamp: str | None, shift: int | None, offset: int | None
) -> tuple[ResetTarget, int]:
    """Return the one target that is given, with its value."""
    given: list[tuple[ResetTarget, int]] = []
    if earliest:
        given.append(("earliest", 0))
    if latest:
        given.append(("latest", 0))
    if timestamp is not None:
        given.append(("timestamp", timestamp_ms(timestamp)))
    if shift is not None:
        given.append(("shift", shift))
    if offset is not None:
        given.append(("offset", offset))
    if len(given) != 1:
        raise ValueError(f"name exactly one of {', '.join(TARGETS)}")
    return given[0]


def topic_selections(texts: Sequence[str]) -> list[TopicSelection]:
    """Parse `TOPIC`, which means all its partitions, or `TOPIC:0,3`; selections of one topic are joined."""
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} has no topic name")
        if not colon:
            wanted[topic] = None
            continue
        partitions = [_partition(text, number) for number in numbers.split(",")]
        known = wanted.setdefault(topic, [])
        if known is not None:
            known.extend(partitions)
    return [TopicSelection(topic, partitions) for topic, partitions in wanted.items()]


def _partition(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a topic with partitions; write TOPIC:0,3")
    return int(number)


# The text for people. Names that clients choose are escaped for the terminal.

SHARE: Final = "share"


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


def _reset_text(done: OffsetReset, time_ms: int | None) -> Iterator[Block]:
    """Yield the new offset of each partition; `time_ms` is the time to which the offsets move."""
    if time_ms is not None:
        yield f"To the first record not older than {moment(time_ms)} (local time)."
        yield ""
    yield table(OffsetChange, done.changes)
    group, partitions = shown(done.group), counted(len(done.changes), "partition")
    if done.state is None:
        yield f"Group {group} did not exist." if done.executed else f"Group {group} does not exist yet."
    if done.executed:
        yield f"The offsets of group {group} in {partitions} are committed."
    else:
        yield f"Offsets of group {group} to commit: {partitions}."


def _deletions_text(done: GroupDeletions) -> Iterator[Block]:
    yield table(GroupDeletion, done.groups)


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


class TopicSelection(msgspec.Struct, forbid_unknown_fields=True):
    """A topic and some of its partitions; None: all partitions."""

    topic: str
    partitions: list[int] | None = None


ResetTarget: TypeAlias = Literal["earliest", "latest", "timestamp", "shift", "offset"]
"""The place to which a reset moves offsets. `timestamp`, `shift` and `offset` need a value."""


class OffsetChange(msgspec.Struct, frozen=True):
    """The new offset of one partition; `note` says why it differs from what the operator asked for."""

    topic: TopicName
    partition: PartitionNumber
    committed_offset: Annotated[int | None, Column("committed", number)]
    new_offset: Annotated[int, Column("new\noffset", number)]
    log_start_offset: Annotated[int, Column("log\nstart", number)]
    high_watermark: Annotated[int, Column("log\nend", number)]
    note: Annotated[str | None, Column("note", none="")]


class OffsetReset(msgspec.Struct, frozen=True):
    """A reset, `executed` or only planned. `state` is None when the group did not exist."""

    group: str
    state: str | None
    executed: bool
    changes: list[OffsetChange]


class ResetOffsetsRequest(Request[OffsetReset], tag="groups.reset"):
    """Commit other offsets for a group without members; without `execute` only report the offsets. `topics`
    None means every partition in which the group has a committed offset.
    """

    group: str
    target: ResetTarget
    value: int = 0
    topics: list[TopicSelection] | None = None
    execute: bool = False


class GroupDeletion(msgspec.Struct, frozen=True):
    """The outcome for one group; `refusal`: why it can't be deleted. `state` is None for an unknown group."""

    group: Annotated[str, Column("group")]
    state: Annotated[str | None, Column("state")]
    committed_partitions: Annotated[int, Column("partitions", count)]
    deleted: bool
    refusal: str | None

    @property
    def outcome(self) -> Annotated[str, Column("")]:
        """The result in words: `deleted`, `would be deleted` for a dry run, or `can't be deleted`."""
        if self.refusal is not None:
            return "can't be deleted"
        return "deleted" if self.deleted else "would be deleted"


class GroupDeletions(msgspec.Struct, frozen=True):
    """One entry for each group named."""

    groups: list[GroupDeletion]


class DeleteGroupsRequest(Request[GroupDeletions], tag="groups.delete"):
    """Delete groups without members, and their offsets; without `execute` only report which they would be."""

    groups: list[str]
    execute: bool = False
