"""`seqgate topics`: the topics of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import (
    AsJson,
    Bootstrap,
    CommandConfig,
    ConfigFile,
    DataDir,
    is_confirmed,
    name_values,
    reaching,
    stop,
)
from seqgate.gateway.admin.printing import Column, count, counted, print_json, print_lines, print_table, shown
from seqgate.gateway.admin.topics.messages import (
    WOULD_BE_DELETED,
    PartitionRow,
    TopicDescription,
    TopicOutcome,
    TopicRow,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Create, list, describe, alter and delete topics.

The commands speak the Kafka protocol with the cluster at --bootstrap: a Seqgate gateway on any machine, or Apache Kafka.
"""

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=topic_names, show_default=False),
]
NewTopics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A configuration of the topic, such as retention.ms=3600000; may be repeated.",
        show_default=False,
    ),
]


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also topics of the cluster's own, such as __consumer_offsets.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the topics."""
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        rows = remote.list_topics(cluster, internal=internal)
    if as_json:
        print_json({"topics": rows})
    else:
        print_topics(rows)


@app.command("describe")
def describe(
    topics: Topics,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of topics, and the configurations that are set on the topics.

    \b
    Columns:
      leader      the broker that serves the partition; `-`: none, the partition is out of service
      in sync     the replicas that have all records; Seqgate has one replica
      log start   the offset of the oldest record
      log end     the offset after the newest record that consumers can see (the high watermark)
    """  # noqa: D301 - \b keeps the lines of the list apart
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        found = remote.describe(cluster, list(dict.fromkeys(topics)))
    if as_json:
        print_json({"topics": found})
    else:
        print_descriptions(found)


@app.command("create")
def create(
    topics: NewTopics,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            help="The number of partitions. [default: num.partitions of the cluster]",
            min=1,
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            help="Replicas of each partition, 1 on Seqgate. [default: default.replication.factor of the "
            "cluster]",
            min=1,
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic that exists already as it is.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster check the topics, and create none.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Create topics.

    \b
    For example:
      seqgate topics create orders --partitions 6
      seqgate topics create ledger --set cleanup.policy=compact --set segment.ms=3600000
    """  # noqa: D301 - \b keeps the lines of the list apart
    wanted = name_values(settings or [], "--set")
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        outcomes = remote.create(
            cluster,
            list(dict.fromkeys(topics)),
            partitions=partitions,
            replication_factor=replication_factor,
            settings=wanted,
            if_not_exists=if_not_exists,
            validate_only=validate_only,
        )
    _report(outcomes, as_json=as_json)


@app.command("alter")
def alter(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to alter.", autocompletion=topic_names, show_default=False
        ),
    ],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            help="The new number of partitions, which can only grow.",
            min=1,
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="NAME",
            help="A configuration that goes back to its default; may be repeated.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions or other configurations.

    Records with a key go to other partitions once the number of partitions has changed.

    \b
    For example:
      seqgate topics alter orders --partitions 12
      seqgate topics alter orders --set retention.ms=86400000 --unset cleanup.policy
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partitions is None and not settings and not unset:
        raise stop("nothing to alter: give --partitions, --set or --unset", code=2)
    wanted = name_values(settings or [], "--set")
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        outcome = remote.alter(cluster, topic, partitions=partitions, settings=wanted, unset=unset or [])
    _report([outcome], as_json=as_json)


@app.command("delete")
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. Shows the topics first, and asks.

    With --json the command never asks: without --yes it only reports which topics it would delete.
    """
    names = list(dict.fromkeys(topics))
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        found = remote.describe(cluster, names)
        if as_json and not yes:
            _report(
                [TopicOutcome(topic.topic, WOULD_BE_DELETED, len(topic.partitions)) for topic in found],
                as_json=True,
            )
            return
        if not yes:
            print_sizes(found)
            if not is_confirmed(f"Delete {'it' if len(found) == 1 else 'them'}?"):
                print_lines("Nothing is deleted. --yes deletes without asking.")
                raise typer.Exit(1)
        outcomes = remote.delete(cluster, names)
    _report(outcomes, as_json=as_json)


def _report(outcomes: Sequence[TopicOutcome], *, as_json: bool) -> None:
    """Print the outcome for each topic; end the command with 1 when the cluster refused one."""
    if as_json:
        print_json({"topics": list(outcomes)})
    else:
        print_outcomes(outcomes)
    refused = [
        stop(f"topic {shown(outcome.topic)}: {shown(outcome.error)}")
        for outcome in outcomes
        if outcome.error is not None
    ]
    if refused:
        raise refused[-1]


# The tables of `seqgate topics`.

NONE: Final = "-"


def print_topics(rows: Sequence[TopicRow]) -> None:
    """Print a line for each topic."""
    print_table(
        (
            Column("topic"),
            Column("partitions", number=True),
            Column("replicas", number=True),
            Column("topic id"),
        ),
        [
            (shown(row.topic), count(row.partitions), str(row.replication_factor), row.topic_id)
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'topic')}.")


def print_descriptions(topics: Sequence[TopicDescription]) -> None:
    """Print each topic with its configurations and a line for each partition."""
    for number, topic in enumerate(topics):
        if number:
            print_lines("")
        set_here = ", ".join(f"{name}={shown(value or '')}" for name, value in topic.configs.items())
        print_lines(
            f"Topic {shown(topic.topic)} ({topic.topic_id}): {counted(len(topic.partitions), 'partition')}, "
            f"{counted(_records(topic), 'offset')} in use.",
            f"Set on the topic: {set_here or 'nothing'}.",
            "",
        )
        _print_partitions(topic.partitions)


def _records(topic: TopicDescription) -> int:
    return sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in topic.partitions)


def _print_partitions(rows: Sequence[PartitionRow]) -> None:
    print_table(
        (
            Column("partition", number=True),
            Column("leader", number=True),
            Column("replicas"),
            Column("in sync"),
            Column("log start", number=True),
            Column("log end", number=True),
        ),
        [
            (
                str(row.partition),
                _known(row.leader),
                ",".join(map(str, row.replicas)) or NONE,
                ",".join(map(str, row.in_sync_replicas)) or NONE,
                _known(row.log_start_offset),
                _known(row.log_end_offset),
            )
            for row in rows
        ],
    )


def print_sizes(topics: Sequence[TopicDescription]) -> None:
    """Print the topics that a deletion would remove, with their sizes."""
    print_table(
        (Column("topic"), Column("partitions", number=True), Column("offsets in use", number=True)),
        [(shown(topic.topic), count(len(topic.partitions)), count(_records(topic))) for topic in topics],
    )


def print_outcomes(outcomes: Sequence[TopicOutcome]) -> None:
    """Print a sentence for each topic that the cluster did not refuse."""
    for outcome in outcomes:
        if outcome.error is None:
            partitions = (
                "" if outcome.partitions is None else f" ({counted(outcome.partitions, 'partition')})"
            )
            print_lines(f"Topic {shown(outcome.topic)}: {outcome.outcome}{partitions}.")


def _known(number: int | None) -> str:
    return NONE if number is None else str(number)
