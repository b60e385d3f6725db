"""Asks the cluster for the rights of the logged-in user. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from typing import Final

from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
from kio.schema.describe_cluster.v0.response import DescribeClusterResponse

from gateway.admin.remote.cluster import Cluster, ask_broker

TIMEOUT_S: Final = 5.0
_DESCRIBE: Final = 1 << 8
"""The bit of the operation DESCRIBE in Kafka's sets of operations."""


def may_describe_cluster(cluster: Cluster) -> bool:
    """Return whether the person has the right DESCRIBE on the cluster."""
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = ask_broker(cluster.reached, asked, DescribeClusterResponse, timeout_s=TIMEOUT_S)
    return bool(answer.cluster_authorized_operations & _DESCRIBE)
