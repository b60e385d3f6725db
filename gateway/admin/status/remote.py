"""Asks all brokers of a cluster for their state. Raises ControlError, or an error of kafka-python."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse

from seqgate.gateway.admin.remote.cluster import (
    BrokerAddress,
    Cluster,
    api_versions,
    ask_broker,
    check,
    refusal,
)
from seqgate.gateway.admin.remote.cluster import metadata as cluster_metadata
from seqgate.gateway.admin.remote.operations import told_by
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.status.messages import (
    BrokerStatus,
    ClusterStatus,
    LogDir,
    StatusRequest,
    TroubledPartition,
    WorkerRow,
    worker_row,
)

_BROKER_TIMEOUT_S: Final = 5.0
_NOBODY: Final = -1


def cluster_status(cluster: Cluster) -> ClusterStatus:
    """Return the state of a cluster."""
    metadata = cluster_metadata(cluster.reached, _BROKER_TIMEOUT_S)
    versions = api_versions(cluster.reached, _BROKER_TIMEOUT_S)
    brokers = [_broker(cluster, entry) for entry in sorted(metadata.brokers, key=lambda entry: entry.node_id)]
    rows = [_partition(topic.name, partition) for topic in metadata.topics for partition in topic.partitions]
    offline = [row for row in rows if row.leader is None]
    under_replicated = [
        row for row in rows if row.leader is not None and len(row.in_sync) < len(row.replicas)
    ]
    controller = None if metadata.controller_id == _NOBODY else int(metadata.controller_id)
    is_well = (
        controller is not None
        and not offline
        and not under_replicated
        and all(
            broker.error is None and all(directory.error is None for directory in broker.log_dirs)
            for broker in brokers
        )
    )
    return ClusterStatus(
        cluster_id=metadata.cluster_id or "",
        controller=controller,
        brokers=brokers,
        topics=len(metadata.topics),
        internal_topics=sum(topic.is_internal for topic in metadata.topics),
        partitions=len(rows),
        offline=offline,
        under_replicated=under_replicated,
        features={str(row.name): int(row.max_version_level) for row in versions.finalized_features},
        is_well=is_well,
    )


def _partition(topic: str, row: Any) -> TroubledPartition:
    return TroubledPartition(
        topic=topic,
        partition=int(row.partition_index),
        leader=None if row.leader_id == _NOBODY else int(row.leader_id),
        replicas=[int(node_id) for node_id in row.replica_nodes],
        in_sync=[int(node_id) for node_id in row.isr_nodes],
    )


def _broker(cluster: Cluster, entry: Any) -> BrokerStatus:
    address = cluster.reached.other(entry.host, int(entry.port))
    error, gateway, log_dirs, apis = None, None, [], {}
    try:
        apis = {
            int(row.api_key): (int(row.min_version), int(row.max_version))
            for row in api_versions(address, _BROKER_TIMEOUT_S).api_keys
        }
        log_dirs = _log_dirs(address)
        gateway = _gateway(address)
    except ControlError as failed:
        error = str(failed)
    return BrokerStatus(
        node_id=int(entry.node_id),
        address=address.shown,
        rack=entry.rack or None,
        error=error,
        log_dirs=log_dirs,
        apis=apis,
        gateway=gateway,
    )


def _gateway(address: BrokerAddress) -> WorkerRow | None:
    try:
        return worker_row(told_by(address, StatusRequest(), _BROKER_TIMEOUT_S))
    except ControlError:
        return None


def _log_dirs(address: BrokerAddress) -> list[LogDir]:
    answer = ask_broker(
        address, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, timeout_s=_BROKER_TIMEOUT_S
    )
    check(answer, "the log directories can't be listed: ")
    return [
        LogDir(
            path=found.log_dir,
            error=refusal(found.error_code),
            used_bytes=sum(row.partition_size for topic in found.topics for row in topic.partitions),
            total_bytes=_known(found.total_bytes),
            free_bytes=_known(found.usable_bytes),
        )
        for found in answer.results
    ]


def _known(size_bytes: int) -> int | None:
    return None if size_bytes < 0 else int(size_bytes)
