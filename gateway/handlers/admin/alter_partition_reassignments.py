"""AlterPartitionReassignments (key 45, versions 0-1): move partitions; the only place for a partition is this node.

    replicas                            answer
    this node                           accepted: the partition is there already
    null (cancel)                       NO_REASSIGNMENT_IN_PROGRESS
    any other list                      INVALID_REPLICA_ASSIGNMENT
    without ALTER on the cluster        CLUSTER_AUTHORIZATION_FAILED, for the request and each partition

Source: Kafka's ReplicationControlManager.alterPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.handlers.answering.time_limit import TimeLimit
from gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError
from gateway.metadata.topics import replicas_error
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation

_ACCEPTED = ApiError(ErrorCode.none)


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Answer for each partition of the request; no partition moves."""
    module = response_module(45, context.api_version)
    denied = cluster_refusal(context, Operation.ALTER)
    is_late = bool(request.topics) and TimeLimit(context, request.timeout).left_s <= 0
    refusal = denied or (ApiError(ErrorCode.request_timed_out) if is_late else None)
    allows_change = context.api_version < 1 or request.allow_replication_factor_change
    return build(
        module.AlterPartitionReassignmentsResponse,
        allow_replication_factor_change=allows_change,
        error_code=refusal.error_code if refusal else ErrorCode.none,
        error_message=_message(denied, request),
        responses=tuple([await _topic(context, module, topic, refusal) for topic in request.topics]),
    )


def _message(denied: ApiError | None, request: Any) -> str | None:
    if denied is not None:
        return denied.message
    return None if request.topics else ""


async def _topic(
    context: RequestContext[TopicServices], module: ModuleType, topic: Any, refusal: ApiError | None
) -> Any:
    rows = []
    async for partition in in_slices(topic.partitions):
        outcome = refusal or _outcome(context, topic.name, partition.partition_index, partition.replicas)
        rows.append(
            build(
                module.ReassignablePartitionResponse,
                partition_index=partition.partition_index,
                error_code=outcome.error_code,
                error_message=outcome.message,
            )
        )
    return build(module.ReassignableTopicResponse, name=topic.name, partitions=tuple(rows))


def _outcome(
    context: RequestContext[TopicServices], name: str, index: int, replicas: Sequence[int] | None
) -> ApiError:
    topic = context.services.metadata_log.image.topics_by_name.get(name)
    if topic is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
    if index not in topic.partitions:
        return ApiError(ErrorCode.unknown_topic_or_partition, "The topic has no such partition.")
    if replicas is None:
        return ApiError(ErrorCode.no_reassignment_in_progress)
    return replicas_error(replicas, (context.node.node_id,)) or _ACCEPTED


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    min_version=0,
    max_version=1,
    reaches=reach.topics,
    handle=handle,
    is_long=True,
    may_be_given_up=True,
)
