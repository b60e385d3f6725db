"""`seqgate topics`: the topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seqgate.gateway.admin.commands import (
    MOST_INT16,
    MOST_INT32,
    Commands,
    Output,
    argument,
    asks,
    flag,
    option,
    stop,
)
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import Consented, OpenedCluster, cluster, name_values_or_exit_2
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import NONE, Block, Column, TopicName, count, counted, number, shown, table

if TYPE_CHECKING:
    from seqgate.gateway.admin.configs import ConfigRow
    from seqgate.gateway.admin.remote.cluster import Cluster

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
    """A partition of a topic. `leader` is None where no broker leads it. Its offsets are None then, and where
    the leader of any partition does not answer.
    """

    partition: Annotated[int, Column("partition", number)]
    leader: Annotated[int | None, Column("leader", number)]
    replicas: Annotated[list[int], Column("replicas", _nodes)]
    in_sync_replicas: Annotated[list[int], Column("in sync", _nodes)]
    log_start_offset: Annotated[int | None, Column("log start", number)]
    log_end_offset: Annotated[int | None, Column("log end", number)]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions, and the configurations that are set on the topic; `configs` is None where
    the user may not read them.
    """

    topic: TopicName
    topic_id: str
    is_internal: bool
    configs: dict[str, str | None] | None
    partitions: list[PartitionRow]

    @property
    def partition_count(self) -> Annotated[int, Column("partitions", count)]:
        """The number of partitions."""
        return len(self.partitions)

    @property
    def offsets(self) -> Annotated[int | None, Column("offsets", count)]:
        """The number of offsets between the starts and the ends of the logs; None where one is not known."""
        total = 0
        for row in self.partitions:
            if row.log_start_offset is None or row.log_end_offset is None:
                return None
            total += row.log_end_offset - row.log_start_offset
        return total


class TopicOutcome(msgspec.Struct, frozen=True):
    """The outcome for one topic, such as `created`; `refused` comes with the cluster's `error`. Numbers that
    the cluster does not tell this user are None.
    """

    topic: str
    outcome: str
    partitions: int | None = None
    replication_factor: int | None = None
    error: str | None = None


CREATED: Final = "created"
WOULD_BE_CREATED: Final = "would be created"
EXISTS: Final = "exists already"
ALTERED: Final = "altered"
WOULD_BE_ALTERED: Final = "would be altered"
DELETED: Final = "deleted"
WOULD_BE_DELETED: Final = "would be deleted"
REFUSED: Final = "refused"


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
        rows = find_topics(reached, internal=internal)
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
        found = describe_topics(reached, list(dict.fromkeys(topics)))
    return Output({"topics": found}, _descriptions_text(found))


@app.command("create")
@asks(cluster)
def create(
    opened: OpenedCluster,
    topics: NewTopics,
    partitions: int | None = option(
        "--partitions",
        "N",
        "The number of partitions. [default: num.partitions of the cluster]",
        min=1,
        max=MOST_INT32,
    ),
    replication_factor: int | None = option(
        "--replication-factor",
        "N",
        "Replicas of each partition, 1 on Seqgate. [default: default.replication.factor of the cluster]",
        min=1,
        max=MOST_INT16,
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
    wanted = name_values_or_exit_2(settings or [], "--set")
    with opened as reached:
        outcomes = create_topics(
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
    *,
    topic: str = argument("TOPIC", "The topic to alter.", autocompletion=topic_names),
    partitions: int | None = option(
        "--partitions", "N", "The new number of partitions, which can only grow.", min=1, max=MOST_INT32
    ),
    settings: Settings = None,
    unset: list[str] | None = option(
        "--unset", "NAME", "A configuration to remove from the topic; may be repeated."
    ),
    consent: Consented,
) -> Output:
    """Give a topic more partitions or other configurations. Asks before it adds partitions.

    Records with a key go to other partitions once the number of partitions has changed, and no partition can
    be taken away again. With --json the command never asks: without --yes it only reports which partitions
    it would add.

    \b
    For example:
      seqgate topics alter orders --partitions 12 --yes
      seqgate topics alter orders --set retention.ms=86400000 --unset cleanup.policy
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partitions is None and not settings and not unset:
        raise stop("nothing to alter: give --partitions, --set or --unset", code=2)
    wanted = name_values_or_exit_2(settings or [], "--set")
    with opened as reached:
        (now,) = (len(found.partitions) for found in reached.existing_topics([topic]))

        def alter_it(execute: bool) -> TopicOutcome:
            return alter_topic(
                reached,
                topic,
                partitions=partitions,
                settings=wanted,
                unset=unset or [],
                validate_only=not execute,
            )

        adds_none = partitions is None or partitions <= now
        outcome = (consent._replace(yes=True) if adds_none else consent).plan_ask_and_do(
            alter_it,
            lambda planned: [
                f"Topic {shown(topic)} gets {count(planned.partitions or 0)} partitions, now {count(now)}.",
                "Records with a key would go to other partitions, and no partition can be taken away again.",
            ],
            "Add them?",
            is_needed=lambda planned: planned.error is None,
        )
    return _outcomes([outcome])


@app.command("delete")
@asks(cluster)
def delete(opened: OpenedCluster, topics: Topics, consent: Consented) -> Output:
    """Delete topics with all their records. Shows the topics first, and asks.

    With --json the command never asks: without --yes it only reports which topics it would delete.
    """
    names = list(dict.fromkeys(topics))
    with opened as reached:
        found = describe_topics(reached, names)

        def delete_them(execute: bool) -> list[TopicOutcome]:
            if execute:
                return delete_topics(reached, names)
            return [TopicOutcome(topic.topic, WOULD_BE_DELETED, len(topic.partitions)) for topic in found]

        outcomes = consent.plan_ask_and_do(
            delete_them,
            lambda _: [table(TopicDescription, found)],
            f"Delete {'it' if len(found) == 1 else 'them'}?",
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
            f"{'offsets not known' if topic.offsets is None else counted(topic.offsets, 'offset')}."
        )
        if topic.configs is None:
            yield "Set on the topic: not known, because DescribeConfigs on it may be missing."
        else:
            set_here = ", ".join(f"{name}={shown(value or '')}" for name, value in topic.configs.items())
            yield f"Set on the topic: {set_here or 'nothing'}."
        yield ""
        yield table(PartitionRow, topic.partitions)


# Over the Kafka protocol: asks a cluster about topics, and changes them. Raises ControlError.

BROKERS_CHOICE: Final = -1
"""The number by which the broker chooses: num.partitions or default.replication.factor."""
ALREADY_EXISTS: Final = 36
"""The code of TOPIC_ALREADY_EXISTS in Kafka's Errors."""


def find_topics(cluster: Cluster, *, internal: bool) -> list[TopicRow]:
    """Return the topics by name, `internal` ones only when asked for."""
    return [
        TopicRow(
            topic=topic.name,
            topic_id=_topic_id(topic),
            partitions=len(topic.partitions),
            replication_factor=max((len(row.replica_nodes) for row in topic.partitions), default=0),
            is_internal=topic.is_internal,
        )
        for topic in cluster.all_topics()
        if internal or not topic.is_internal
    ]


def _topic_id(topic: Any) -> str:
    from seqgate.gateway.admin.remote.cluster import NO_ID  # noqa: PLC0415 - slow to import
    from seqgate.gateway.protocol.frames import topic_id_text  # noqa: PLC0415

    return topic_id_text(topic.topic_id or NO_ID)


def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicDescription]:
    """Return the topics with their partitions and the configurations that are set on them. Raises NoTopic:
    there is no topic X, the most similar one is Y. Where a leader does not answer, no partition has offsets.
    """
    from seqgate.gateway.admin.configs import described  # noqa: PLC0415 - a list does not need it
    from seqgate.gateway.admin.remote.cluster import is_led  # noqa: PLC0415 - slow to import

    found = cluster.existing_topics(names)
    configs = described(cluster, "topic", names)
    offsets = cluster.spans(
        (topic.name, row.partition_index) for topic in found for row in topic.partitions if is_led(row)
    )
    return [
        TopicDescription(
            topic=topic.name,
            topic_id=_topic_id(topic),
            is_internal=topic.is_internal,
            configs=_set_on_topic(configs.get(topic.name)),
            partitions=[
                _partition_row(topic.name, row, offsets)
                for row in sorted(topic.partitions, key=lambda row: int(row.partition_index))
            ],
        )
        for topic in found
    ]


_NOT_SET: Final = frozenset({"DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"})
"""The sources of values that nobody has set on a topic."""


def _set_on_topic(rows: Sequence[ConfigRow] | None) -> dict[str, str | None] | None:
    return None if rows is None else {row.name: row.value for row in rows if row.source not in _NOT_SET}


def _partition_row(topic: str, row: Any, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> PartitionRow:
    from seqgate.gateway.admin.remote.cluster import is_led  # noqa: PLC0415 - slow to import

    start, end = offsets.get((topic, row.partition_index), (None, None))
    return PartitionRow(
        partition=row.partition_index,
        leader=row.leader_id if is_led(row) else None,
        replicas=list(row.replica_nodes),
        in_sync_replicas=list(row.isr_nodes),
        log_start_offset=start,
        log_end_offset=end,
    )


def create_topics(
    cluster: Cluster,
    names: Sequence[str],
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    validate_only: bool = False,
) -> list[TopicOutcome]:
    """Create topics, or only ask the cluster whether it would create them."""
    wanted = [
        {
            "name": name,
            "num_partitions": partitions or BROKERS_CHOICE,
            "replication_factor": replication_factor or BROKERS_CHOICE,
            "assignments": (),
            "configs": [{"name": config, "value": value} for config, value in (settings or {}).items()],
        }
        for name in names
    ]
    asked = cluster.request(19, 7, topics=wanted, validate_only=validate_only)
    outcomes = [
        _created(row, WOULD_BE_CREATED if validate_only else CREATED, if_not_exists=if_not_exists)
        for row in cluster.ask_controller(asked, "topics")
    ]
    created = [outcome.topic for outcome in outcomes if outcome.outcome == CREATED]
    if created:
        cluster.await_leaders(created)
    return outcomes


def _created(row: Any, outcome: str, *, if_not_exists: bool) -> TopicOutcome:
    if row.error_code == ALREADY_EXISTS and if_not_exists:
        return TopicOutcome(row.name, EXISTS)
    # The cluster tells -1 to a user without DescribeConfigs on the topic.
    partitions, replicas = (
        None if told < 0 else told for told in (row.num_partitions, row.replication_factor)
    )
    return _unless_refused(TopicOutcome(row.name, outcome, partitions, replicas), row)


def _unless_refused(outcome: TopicOutcome, row: Any) -> TopicOutcome:
    """Return the outcome, or with an error code in the row the cluster's refusal."""
    from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415 - slow to import

    error = refusal(row.error_code, row.error_message)
    return outcome if error is None else TopicOutcome(outcome.topic, REFUSED, error=error)


def create_missing(cluster: Cluster, name: str) -> None:
    """Create a topic with the cluster's defaults unless it exists. Raises ControlError if it is refused."""
    (outcome,) = create_topics(cluster, [name], if_not_exists=True)
    if outcome.error is not None:
        raise ControlError(f"topic {name} can't be created: {outcome.error}")


def alter_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int | None,
    settings: Mapping[str, str],
    unset: Sequence[str],
    validate_only: bool = False,
) -> TopicOutcome:
    """Set and unset configurations of a topic (IncrementalAlterConfigs), then add partitions
    (CreatePartitions), or only ask the cluster whether it would. Nothing is changed where it would refuse the
    partitions. Raises ControlError for a configuration that topics do not have.
    """
    (topic,) = cluster.existing_topics([name])
    if settings or unset:
        from seqgate.gateway.admin import configs  # noqa: PLC0415 - as above

        resource = configs.Resource("topic", name)
        configs.check_known(cluster, resource, [*settings, *unset])
        if partitions is not None:
            outcome = _with_partitions(cluster, name, partitions, validate_only=True)
            if outcome.error is not None:
                return outcome
        error = configs.change_remote(cluster, resource, settings, unset, validate_only=validate_only)
        if error is not None:
            return TopicOutcome(name, REFUSED, error=error)
    if partitions is None:
        done = WOULD_BE_ALTERED if validate_only else ALTERED
        return TopicOutcome(name, done, len(topic.partitions))
    outcome = _with_partitions(cluster, name, partitions, validate_only=validate_only)
    if validate_only:
        return outcome
    if outcome.error is not None and (settings or unset):
        error = f"the configurations are altered, the partitions are not: {outcome.error}"
        return msgspec.structs.replace(outcome, error=error)
    return outcome


def _with_partitions(cluster: Cluster, name: str, partitions: int, *, validate_only: bool) -> TopicOutcome:
    wanted = [{"name": name, "count": partitions, "assignments": None}]
    asked = cluster.request(37, 3, topics=wanted, validate_only=validate_only)
    (row,) = cluster.ask_controller(asked, "results")
    done = WOULD_BE_ALTERED if validate_only else ALTERED
    return _unless_refused(TopicOutcome(name, done, partitions), row)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicOutcome]:
    """Delete topics."""
    asked = cluster.request(20, 6, topics=[{"name": name, "topic_id": None} for name in names])
    return [
        _unless_refused(TopicOutcome(row.name, DELETED), row)
        for row in cluster.ask_controller(asked, "responses")
    ]
