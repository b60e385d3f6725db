"""JoinGroup (key 11, versions 0–9): become a member, or join again; answered at the end of the rebalance.

From v4 on a new member first gets an id, with which it must join again (KIP-394), unless it is static (v5, KIP-345).
Source: Kafka's GroupCoordinatorService.joinGroup, GroupMetadataManager.classicGroupJoin.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.classic_rebalance import Join
from gateway.coordinator.group.events import JoinReply
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import sight
from gateway.protocol.messages import build, milliseconds, response_module
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 11
FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_REQUIRING_MEMBER_ID: Final = 4
FIRST_WITH_INSTANCE_ID: Final = 5
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_WITH_REASON: Final = 8
FIRST_SKIPPING_ASSIGNMENT: Final = 9


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for its answer."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return _response(version, JoinReply(error_code=ErrorCode.group_authorization_failed))
    session_timeout_ms = milliseconds(request.session_timeout)
    instance_id = request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None
    join = Join(
        member_id=request.member_id,
        group_instance_id=instance_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            milliseconds(request.rebalance_timeout)
            if version >= FIRST_WITH_REBALANCE_TIMEOUT
            else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        fresh_member_id=f"{context.client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
        requires_known_member_id=version >= FIRST_REQUIRING_MEMBER_ID,
        can_skip_assignment=version >= FIRST_SKIPPING_ASSIGNMENT,
        reason=request.reason if version >= FIRST_WITH_REASON else None,
        sight=sight(context),
    )
    try:
        reply = await context.services.groups.join(request.group_id, join)
    except Unavailable as error:
        reply = JoinReply(error_code=error.error_code, member_id=request.member_id)
    return _response(version, reply)


def _response(version: int, reply: JoinReply) -> Any:
    module = response_module(API_KEY, version)
    members = tuple(
        build(
            module.JoinGroupResponseMember,
            member_id=member_id,
            group_instance_id=group_instance_id,
            metadata=metadata,
        )
        for member_id, group_instance_id, metadata in reply.members
    )
    name = reply.protocol_name or (None if version >= FIRST_WITH_NULL_PROTOCOL else "")
    return build(
        module.JoinGroupResponse,
        error_code=reply.error_code,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=members if reply.error_code is ErrorCode.none else (),
    )


API = Api(
    key=API_KEY, name="JoinGroup", min_version=0, max_version=9, reaches=api.coordinators, handle=handle
)
