"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other gateways.

    replicas                            answer
    live gateways, the leader too       accepted, and complete at once
    other live gateways                 accepted: the leader hands the partition over to the first of them
    null (cancel)                       the reassignment in progress ends; without one NO_REASSIGNMENT_IN_PROGRESS
    any other list                      INVALID_REPLICA_ASSIGNMENT
    without ALTER on the cluster        CLUSTER_AUTHORIZATION_FAILED, for the request and each partition

All gateways share the records, so only the leadership of a partition moves. A gateway alone is the only place for a partition.
Source: Kafka's ReplicationControlManager.alterPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from gateway.handlers.answering.changes import change_metadata
from gateway.handlers.answering.rights import cluster_refusal
from gateway.metadata.image import MetadataImage
from gateway.metadata.leadership import reassign
from gateway.metadata.records import MetadataRecord
from gateway.metadata.users import ApiError, Decision
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.access import Operation

_ACCEPTED = ApiError(ErrorCode.none)


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Order the moves of all partitions of the request in one change, and answer for each."""
    module = response_module(45, context.api_version)
    denied = cluster_refusal(context, Operation.ALTER)
    is_late = bool(request.topics) and TimeLimit(context, request.timeout).left_s <= 0
    refusal = denied or (ApiError(ErrorCode.request_timed_out) if is_late else None)
    outcomes: list[ApiError] = []
    if refusal is None:
        refusal = await _carry_out(context, request, outcomes)
    told = iter(outcomes)
    allows_change = context.api_version < 1 or request.allow_replication_factor_change
    return build(
        module.AlterPartitionReassignmentsResponse,
        allow_replication_factor_change=allows_change,
        error_code=refusal.error_code if refusal else ErrorCode.none,
        error_message=_message(denied, request),
        responses=tuple([await _topic(module, topic, told, refusal) for topic in request.topics]),
    )


def _message(denied: ApiError | None, request: Any) -> str | None:
    if denied is not None:
        return denied.message
    return None if request.topics else ""


async def _carry_out(
    context: RequestContext[TopicServices], request: Any, outcomes: list[ApiError]
) -> ApiError | None:
    """Reassign the partitions, and put the outcomes into `outcomes`, in the order of the request; return the refusal of the whole request."""
    node_id = context.node.node_id

    def decide(image: MetadataImage) -> Decision[None]:
        outcomes.clear()
        records: list[MetadataRecord] = []
        for topic in request.topics:
            for partition in topic.partitions:
                index = partition.partition_index
                decision = reassign(image, topic.name, index, partition.replicas, node_id)
                records += decision.records
                outcomes.append(decision.answer or _ACCEPTED)
        return Decision(records, None)

    return await change_metadata(context, decide, request.timeout) if request.topics else None


async def _topic(
    module: ModuleType, topic: Any, outcomes: Iterator[ApiError], refusal: ApiError | None
) -> Any:
    rows = []
    async for partition in in_slices(topic.partitions):
        outcome = refusal or next(outcomes)
        rows.append(
            build(
                module.ReassignablePartitionResponse,
                partition_index=partition.partition_index,
                error_code=outcome.error_code,
                error_message=outcome.message,
            )
        )
    return build(module.ReassignableTopicResponse, name=topic.name, partitions=tuple(rows))


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    min_version=0,
    max_version=1,
    reaches=api.topics,
    handle=handle,
    is_long=True,
    may_be_given_up=True,
)
