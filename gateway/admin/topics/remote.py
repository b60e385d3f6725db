"""Asks a cluster about topics, and changes them. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.remote.cluster import EARLIEST, LATEST, Cluster, kafka_error, refusal
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.topics.command import (
    ALTERED,
    CREATED,
    DELETED,
    EXISTS,
    REFUSED,
    WOULD_BE_CREATED,
    PartitionRow,
    TopicDescription,
    TopicOutcome,
    TopicRow,
)
from seqgate.gateway.protocol.frames import topic_id_text

BROKERS_CHOICE: Final = -1
"""The number by which the broker chooses: num.partitions or default.replication.factor."""
ALREADY_EXISTS: Final = ErrorCode.topic_already_exists.value


def list_topics(cluster: Cluster, *, internal: bool) -> list[TopicRow]:
    """Return the topics by name, `internal` ones only when asked for."""
    return [
        TopicRow(
            topic=topic["name"],
            topic_id=_topic_id(topic),
            partitions=len(topic["partitions"]),
            replication_factor=max((len(row["replica_nodes"]) for row in topic["partitions"]), default=0),
            is_internal=topic["is_internal"],
        )
        for topic in cluster.all_topics()
        if internal or not topic["is_internal"]
    ]


def _topic_id(topic: Mapping[str, Any]) -> str:
    return topic_id_text(UUID(str(topic["topic_id"])))


def describe(cluster: Cluster, names: Sequence[str]) -> list[TopicDescription]:
    """Return the topics with their partitions and the configurations that are set on them."""
    from seqgate.gateway.admin.configs import remote as configs  # noqa: PLC0415 - a list does not need it

    found = cluster.topics(names)
    set_on = configs.described(cluster, "topic", names)
    offsets = _offsets(cluster, found)
    return [
        TopicDescription(
            topic=topic["name"],
            topic_id=_topic_id(topic),
            is_internal=topic["is_internal"],
            configs={
                row.name: row.value
                for row in set_on.get(topic["name"], [])
                if row.source not in configs.NOT_SET
            },
            partitions=[
                _partition_row(topic["name"], row, offsets)
                for row in sorted(topic["partitions"], key=lambda row: int(row["partition_index"]))
            ],
        )
        for topic in found
    ]


def _partition_row(
    topic: str, row: Mapping[str, Any], offsets: Mapping[tuple[str, int], tuple[int, int]]
) -> PartitionRow:
    start, end = offsets.get((topic, row["partition_index"]), (None, None))
    return PartitionRow(
        partition=row["partition_index"],
        leader=row["leader_id"] if _is_led(row) else None,
        replicas=list(row["replica_nodes"]),
        in_sync_replicas=list(row["isr_nodes"]),
        log_start_offset=start,
        log_end_offset=end,
    )


def _is_led(row: Mapping[str, Any]) -> bool:
    return bool(row["error_code"] == 0 and row["leader_id"] >= 0)


def _offsets(cluster: Cluster, topics: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return log start and log end of each partition that has a leader; none if a leader does not answer."""
    led = [
        (topic["name"], row["partition_index"])
        for topic in topics
        for row in topic["partitions"]
        if _is_led(row)
    ]
    try:
        starts = cluster.offsets(led, EARLIEST)
        ends = cluster.offsets(led, LATEST)
    except kafka_error():
        return {}
    return {place: (starts[place], ends[place]) for place in led}


def create(
    cluster: Cluster,
    names: Sequence[str],
    *,
    partitions: int | None,
    replication_factor: int | None,
    settings: Mapping[str, str],
    if_not_exists: bool,
    validate_only: bool,
) -> list[TopicOutcome]:
    """Create topics, or only ask the cluster whether it would create them."""
    wanted = {
        "num_partitions": partitions or BROKERS_CHOICE,
        "replication_factor": replication_factor or BROKERS_CHOICE,
        "configs": dict(settings),
    }
    answer = cluster.admin.create_topics(
        dict.fromkeys(names, wanted), validate_only=validate_only, raise_errors=False
    )
    outcomes = [
        _created(row, WOULD_BE_CREATED if validate_only else CREATED, if_not_exists=if_not_exists)
        for row in answer["topics"]
    ]
    created = [outcome.topic for outcome in outcomes if outcome.outcome == CREATED]
    if created:
        cluster.admin.wait_for_topics(created)
    return outcomes


def _created(row: Mapping[str, Any], outcome: str, *, if_not_exists: bool) -> TopicOutcome:
    code = row["error_code"]
    if code == ALREADY_EXISTS and if_not_exists:
        return TopicOutcome(row["name"], EXISTS)
    if code:
        return _refused(row["name"], refusal(code, row.get("error_message")))
    return TopicOutcome(row["name"], outcome, row.get("num_partitions"), row.get("replication_factor"))


def _refused(name: str, error: str | None) -> TopicOutcome:
    return TopicOutcome(name, REFUSED, error=error)


def create_missing(cluster: Cluster, name: str) -> None:
    """Create a topic with the cluster's defaults unless it exists. Raises ControlError if it is refused."""
    (outcome,) = create(
        cluster,
        [name],
        partitions=None,
        replication_factor=None,
        settings={},
        if_not_exists=True,
        validate_only=False,
    )
    if outcome.error is not None:
        raise ControlError(f"topic {name} can't be created: {outcome.error}")


def alter(
    cluster: Cluster, name: str, *, partitions: int | None, settings: Mapping[str, str], unset: Sequence[str]
) -> TopicOutcome:
    """Set and unset configurations of a topic, then add partitions; stop at the first refusal."""
    (topic,) = cluster.topics([name])
    if settings or unset:
        from seqgate.gateway.admin.configs import remote as configs  # noqa: PLC0415 - as above

        error = configs.change_remote(cluster, configs.Resource("topic", name), settings, unset)
        if error is not None:
            return _refused(name, error)
    if partitions is None:
        return TopicOutcome(name, ALTERED, len(topic["partitions"]))
    answer = cluster.admin.create_partitions({name: partitions}, raise_errors=False)
    (row,) = answer.results
    if row.error_code:
        return _refused(name, refusal(row.error_code, row.error_message))
    return TopicOutcome(name, ALTERED, partitions)


def delete(cluster: Cluster, names: Sequence[str]) -> list[TopicOutcome]:
    """Delete topics."""
    answer = cluster.admin.delete_topics(list(names), raise_errors=False)
    return [_deleted(row) for row in answer["topics"]]


def _deleted(row: Mapping[str, Any]) -> TopicOutcome:
    if row["error_code"]:
        return _refused(row["name"], refusal(row["error_code"], row.get("error_message")))
    return TopicOutcome(row["name"], DELETED)
