"""JoinGroup (key 11, versions 0–9): become a member, or join again; answered at the end of the rebalance.

From v4 on a new member first gets an id, with which it must join again (KIP-394), unless it is static (v5,
KIP-345).
Source: Kafka's GroupCoordinatorService.joinGroup, GroupMetadataManager.classicGroupJoin.

SyncGroup (key 14, versions 0–5): the leader sends the assignment, and every member gets its part.

Source: Kafka's GroupMetadataManager.classicGroupSync.

Heartbeat (key 12, versions 0–4): keep a member's session alive; the answer announces a rebalance.

Source: Kafka's GroupMetadataManager.classicGroupHeartbeat.

LeaveGroup (key 13, versions 0–5): remove members; from v3 on several at once, static ones by their instance
id.

Source: Kafka's GroupMetadataManager.classicGroupLeave, LeaveGroupResponse, KIP-345.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_rebalance import Join
from seqgate.gateway.coordinator.group.events import JoinReply, SyncReply
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import sight
from seqgate.gateway.protocol.messages import build, milliseconds, response_module, response_type
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation

JOIN_GROUP_API_KEY: Final = 11
FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_REQUIRING_MEMBER_ID: Final = 4
JOIN_GROUP_FIRST_WITH_INSTANCE_ID: Final = 5
FIRST_WITH_NULL_PROTOCOL: Final = 7
JOIN_GROUP_FIRST_WITH_REASON: Final = 8
FIRST_SKIPPING_ASSIGNMENT: Final = 9


async def handle_join_group(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for its answer."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return _response(version, JoinReply(error_code=ErrorCode.group_authorization_failed))
    session_timeout_ms = milliseconds(request.session_timeout)
    instance_id = request.group_instance_id if version >= JOIN_GROUP_FIRST_WITH_INSTANCE_ID else None
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
        reason=request.reason if version >= JOIN_GROUP_FIRST_WITH_REASON else None,
        sight=sight(context),
    )
    try:
        reply = await context.services.groups.join(request.group_id, join)
    except Unavailable as error:
        reply = JoinReply(error_code=error.error_code, member_id=request.member_id)
    return _response(version, reply)


def _response(version: int, reply: JoinReply) -> Any:
    module = response_module(JOIN_GROUP_API_KEY, version)
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


SYNC_GROUP_API_KEY: Final = 14
SYNC_GROUP_FIRST_WITH_INSTANCE_ID: Final = 3
FIRST_WITH_PROTOCOL: Final = 5


async def handle_sync_group(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for the member's assignment."""
    version = context.api_version
    reply = await _sync(context, request)
    return build(
        response_type(SYNC_GROUP_API_KEY, version),
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
        group_instance_id=request.group_instance_id if version >= SYNC_GROUP_FIRST_WITH_INSTANCE_ID else None,
    )
    assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    try:
        return await context.services.groups.sync(member, protocol, assignments)
    except Unavailable as error:
        return SyncReply(error_code=error.error_code)


SYNC_GROUP_API = Api(SYNC_GROUP_API_KEY, "SyncGroup", 0, 5, api.coordinators, handle=handle_sync_group)


HEARTBEAT_API_KEY: Final = 12
HEARTBEAT_FIRST_WITH_INSTANCE_ID: Final = 3


async def handle_heartbeat(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the heartbeat to the coordinator."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return build(
            response_type(HEARTBEAT_API_KEY, version), error_code=ErrorCode.group_authorization_failed
        )
    member = Committer(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id if version >= HEARTBEAT_FIRST_WITH_INSTANCE_ID else None,
    )
    try:
        error_code = context.services.groups.heartbeat(member)
    except Unavailable as error:
        error_code = error.error_code
    return build(response_type(HEARTBEAT_API_KEY, version), error_code=error_code)


HEARTBEAT_API = Api(
    HEARTBEAT_API_KEY, "Heartbeat", 0, 4, api.coordinators, handle=handle_heartbeat, is_eager=True
)


LEAVE_GROUP_API_KEY: Final = 13
FIRST_BATCHED_VERSION: Final = 3
LEAVE_GROUP_FIRST_WITH_REASON: Final = 5


async def handle_leave_group(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Remove the members; before v3 the one member's error is the error of the request."""
    version = context.api_version
    module = response_module(LEAVE_GROUP_API_KEY, version)
    if not context.may_group(Operation.READ, request.group_id):
        return build(module.LeaveGroupResponse, error_code=ErrorCode.group_authorization_failed, members=())
    if version < FIRST_BATCHED_VERSION:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    reason = (
        request.members[0].reason if version >= LEAVE_GROUP_FIRST_WITH_REASON and request.members else None
    )
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


LEAVE_GROUP_API = Api(LEAVE_GROUP_API_KEY, "LeaveGroup", 0, 5, api.coordinators, handle=handle_leave_group)


JOIN_GROUP_API = Api(JOIN_GROUP_API_KEY, "JoinGroup", 0, 9, api.coordinators, handle=handle_join_group)
