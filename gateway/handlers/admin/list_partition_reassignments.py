"""ListPartitionReassignments (key 46, version 0): list the reassignments in progress, of which there are none.

A partition has one replica, on this node, so a reassignment is complete as soon as it is accepted. The client needs
DESCRIBE on the cluster; a refusal repeats the partitions of the request. Source: Kafka's
ReplicationControlManager.listPartitionReassignments, which lists no partition that is unknown or not being moved.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.metadata.decision import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import NodeServices
from gateway.security.acls.codes import Operation


async def handle(context: RequestContext[NodeServices], request: Any) -> Any:
    """Return the empty list, or the refusal of the request."""
    module = response_module(46, context.api_version)
    denied = cluster_refusal(context, Operation.DESCRIBE)
    error = denied or ApiError(ErrorCode.none)
    named = (request.topics or ()) if denied else ()
    return build(
        module.ListPartitionReassignmentsResponse,
        error_code=error.error_code,
        error_message=error.message,
        topics=tuple([_unanswered(module, topic) async for topic in in_slices(named)]),
    )


def _unanswered(module: ModuleType, topic: Any) -> Any:
    partitions = tuple(
        build(
            module.OngoingPartitionReassignment,
            partition_index=index,
            replicas=(),
            adding_replicas=(),
            removing_replicas=(),
        )
        for index in topic.partition_indexes
    )
    return build(module.OngoingTopicReassignment, name=topic.name, partitions=partitions)


API = Api(
    key=46,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    reaches=reach.node,
    handle=handle,
)
