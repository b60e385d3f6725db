"""ListPartitionReassignments (key 46, version 0): list the reassignments in progress, of which there are none.

A partition has one replica, on this node, so a reassignment is complete as soon as it is accepted. Source: Kafka's
ReplicationControlManager.listPartitionReassignments, which lists no partition that is unknown or not being moved.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import NodeServices


async def handle(context: RequestContext[NodeServices], request: Any) -> Any:  # noqa: ARG001 - the answer is the same for all topics
    """Return the empty list."""
    module = response_module(46, context.api_version)
    return build(
        module.ListPartitionReassignmentsResponse, error_code=ErrorCode.none, error_message=None, topics=()
    )


API = Api(
    key=46,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    reaches=reach.node,
    handle=handle,
)
