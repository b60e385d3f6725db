"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from tests.compat.differential.rights.requests.records import UNKNOWN_ID
from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    row,
)
from tests.support.wire import NO_TOPIC_ID


def _create(stage: Stage, version: int, *, validate_only: bool) -> None:
    """Ask for the four topics, for an illegal name, and for one name twice."""
    names = [*stage.topics, stage.name("a b"), stage.name("twice"), stage.name("twice")]
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    stage.user.call("create_topics", version, topics=topics, timeout=5_000, validate_only=validate_only)


@row(CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS, cases=(4, 7))
def create_by_the_topic(stage: Stage, version: int) -> None:
    _create(stage, version, validate_only=True)


@row(CREATE_CLUSTER, DESCRIBE_TOPIC_CONFIGS, cases=(2, 5))
def create_by_the_cluster(stage: Stage, version: int) -> None:
    _create(stage, version, validate_only=True)


@row(CREATE_TOPIC)
def create_really(stage: Stage) -> None:
    _create(stage, 7, validate_only=False)


@row(DELETE_TOPIC, cases=(1, 5, 6))
def delete(stage: Stage, version: int) -> None:
    topics = [{"name": name, "topic_id": NO_TOPIC_ID} for name in stage.topics]
    stage.user.call("delete_topics", version, topics=topics, topic_names=list(stage.topics), timeout=5_000)


@row(DELETE_TOPIC)
def delete_by_id(stage: Stage) -> None:
    for topic_id in (stage.open.topic_id, stage.closed.topic_id, UNKNOWN_ID):
        topics = [{"name": None, "topic_id": topic_id}]
        stage.user.call("delete_topics", 6, topics=topics, timeout=5_000)


@row(DELETE_TOPIC, DESCRIBE_TOPIC)
def delete_by_id_together(stage: Stage) -> None:
    ids = (stage.closed.topic_id, stage.open.topic_id, UNKNOWN_ID)
    topics = [{"name": None, "topic_id": topic_id} for topic_id in ids]
    stage.user.call("delete_topics", 6, topics=topics, timeout=5_000)


@row(ALTER_TOPIC, cases=(0, 3))
def create_partitions(stage: Stage, version: int) -> None:
    names = [*stage.topics, stage.name("twice"), stage.name("twice")]
    topics = [{"name": name, "count": 2, "assignments": None} for name in names]
    stage.user.call("create_partitions", version, topics=topics, timeout=5_000, validate_only=True)
