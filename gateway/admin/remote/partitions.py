"""Finds the partitions of a cluster that a command asks about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.admin.remote.cluster import Cluster, topic_partition
from gateway.admin.request import ControlError


def led_partitions(
    cluster: Cluster,
    topic: str | None,
    partition: int | None,
    holds: Callable[[str, bool], bool] = lambda _, is_internal: not is_internal,
) -> list[Any]:
    """Return the partitions that have a leader: of one topic, or of all whose name and internality `holds` accepts."""
    if topic is None:
        topics = [row for row in cluster.all_topics() if holds(row["name"], row["is_internal"])]
    else:
        topics = cluster.topics([topic])
    rows = [(found["name"], row) for found in topics for row in found["partitions"]]
    if partition is not None:
        rows = [(name, row) for name, row in rows if row["partition_index"] == partition]
        if not rows:
            raise ControlError(f"topic {topic} has no partition {partition}")
    return [
        topic_partition(name, row["partition_index"])
        for name, row in rows
        if row["error_code"] == 0 and row["leader_id"] >= 0
    ]
