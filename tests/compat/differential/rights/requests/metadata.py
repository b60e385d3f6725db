"""Metadata and DescribeTopicPartitions, which hide topics; Metadata also creates them."""

from __future__ import annotations

from tests.compat.differential.rights.requests.records import UNKNOWN_ID
from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    row,
)
from tests.support.wire import NO_TOPIC_ID


@row(DESCRIBE_TOPIC, READ_TOPIC, DELETE_TOPIC, cases=(1, 8, 12, 13))
def metadata(stage: Stage, version: int) -> None:
    topics = [{"name": name, "topic_id": NO_TOPIC_ID} for name in stage.topics]
    stage.user.call(
        "metadata",
        version,
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


@row(DESCRIBE_CLUSTER, CREATE_CLUSTER, CREATE_TOPIC, cases=(8, 10))
def authorized_operations_of_the_cluster(stage: Stage, version: int) -> None:
    stage.user.call("metadata", version, topics=[], include_cluster_authorized_operations=True)


@row(DESCRIBE_TOPIC, cases=(12, 13))
def metadata_by_id(stage: Stage, version: int) -> None:
    for topic_id in (stage.open.topic_id, stage.closed.topic_id, UNKNOWN_ID):
        topics = [{"name": None, "topic_id": topic_id}]
        if version > 11:
            stage.user.call(
                "metadata",
                version,
                topics=topics,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )


def _both(stage: Stage) -> None:
    assert stage.open
    assert stage.closed


@row(DESCRIBE_TOPIC, cases=(0, 1, 12), prepare=_both)
def all_topics(stage: Stage, version: int) -> None:
    topics = [] if version == 0 else None
    stage.user.call(
        "metadata", version, topics=topics, include_topic_authorized_operations=True, only_own=True
    )


def _create_while_asking(stage: Stage, version: int) -> None:
    number = stage.step.replace(" ", "-")
    for suffix in (f"auto-{number}", "missing", "hidden"):
        name = stage.name(suffix)
        topics = [{"name": name, "topic_id": NO_TOPIC_ID}]
        stage.user.call("metadata", version, topics=topics, allow_auto_topic_creation=True)


@row(DESCRIBE_TOPIC, CREATE_TOPIC, cases=(4, 12))
def creation_by_the_topic(stage: Stage, version: int) -> None:
    _create_while_asking(stage, version)


@row(DESCRIBE_TOPIC, CREATE_CLUSTER, cases=(4, 12))
def creation_by_the_cluster(stage: Stage, version: int) -> None:
    _create_while_asking(stage, version)


@row(DESCRIBE_TOPIC, READ_TOPIC)
def describe_topic_partitions(stage: Stage) -> None:
    topics = [{"name": name} for name in stage.topics]
    stage.user.call("describe_topic_partitions", 0, topics=topics, response_partition_limit=10, cursor=None)


@row(DESCRIBE_TOPIC, prepare=_both)
def describe_partitions_of_all_topics(stage: Stage) -> None:
    stage.user.call(
        "describe_topic_partitions", 0, topics=[], response_partition_limit=2_000, cursor=None, only_own=True
    )
