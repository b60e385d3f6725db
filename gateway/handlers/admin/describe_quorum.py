"""DescribeQuorum (key 55, versions 0-2): describe the gateways as the voters of the metadata log. Rights:
`DESCRIBE` on the cluster.

    request                                 answer
    partition 0 of `__cluster_metadata`     the leader is the gateway that admin requests are sent to, the
                                            voters are all live ones, the log end offset is the one after
                                            the newest change
    anything else, or more than that        UNKNOWN_TOPIC_OR_PARTITION for each partition of the request
    without DESCRIBE on the cluster         CLUSTER_AUTHORIZATION_FAILED, and no partitions

In a cluster there is no quorum: each gateway appends to one log in the bucket (`SharedLog` in
cluster/metadata/shared_log.py), so a change is durable for all of them at once, and every voter has the same
offset. Source: Kafka's KafkaRaftClient.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError, told
from seqgate.gateway.metadata.image import METADATA_TOPIC
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

_NOT_HOSTED: Final = ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Describe the metadata log, or refuse every partition of a request that asks for another log."""
    denied = cluster_refusal(context, Operation.DESCRIBE)
    if denied is not None:
        return context.answer(**told(denied), topics=(), nodes=())
    asked = [
        (topic.topic_name, [entry.partition_index for entry in topic.partitions]) for topic in request.topics
    ]
    is_known = asked == [(METADATA_TOPIC, [0])]
    topics = [
        {
            "topic_name": name,
            "partitions": [
                _metadata_partition(context) if is_known else _partition(index, _NOT_HOSTED)
                for index in indexes
            ],
        }
        for name, indexes in asked
    ]
    nodes = _nodes(context) if is_known and context.api_version >= 2 else []
    return context.answer(**told(None, ""), topics=topics, nodes=nodes)


def _metadata_partition(context: RequestContext[TopicServices]) -> dict[str, Any]:
    node = context.node
    end_offset = context.services.metadata_log.last_offset + 1
    now_ms = node.clock.now_ms()
    voters = [
        {
            "replica_id": node_id,
            "replica_directory_id": None,
            "log_end_offset": end_offset,
            "last_fetch_timestamp": now_ms,
            "last_caught_up_timestamp": now_ms,
        }
        for node_id in node.brokers.live_ids
    ]
    return _partition(0, None, node.brokers.controller_id, end_offset, voters)


def _partition(
    index: int,
    error: ApiError | None,
    leader_id: int = 0,
    end_offset: int = 0,
    voters: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "partition_index": index,
        **told(error, ""),
        "leader_id": leader_id,
        "leader_epoch": 0,
        "high_watermark": end_offset,
        "current_voters": voters,
        "observers": (),
    }


def _nodes(context: RequestContext[TopicServices]) -> list[dict[str, Any]]:
    """Return the live gateways with their advertised listener addresses."""
    brokers = context.node.brokers
    return [
        {
            "node_id": node_id,
            "listeners": [
                {"name": name, "host": endpoint.host, "port": endpoint.port}
                for name, endpoint in brokers.endpoints_of(node_id).items()
            ],
        }
        for node_id in brokers.live_ids
    ]


API = Api(key=55, versions=(0, 2), reaches=api.topics, handle=handle, is_long=True)
