"""The gateways of a cluster over the Kafka protocol, moves and drains. Every function raises ControlError."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v0.response import BrokerHeartbeatResponse
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from seqgate.gateway.admin.gateways.messages import (
    Drained,
    DrainRequest,
    GatewayRow,
    Gateways,
    GatewaysRequest,
    MovedPartition,
    MoveRequest,
)
from seqgate.gateway.admin.remote.cluster import (
    TIMEOUT_S,
    Cluster,
    api_versions,
    ask_broker,
    metadata,
    refusal,
)
from seqgate.gateway.admin.request import ControlError, Request

_BROKERS: Final = i8(1)
_PREFERRED: Final = i8(0)
_ASK_AGAIN_S: Final = 0.2
"""The time between two questions whether a drained gateway leads nothing any more."""
_NOT_DRAINED: Final = {
    ErrorCode.broker_id_not_registered: "no live gateway has the node id {node_id}",
    ErrorCode.invalid_request: "no other live gateway can take the partitions of node {node_id}",
}
_MOVED: Final = {ErrorCode.none, ErrorCode.election_not_needed}


def gateways(cluster: Cluster, _: GatewaysRequest) -> Gateways:
    """Return the gateways of the cluster, those that have ended, too."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=_BROKERS, include_fenced_brokers=True
    )
    described = ask_broker(cluster.reached, request, DescribeClusterResponse)
    _check(described.error_code, described.error_message, "the gateways can't be listed")
    found = metadata(cluster.reached, TIMEOUT_S)
    rows = [row for topic in found.topics for row in topic.partitions]
    leaders = Counter(int(row.leader_id) for row in rows)
    preferred = Counter(int(row.replica_nodes[0]) for row in rows if row.replica_nodes)
    listed = [
        GatewayRow(
            node_id=int(broker.broker_id),
            address=f"{broker.host}:{broker.port}",
            rack=broker.rack or None,
            state="ended" if broker.is_fenced else "live",
            session=None,
            leaders=leaders[int(broker.broker_id)],
            preferred=preferred[int(broker.broker_id)],
        )
        for broker in sorted(described.brokers, key=lambda broker: int(broker.broker_id))
    ]
    return Gateways(str(described.cluster_id), listed, leaders[-1], None)


def move(cluster: Cluster, request: MoveRequest) -> MovedPartition:
    """Make a gateway the preferred leader of a partition by AlterPartitionReassignments, and elect it."""
    place = f"{request.topic}-{request.partition}"
    deadline_s = time.monotonic() + request.timeout_ms / 1000
    replicas = _replicas(cluster, request)
    wanted = (request.node_id, *(node for node in replicas if node != request.node_id))[: len(replicas)]
    _reassign(cluster, request, wanted)
    left_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
    limit = i32Timedelta.parse(timedelta(milliseconds=left_ms))
    elect = ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=(
            TopicPartitions(topic=TopicName(request.topic), partitions=(i32(request.partition),)),
        ),
        timeout=limit,
    )
    answer = ask_broker(
        cluster.reached, elect, ElectLeadersResponse, timeout_s=TIMEOUT_S + request.timeout_ms / 1000
    )
    _check(answer.error_code, None, f"{place} can't be moved")
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            if row.error_code not in _MOVED:
                _check(row.error_code, row.error_message, f"{place} can't be moved")
    return MovedPartition(request.topic, request.partition, request.node_id)


def drain(cluster: Cluster, request: DrainRequest) -> Drained:
    """Order a gateway to hand over all partitions that it leads, by BrokerHeartbeat."""
    node_id, deadline_s = request.node_id, time.monotonic() + request.timeout_ms / 1000
    asked = BrokerHeartbeatRequest(
        broker_id=BrokerId(node_id), current_metadata_offset=i64(-1), want_fence=False, want_shut_down=True
    )
    _check_drains(cluster)
    while True:
        answer = ask_broker(cluster.reached, asked, BrokerHeartbeatResponse)
        if answer.error_code:
            raise ControlError(
                _NOT_DRAINED.get(answer.error_code, f"node {node_id} can't be drained: {{reason}}").format(
                    node_id=node_id, reason=refusal(answer.error_code)
                )
            )
        if answer.should_shut_down or time.monotonic() >= deadline_s:
            break
        time.sleep(_ASK_AGAIN_S)
    if answer.should_shut_down:
        return Drained(node_id, 0)
    rows = [row for topic in metadata(cluster.reached, TIMEOUT_S).topics for row in topic.partitions]
    return Drained(node_id, sum(row.leader_id == node_id for row in rows))


def _check_drains(cluster: Cluster) -> None:
    """Raise ControlError unless the gateway knows the request; another would close the connection."""
    known = {row.api_key for row in api_versions(cluster.reached).api_keys}
    if BrokerHeartbeatRequest.__api_key__ not in known:
        raise ControlError(
            f"the cluster at {cluster.reached.shown} drains no gateway over the network: it is one gateway "
            "alone, an older release, or no Seqgate"
        )


def _replicas(cluster: Cluster, request: MoveRequest) -> list[int]:
    for topic in metadata(cluster.reached, TIMEOUT_S).topics:
        for row in topic.partitions:
            if (topic.name, row.partition_index) == (request.topic, request.partition):
                return [int(node_id) for node_id in row.replica_nodes]
    raise ControlError(f"there is no partition {request.topic}-{request.partition}")


def _reassign(cluster: Cluster, request: MoveRequest, replicas: tuple[int, ...]) -> None:
    row = ReassignablePartition(
        partition_index=i32(request.partition), replicas=tuple(BrokerId(node) for node in replicas)
    )
    answer = ask_broker(
        cluster.reached,
        AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=TopicName(request.topic), partitions=(row,)),)
        ),
        AlterPartitionReassignmentsResponse,
    )
    what = f"{request.topic}-{request.partition} can't be moved"
    _check(answer.error_code, answer.error_message, what)
    for topic in answer.responses:
        for partition in topic.partitions:
            _check(partition.error_code, partition.error_message, what)


def _check(code: int, message: Any, what: str) -> None:
    if code:
        raise ControlError(f"{what}: {message or refusal(code)}")


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    GatewaysRequest: gateways,
    MoveRequest: move,
    DrainRequest: drain,
}
"""The answers to the requests of commands."""
