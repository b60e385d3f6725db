"""LeaveGroup (key 13, versions 0–5): remove members; from v3 on several at once, static ones by their instance id.

Source: Kafka's GroupMetadataManager.classicGroupLeave, LeaveGroupResponse, KIP-345.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, response_module
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 13
FIRST_BATCHED_VERSION: Final = 3
FIRST_WITH_REASON: Final = 5


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Remove the members; before v3 the one member's error is the error of the request."""
    version = context.api_version
    module = response_module(API_KEY, version)
    if not context.may_group(Operation.READ, request.group_id):
        return build(module.LeaveGroupResponse, error_code=ErrorCode.group_authorization_failed, members=())
    if version < FIRST_BATCHED_VERSION:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    reason = request.members[0].reason if version >= FIRST_WITH_REASON and request.members else None
    try:
        outcome = await context.services.groups.leave(request.group_id, leaving, reason)
    except Unavailable as error:
        outcome = error.error_code
    if isinstance(outcome, ErrorCode):
        return build(module.LeaveGroupResponse, error_code=outcome, members=())
    if version < FIRST_BATCHED_VERSION:
        return build(module.LeaveGroupResponse, error_code=outcome[0])
    members = tuple(
        build(
            module.MemberResponse,
            member_id=member_id,
            group_instance_id=group_instance_id,
            error_code=error_code,
        )
        for (member_id, group_instance_id), error_code in zip(leaving, outcome, strict=True)
    )
    return build(module.LeaveGroupResponse, error_code=ErrorCode.none, members=members)


API = Api(
    key=API_KEY, name="LeaveGroup", min_version=0, max_version=5, reaches=api.coordinators, handle=handle
)
