"""`seqgate groups`: consumer groups and streams groups with their committed offsets, and share groups."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from gateway.admin.completion import group_names, topic_names
from gateway.admin.groups import reset_options, tables
from gateway.admin.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    ListGroupsRequest,
    ResetOffsetsRequest,
)
from gateway.admin.options import (
    AsJson,
    CommandConfig,
    ConfigFile,
    DataDir,
    OtherCluster,
    asking_either,
    stop,
)
from gateway.admin.printing import moment, print_json, print_lines, shown

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
        tables.print_groups(rows, offline)


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
        tables.print_description(description)


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
            help="To the first record at or after a time: 2026-01-31T13:45:00 (local time, or with Z or +02:00), or milliseconds.",
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
        target, value = reset_options.reset_target(
            earliest=earliest, latest=latest, timestamp=timestamp, shift=shift, offset=offset
        )
        selections = None if topics is None else reset_options.topic_selections(topics)
    except ValueError as error:
        raise stop(str(error), code=2) from None
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        done = client.ask(ResetOffsetsRequest(group, target, value, selections, execute))
    if as_json:
        print_json(done)
        return
    if target == "timestamp":
        print_lines(f"To the first record not older than {moment(value)} (local time).", "")
    tables.print_reset(done)


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

    Dry run by default: shows which groups would be deleted. --execute deletes them. A group with members is never
    deleted. Consumers that return to a deleted group begin at auto.offset.reset. Exits with 1 when a group can't be
    deleted.
    """
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        done = client.ask(DeleteGroupsRequest(groups, execute))
    if as_json:
        print_json(done)
    else:
        tables.print_deletions(done.groups, executed=execute)
    refused = [stop(shown(entry.refusal)) for entry in done.groups if entry.refusal is not None]
    if refused:
        raise refused[-1]
