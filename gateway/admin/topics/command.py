"""`seqgate topics`: the topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import AsJson, Commands, Output, argument, asks, flag, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import DryRun, OpenedCluster, Yes, carried_out, cluster, name_values
from seqgate.gateway.admin.tables import NONE, Block, Column, TopicName, count, counted, number, shown, table

app = Commands("""Create, list, describe, alter and delete topics.

The commands speak the Kafka protocol with the cluster at --bootstrap: \
a Seqgate gateway on any machine, or Apache Kafka.
""")

Topics = Annotated[list[str], argument("TOPIC", "Names of topics.", autocompletion=topic_names)]
NewTopics = Annotated[list[str], argument("TOPIC", "Names of topics.")]
Settings = Annotated[
    list[str] | None,
    option(
        "--set", "NAME=VALUE", "A configuration of the topic, such as retention.ms=3600000; may be repeated."
    ),
]


@app.command("list")
@asks(cluster)
def list_topics(
    opened: OpenedCluster,
    internal: bool = flag("--internal", "Also topics of the cluster's own, such as __consumer_offsets."),
) -> Output:
    """List the topics."""
    with opened as reached:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        rows = remote.list_topics(reached, internal=internal)
    listing = table(TopicRow, rows, "topic partitions replication_factor topic_id")
    return Output({"topics": rows}, [listing, f"{counted(len(rows), 'topic')}."])


@app.command("describe")
@asks(cluster)
def describe(opened: OpenedCluster, topics: Topics) -> Output:
    """Show the partitions of topics, and the configurations that are set on the topics.

    \b
    Columns:
      leader      the broker that serves the partition; `-`: none, the partition is out of service
      in sync     the replicas that have all records; Seqgate has one replica
      log start   the offset of the oldest record
      log end     the offset after the newest record that consumers can see (the high watermark)
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as reached:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        found = remote.describe(reached, list(dict.fromkeys(topics)))
    return Output({"topics": found}, _descriptions_text(found))


@app.command("create")
@asks(cluster)
def create(
    opened: OpenedCluster,
    topics: NewTopics,
    partitions: int | None = option(
        "--partitions", "N", "The number of partitions. [default: num.partitions of the cluster]", min=1
    ),
    replication_factor: int | None = option(
        "--replication-factor",
        "N",
        "Replicas of each partition, 1 on Seqgate. [default: default.replication.factor of the cluster]",
        min=1,
    ),
    settings: Settings = None,
    if_not_exists: bool = flag("--if-not-exists", "Leave a topic that exists already as it is."),
    validate_only: bool = flag("--dry-run", "Let the cluster check the topics, and create none."),
) -> Output:
    """Create topics.

    \b
    For example:
      seqgate topics create orders --partitions 6
      seqgate topics create ledger --set cleanup.policy=compact --set segment.ms=3600000
    """  # noqa: D301 - \b keeps the lines of the list apart
    wanted = name_values(settings or [], "--set")
    with opened as reached:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        outcomes = remote.create(
            reached,
            list(dict.fromkeys(topics)),
            partitions=partitions,
            replication_factor=replication_factor,
            settings=wanted,
            if_not_exists=if_not_exists,
            validate_only=validate_only,
        )
    return _outcomes(outcomes)


@app.command("alter")
@asks(cluster)
def alter(
    opened: OpenedCluster,
    topic: str = argument("TOPIC", "The topic to alter.", autocompletion=topic_names),
    partitions: int | None = option(
        "--partitions", "N", "The new number of partitions, which can only grow.", min=1
    ),
    settings: Settings = None,
    unset: list[str] | None = option(
        "--unset", "NAME", "A configuration that goes back to its default; may be repeated."
    ),
) -> Output:
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
    with opened as reached:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        outcome = remote.alter(reached, topic, partitions=partitions, settings=wanted, unset=unset or [])
    return _outcomes([outcome])


@app.command("delete")
@asks(cluster)
def delete(
    opened: OpenedCluster, topics: Topics, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
) -> Output:
    """Delete topics with all their records. Shows the topics first, and asks.

    With --json the command never asks: without --yes it only reports which topics it would delete.
    """
    names = list(dict.fromkeys(topics))
    with opened as reached:
        from seqgate.gateway.admin.topics import remote  # noqa: PLC0415 - slow to import

        found = remote.describe(reached, names)

        def delete_them(execute: bool) -> list[TopicOutcome]:
            if execute:
                return remote.delete(reached, names)
            return [TopicOutcome(topic.topic, WOULD_BE_DELETED, len(topic.partitions)) for topic in found]

        outcomes = carried_out(
            delete_them,
            lambda _: [table(TopicDescription, found)],
            f"Delete {'it' if len(found) == 1 else 'them'}?",
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
        )
    return _outcomes(outcomes)


def _outcomes(outcomes: Sequence[TopicOutcome]) -> Output:
    """Return the outcome for each topic; the command ends with 1 when the cluster refused one."""
    text = []
    for each in outcomes:
        if each.error is None:
            partitions = "" if each.partitions is None else f" ({counted(each.partitions, 'partition')})"
            text.append(f"Topic {shown(each.topic)}: {each.outcome}{partitions}.")
    refusals = [
        f"topic {shown(each.topic)}: {shown(each.error)}" for each in outcomes if each.error is not None
    ]
    return Output({"topics": outcomes}, text, refusals=refusals)


def _descriptions_text(topics: Sequence[TopicDescription]) -> Iterator[Block]:
    """Yield each topic with its configurations and a line for each partition."""
    for position, topic in enumerate(topics):
        if position:
            yield ""
        yield (
            f"Topic {shown(topic.topic)} ({topic.topic_id}): {counted(len(topic.partitions), 'partition')}, "
            f"{counted(topic.offsets, 'offset')} in use."
        )
        set_here = ", ".join(f"{name}={shown(value or '')}" for name, value in topic.configs.items())
        yield f"Set on the topic: {set_here or 'nothing'}."
        yield ""
        yield table(PartitionRow, topic.partitions)


# The JSON output of `seqgate topics … --json`.


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in a list. `replication_factor` is 0 for a topic whose partitions are not known."""

    topic: TopicName
    topic_id: Annotated[str, Column("topic id")]
    partitions: Annotated[int, Column("partitions", count)]
    replication_factor: Annotated[int, Column("replicas", number)]
    is_internal: bool


def _nodes(node_ids: list[int]) -> str:
    return ",".join(map(str, node_ids)) or NONE


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a topic. `leader` is None where no broker leads it; then its offsets are None."""

    partition: Annotated[int, Column("partition", number)]
    leader: Annotated[int | None, Column("leader", number)]
    replicas: Annotated[list[int], Column("replicas", _nodes)]
    in_sync_replicas: Annotated[list[int], Column("in sync", _nodes)]
    log_start_offset: Annotated[int | None, Column("log start", number)]
    log_end_offset: Annotated[int | None, Column("log end", number)]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions, and the configurations that are set on the topic."""

    topic: TopicName
    topic_id: str
    is_internal: bool
    configs: dict[str, str | None]
    partitions: list[PartitionRow]

    @property
    def partition_count(self) -> Annotated[int, Column("partitions", count)]:
        """The number of partitions."""
        return len(self.partitions)

    @property
    def offsets(self) -> Annotated[int, Column("offsets in use", count)]:
        """The number of offsets between the starts and the ends of the logs."""
        return sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in self.partitions)


class TopicOutcome(msgspec.Struct, frozen=True):
    """The outcome for one topic, such as `created`; `refused` comes with the cluster's `error`."""

    topic: str
    outcome: str
    partitions: int | None = None
    replication_factor: int | None = None
    error: str | None = None


CREATED: Final = "created"
WOULD_BE_CREATED: Final = "would be created"
EXISTS: Final = "exists already"
ALTERED: Final = "altered"
DELETED: Final = "deleted"
WOULD_BE_DELETED: Final = "would be deleted"
REFUSED: Final = "refused"
