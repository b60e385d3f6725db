"""SyncGroup (key 14, versions 0–5): the leader sends the assignment, and every member gets its part.

Source: Kafka's GroupMetadataManager.classicGroupSync.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.events import SyncReply
from gateway.coordinator.group.offsets import Committer
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, response_type
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 14
FIRST_WITH_INSTANCE_ID: Final = 3
FIRST_WITH_PROTOCOL: Final = 5


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for the member's assignment."""
    version = context.api_version
    reply = await _sync(context, request)
    return build(
        response_type(API_KEY, version),
        error_code=reply.error_code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


async def _sync(context: RequestContext[CoordinatorServices], request: Any) -> SyncReply:
    version = context.api_version
    protocol: tuple[str | None, str | None] = (None, None)
    if version >= FIRST_WITH_PROTOCOL:
        protocol = request.protocol_type, request.protocol_name
        if None in protocol:
            return SyncReply(error_code=ErrorCode.inconsistent_group_protocol)
    if not context.may_group(Operation.READ, request.group_id):
        return SyncReply(error_code=ErrorCode.group_authorization_failed)
    member = Committer(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None,
    )
    assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    try:
        return await context.services.groups.sync(member, protocol, assignments)
    except Unavailable as error:
        return SyncReply(error_code=error.error_code)


API = Api(
    key=API_KEY, name="SyncGroup", min_version=0, max_version=5, reaches=api.coordinators, handle=handle
)
