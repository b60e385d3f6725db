"""`seqgate groups`: consumer groups and streams groups with their committed offsets, and share groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
import typer

from seqgate.gateway.admin.completion import group_names, topic_names
from seqgate.gateway.admin.groups.assigned import NONE, assigned, ranges
from seqgate.gateway.admin.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    GroupDeletion,
    GroupDescription,
    GroupMember,
    GroupPartition,
    GroupRow,
    ListGroupsRequest,
    OffsetReset,
    ResetOffsetsRequest,
    ResetTarget,
    StreamsMember,
    TopicSelection,
)
from seqgate.gateway.admin.options import (
    AsJson,
    CommandConfig,
    ConfigFile,
    DataDir,
    OtherCluster,
    asking_either,
    stop,
)
from seqgate.gateway.admin.printing import (
    Column,
    count,
    counted,
    duration,
    moment,
    print_json,
    print_lines,
    print_table,
    shown,
)
from seqgate.gateway.admin.times import timestamp_ms
from seqgate.gateway.admin.transactions.command import print_pending_of_group

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Look at and administer consumer groups, share groups and streams groups.

The consumers of a group share the partitions of their topics among themselves, and commit how far they have read: per
partition the offset of the next record. A group without members keeps its offsets until its consumers come back or
offsets.retention.minutes are over.

The consumers of a share group read the same partitions together and acknowledge record by record (KIP-932).

The instances of a Kafka Streams application with group.protocol=streams are a streams group: they share tasks, each of which
reads one partition of the topics of its subtopology (KIP-1071).

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap.
"""

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.id of the consumers.", autocompletion=group_names)
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Carry it out. Without this option, only show what would be done.")
]


@app.command("list")
def list_groups(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state; may be repeated.", show_default="all"
        ),
    ] = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the consumer groups, share groups and streams groups.

    \b
    Columns:
      protocol     how the members share partitions; `-` where no member ever joined and the group has only offsets
      partitions   with a committed offset; of a share group, the partitions that it ever read
      lag          records after the committed offsets, in all these partitions; of a share group, records that are not done

    \b
    States:
      Empty                 it has no members; its offsets can be reset, and it can be deleted
      PreparingRebalance    waits for its members to join again
      CompletingRebalance   waits for the leader to share out the partitions
      Assigning             the gateway is about to share them out (group.protocol=consumer, streams)
      Reconciling           some members still revoke or wait for partitions (group.protocol=consumer, streams)
      NotReady              topics of the application are missing, or have a wrong number of partitions (group.protocol=streams)
      Stable                its members read
    """  # noqa: D301 - \b keeps the lines of the list apart
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        pages = client.ask_all(ListGroupsRequest(states or []))
    rows = [row for page in pages for row in page.groups]
    offline = pages[-1].offline_partitions
    if as_json:
        print_json({"groups": rows, "offline_partitions": offline})
    else:
        print_groups(rows, offline)


@app.command("describe")
def describe(
    group: Group,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's members and how far the group has read.

    \b
    Columns of the partitions:
      committed    the offset of the next record the group will read; `-`: none, auto.offset.reset decides
      log start    the oldest record of the log
      log end      after the newest record that consumers can see (the high watermark)
      lag          records from the committed offset to the log end
      age          time since the commit
      metadata     what the consumer wrote beside the offset

    A second table lists the offsets that open transactions hold, with the transaction of each. They are committed or dropped with
    the transaction.

    `kafka-consumer-groups.sh --describe` shows the same, with CURRENT-OFFSET for `committed`.

    \b
    Columns of the partitions of a share group, where a record is done when it was accepted, rejected or archived:
      start             the oldest record that is not done; `-`: the group has not read the partition yet
      given out to      after the newest record that was ever delivered to a member
      log end           after the newest record that consumers can see (the high watermark)
      lag               records that are not done
      acquired          records delivered to a member that has not acknowledged them yet
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
    """  # noqa: D301 - \b keeps the lines of the list apart
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        pages = client.ask_all(DescribeGroupRequest(group))
    partitions = [row for page in pages for row in page.partitions]
    description = msgspec.structs.replace(pages[0], partitions=partitions, complete=True)
    if as_json:
        print_json(description)
    else:
        print_description(description)


@app.command("reset")
def reset(
    group: Group,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P]",
            help="The topic, or these partitions of it; may be repeated.",
            autocompletion=topic_names,
            show_default=False,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition in which the group has a committed offset.")
    ] = False,
    earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the oldest record, to read everything again.")
    ] = False,
    latest: Annotated[
        bool, typer.Option("--to-latest", help="To the log end, to skip all present records.")
    ] = False,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--to-timestamp",
            metavar="MOMENT",
            help="To the first record at or after a time: 2026-01-31T13:45:00 (local time, or with Z or "
            "+02:00), or milliseconds.",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            help="By N offsets from the committed one: forward, or back with -N.",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="To this offset.", show_default=False)
    ] = None,
    execute: Execute = False,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Reset a group's offsets.

    Dry run by default: shows the new offset of each partition. --execute commits all of them, or none. The group must
    have no members, so stop its consumers first. An offset outside of the log is clamped to the log start or end, and
    marked. A group that does not exist yet is created with these offsets, before its consumers start.

    Not for share groups: kafka-share-groups.sh --reset-offsets sets where they continue.

    \b
    For example:
      seqgate groups reset billing --all-topics --to-earliest
      seqgate groups reset billing --topic orders:0,3 --shift-by -100 --execute
      seqgate groups reset billing --topic orders --to-timestamp 2026-01-31T13:45:00Z --execute
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
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        done = client.ask(ResetOffsetsRequest(group, target, value, selections, execute))
    if as_json:
        print_json(done)
        return
    if target == "timestamp":
        print_lines(f"To the first record not older than {moment(value)} (local time).", "")
    print_reset(done)


@app.command("delete")
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP", help="Names of groups to delete.", autocompletion=group_names, show_default=False
        ),
    ],
    execute: Execute = False,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups with their offsets, or with what a share group has acknowledged.

    Dry run by default: shows which groups would be deleted. --execute deletes them. A group with members is
    never deleted. Consumers that return to a deleted group begin at auto.offset.reset. Exits with 1 when a
    group can't be deleted.
    """
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        done = client.ask(DeleteGroupsRequest(groups, execute))
    if as_json:
        print_json(done)
    else:
        print_deletions(done.groups, executed=execute)
    refused = [stop(shown(entry.refusal)) for entry in done.groups if entry.refusal is not None]
    if refused:
        raise refused[-1]


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


# The table of the members of a streams group.


def print_streams_members(members: Sequence[GroupMember]) -> None:
    """Print the members of a streams group with their tasks."""
    columns = (
        Column("member"),
        Column("instance"),
        Column("client"),
        Column("host"),
        Column("process"),
        Column("epoch", number=True),
        Column("topology\nepoch", number=True),
        Column("active"),
        Column("standby"),
        Column("warm-up"),
    )
    rows = [(member, member.streams) for member in members if member.streams is not None]
    print_table(columns, [_cells(member, streams) for member, streams in rows])
    moving = [member for member, streams in rows if streams.tasks != streams.target]
    if moving:
        names = ", ".join(shown(member.member_id) for member in moving)
        print_lines(f"Tasks are moving from or to {names}; --json shows the target.")


def _cells(member: GroupMember, streams: StreamsMember) -> tuple[str, ...]:
    return (
        shown(member.member_id),
        NONE if member.group_instance_id is None else shown(member.group_instance_id),
        shown(member.client_id),
        shown(member.client_host),
        shown(streams.process_id),
        str(streams.member_epoch),
        str(streams.topology_epoch),
        assigned(streams.tasks.active),
        assigned(streams.tasks.standby),
        assigned(streams.tasks.warmup),
    )


# The tables of `seqgate groups`. Names that clients choose are escaped for the terminal.

SHARE: Final = "share"
LONGEST_METADATA: Final = 60


def print_groups(rows: Sequence[GroupRow], offline_partitions: Sequence[int]) -> None:
    """Print a line for each group."""
    columns = (
        Column("group"),
        Column("state"),
        Column("type"),
        Column("protocol"),
        Column("members", number=True),
        Column("partitions", number=True),
        Column("lag", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.group),
                row.state,
                row.type,
                _protocol(row.protocol_type, row.protocol_name),
                count(row.members),
                count(row.committed_partitions),
                count(row.total_lag),
            )
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'group')}.")
    if offline_partitions:
        print_lines(
            f"Groups are missing: {ranges(offline_partitions)} of __consumer_offsets is offline (seqgate "
            "status)."
        )


def print_description(description: GroupDescription) -> None:
    """Print a group: its state, its members, its partitions."""
    protocol = _protocol(description.protocol_type, description.protocol_name)
    members = counted(len(description.members), "member")
    print_lines(
        f"Group {shown(description.group)} ({description.type}): {description.state}, {members}, "
        f"{_epochs(description)}protocol {protocol}.",
        "",
    )
    if description.members and description.streams is not None:
        print_streams_members(description.members)
        print_lines("")
    elif description.members:
        _print_members(description.members)
        print_lines("")
    if description.type == SHARE:
        _print_share_partitions(description)
    else:
        _print_partitions(description)
        print_pending_of_group([held for row in description.partitions for held in row.pending])
    skipped = sum(row.skipped for row in description.partitions)
    if skipped:
        print_lines(
            f"{counted(skipped, 'record')} skipped unread since the gateway started, by message.ttl.ms or a "
            "backlog quota "
            "(seqgate backlog TOPIC)."
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


def print_reset(done: OffsetReset) -> None:
    """Print the new offset of each partition."""
    print_table(
        (
            Column("topic"),
            Column("parti-\ntion", number=True),
            Column("committed", number=True),
            Column("new\noffset", number=True),
            Column("log\nstart", number=True),
            Column("log\nend", number=True),
            Column("note"),
        ),
        [
            (
                change.topic,
                str(change.partition),
                _known(change.committed_offset),
                str(change.new_offset),
                str(change.log_start_offset),
                str(change.high_watermark),
                change.note or "",
            )
            for change in done.changes
        ],
    )
    group, partitions = shown(done.group), counted(len(done.changes), "partition")
    if done.state is None:
        print_lines(
            f"Group {group} did not exist." if done.executed else f"Group {group} does not exist yet."
        )
    if done.executed:
        print_lines(f"The offsets of group {group} in {partitions} are committed.")
    else:
        print_lines(f"Nothing is changed; --execute commits these offsets in {partitions} for group {group}.")


def print_deletions(deletions: Sequence[GroupDeletion], *, executed: bool) -> None:
    """Print the outcome for each group."""
    print_table(
        (Column("group"), Column("state"), Column("partitions", number=True), Column("")),
        [
            (
                shown(entry.group),
                entry.state or NONE,
                count(entry.committed_partitions),
                _outcome(entry, executed=executed),
            )
            for entry in deletions
        ],
    )
    if not executed:
        print_lines("Nothing is deleted; --execute does it.")


def _outcome(entry: GroupDeletion, *, executed: bool) -> str:
    if entry.refusal is not None:
        return "can't be deleted"
    return "deleted" if executed else "would be deleted"


def _print_members(members: Iterable[GroupMember]) -> None:
    print_table(
        (
            Column("member"),
            Column("instance"),
            Column("client"),
            Column("host"),
            Column("session", number=True),
            Column("assigned"),
        ),
        [
            (
                shown(member.member_id) + (" (leader)" if member.is_leader else ""),
                NONE if member.group_instance_id is None else shown(member.group_instance_id),
                shown(member.client_id),
                shown(member.client_host),
                NONE if member.session_timeout_ms is None else duration(member.session_timeout_ms),
                assigned(member.assignment),
            )
            for member in members
        ],
    )


def _print_partitions(description: GroupDescription) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("committed", number=True),
        Column("log\nstart", number=True),
        Column("log\nend", number=True),
        Column("lag", number=True),
        Column("age", number=True),
        Column("metadata"),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                _known(row.committed_offset),
                _known(row.log_start_offset),
                _known(row.high_watermark),
                NONE if row.lag is None else count(row.lag),
                NONE if row.age_ms is None else duration(row.age_ms),
                # confluent-kafka's Python client counts the zero at the end of a C string
                shown((row.metadata or "").rstrip("\0"), LONGEST_METADATA),
            )
            for row in description.partitions
        ],
    )
    lag = sum(row.lag or 0 for row in description.partitions)
    print_lines(f"{counted(len(description.partitions), 'partition')}, {counted(lag, 'record')} to read.")
    outside = sum(
        row.committed_offset is not None
        and row.log_start_offset is not None
        and row.high_watermark is not None
        and not row.log_start_offset <= row.committed_offset <= row.high_watermark
        for row in description.partitions
    )
    if outside:
        print_lines(
            f"{counted(outside, 'committed offset')} outside of the log: auto.offset.reset decides where the "
            "group continues."
        )


def _print_share_partitions(description: GroupDescription) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("start", number=True),
        Column("given\nout to", number=True),
        Column("log\nend", number=True),
        Column("lag", number=True),
        Column("acquired", number=True),
        Column("holes", number=True),
        Column("most\ndeliveries", number=True),
    )
    print_table(columns, [_share_cells(row) for row in description.partitions])
    lag = sum(row.lag or 0 for row in description.partitions)
    acquired = sum(row.delivery.acquired or 0 for row in description.partitions if row.delivery is not None)
    print_lines(
        f"{counted(len(description.partitions), 'partition')}, {counted(lag, 'record')} to acknowledge, "
        f"{acquired:,} of them acquired."
    )


def _share_cells(row: GroupPartition) -> tuple[str, ...]:
    delivery = row.delivery
    return (
        shown(row.topic),
        str(row.partition),
        NONE if delivery is None else str(delivery.start_offset),
        NONE if delivery is None else _known(delivery.end_offset),
        _known(row.high_watermark),
        NONE if row.lag is None else count(row.lag),
        NONE if delivery is None or delivery.acquired is None else count(delivery.acquired),
        NONE if delivery is None or delivery.holes is None else count(delivery.holes),
        NONE
        if delivery is None or delivery.max_delivery_count is None
        else count(delivery.max_delivery_count),
    )


def _protocol(protocol_type: str, protocol_name: str | None) -> str:
    return shown(", ".join(filter(None, (protocol_type, protocol_name)))) or NONE


def _known(offset: int | None) -> str:
    return NONE if offset is None else str(offset)
