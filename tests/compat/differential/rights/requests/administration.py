"""Requests about the replicas of partitions: log directories, reassignments, elections."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import ALTER_CLUSTER, ALTER_TOPIC, DESCRIBE_CLUSTER, row


@row(DESCRIBE_CLUSTER, cases=(1, 3, 5))
def describe_log_dirs(stage: Stage, version: int) -> None:
    topics = [{"topic": name, "partitions": [0]} for name in stage.topics]
    stage.user.call("describe_log_dirs", version, topics=topics)


@row(ALTER_CLUSTER, ALTER_TOPIC, cases=(1, 2))
def alter_replica_log_dirs(stage: Stage, version: int) -> None:
    topics = [{"name": name, "partitions": [0]} for name in stage.topics]
    stage.user.call(
        "alter_replica_log_dirs", version, dirs=[{"path": "/no/such/directory", "topics": topics}]
    )


@row(ALTER_CLUSTER, ALTER_TOPIC, cases=(0, 2))
def elect_leaders(stage: Stage, version: int) -> None:
    rows = [{"topic": name, "partitions": [0]} for name in stage.topics]
    stage.user.call("elect_leaders", version, election_type=0, topic_partitions=rows, timeout=5_000)


@row(ALTER_CLUSTER, ALTER_TOPIC, cases=(0, 1))
def alter_partition_reassignments(stage: Stage, version: int) -> None:
    """Cancel reassignments, of which there are none."""
    partitions = [{"partition_index": 0, "replicas": None}]
    topics = [{"name": name, "partitions": partitions} for name in stage.topics]
    stage.user.call("alter_partition_reassignments", version, timeout=5_000, topics=topics)


@row(DESCRIBE_CLUSTER)
def list_partition_reassignments(stage: Stage) -> None:
    topics = [{"name": name, "partition_indexes": [0]} for name in stage.topics]
    stage.user.call("list_partition_reassignments", 0, timeout=5_000, topics=topics)
