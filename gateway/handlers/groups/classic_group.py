"""JoinGroup (key 11, versions 0–9): become a member, or join again; answered at the end of the rebalance.
Rights: `READ` on the group.

From v4 on a new member first gets an id, with which it must join again (KIP-394), unless it is static (v5,
KIP-345). `ClassicRequests.join` in `coordinator/group/classic_protocol.py` decides, for every kind of group.
Source: Kafka's GroupCoordinatorService.joinGroup, GroupMetadataManager.classicGroupJoin.

SyncGroup (key 14, versions 0–5): the leader sends the assignment, and every member gets its part. Rights:
`READ` on the group.

`ClassicRequests.sync` in `coordinator/group/classic_protocol.py` decides, for every kind of group.
Source: Kafka's GroupMetadataManager.classicGroupSync.

Heartbeat (key 12, versions 0–4): keep a member's session alive; the answer announces a rebalance. Rights:
`READ` on the group.

`ClassicRequests.heartbeat` in `coordinator/group/classic_protocol.py` decides, for every kind of group.
Source: Kafka's GroupMetadataManager.classicGroupHeartbeat.

LeaveGroup (key 13, versions 0–5): remove members; from v3 on several at once, static ones by their instance
id. Rights: `READ` on the group.

`handle_leave` in `handlers/groups/classic_group.py` answers for one member or for several, by version.
`ClassicRequests.leave` in `coordinator/group/classic_protocol.py` decides about each, for every kind of
group. Source: Kafka's GroupMetadataManager.classicGroupLeave, LeaveGroupResponse, KIP-345.

DescribeGroups (key 15, versions 0–6): describe the state, protocol and members of classic groups. Rights:
`DESCRIBE` on the group.

A group that does not exist is reported as Dead, from v6 on with GROUP_ID_NOT_FOUND.
Source: Kafka's GroupMetadataManager.describeGroups.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.coordinator.group.classic_protocol import Join
from seqgate.gateway.coordinator.group.events import JoinReply, SyncReply
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import answer_each
from seqgate.gateway.handlers.answering.rights import NOT_ASKED, describable_topics, group_operations
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_NULL_PROTOCOL: Final = 7
_MOST_OF_AN_ID: Final = 8_000
"""Characters, of at most four bytes each."""


async def handle_join(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for its answer."""
    if not context.may_group(Operation.READ, request.group_id):
        return _response(context, JoinReply(error_code=ErrorCode.group_authorization_failed))
    instance_id = getattr(request, "group_instance_id", None)
    join = Join(
        api_version=context.api_version,
        member_id=request.member_id,
        group_instance_id=instance_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        session_timeout_ms=milliseconds(request.session_timeout),
        rebalance_timeout_ms=milliseconds(getattr(request, "rebalance_timeout", request.session_timeout)),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        fresh_member_id=_fresh_member_id(context.client_id if instance_id is None else instance_id),
        reason=getattr(request, "reason", None),
        sight=describable_topics(context),
    )
    try:
        reply = await context.services.groups.join(request.group_id, join)
    except Unavailable as error:
        reply = JoinReply(error_code=error.error_code, member_id=request.member_id)
    return _response(context, reply)


def _fresh_member_id(begin: str) -> str:
    """Return a new id that begins with the client id or the instance id: not all of it where that is so long
    that the id would not fit into a string of the protocol, of 32,767 bytes.
    """
    return f"{begin[:_MOST_OF_AN_ID]}-{uuid.uuid4()}"


def _response(context: RequestContext[CoordinatorServices], reply: JoinReply) -> Any:
    members = [
        {"member_id": member_id, "group_instance_id": group_instance_id, "metadata": metadata}
        for member_id, group_instance_id, metadata in reply.members
    ]
    name = reply.protocol_name or (None if context.api_version >= FIRST_WITH_NULL_PROTOCOL else "")
    return context.answer(
        error_code=reply.error_code,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=members if reply.error_code is ErrorCode.none else (),
    )


FIRST_WITH_PROTOCOL: Final = 5


async def handle_sync(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the request to the coordinator, and wait for the member's assignment."""
    reply = await _sync(context, request)
    return context.answer(
        error_code=reply.error_code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


async def _sync(context: RequestContext[CoordinatorServices], request: Any) -> SyncReply:
    protocol: tuple[str | None, str | None] = (None, None)
    if context.api_version >= FIRST_WITH_PROTOCOL:
        protocol = request.protocol_type, request.protocol_name
        if None in protocol:
            return SyncReply(error_code=ErrorCode.inconsistent_group_protocol)
    if not context.may_group(Operation.READ, request.group_id):
        return SyncReply(error_code=ErrorCode.group_authorization_failed)
    assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    try:
        return await context.services.groups.sync(_sender(request), protocol, assignments)
    except Unavailable as error:
        return SyncReply(error_code=error.error_code)


def _sender(request: Any) -> Committer:
    """Return the member that sends a SyncGroup or a Heartbeat."""
    instance_id = getattr(request, "group_instance_id", None)
    return Committer(request.group_id, request.generation_id, request.member_id, instance_id)


async def handle_heartbeat(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Answer with the coordinator's error code. While the group is still loading, no error is the answer, as
    in Kafka: some clients take COORDINATOR_LOAD_IN_PROGRESS for fatal here.
    """
    if not context.may_group(Operation.READ, request.group_id):
        return context.answer(error_code=ErrorCode.group_authorization_failed)
    try:
        error_code = context.services.groups.heartbeat(_sender(request))
    except Unavailable as error:
        error_code = error.error_code
        if error_code is ErrorCode.coordinator_load_in_progress:
            error_code = ErrorCode.none
    return context.answer(error_code=error_code)


FIRST_BATCHED_VERSION: Final = 3


async def handle_leave(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Remove the members; before v3 the one member's error is the error of the request."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return context.answer(error_code=ErrorCode.group_authorization_failed, members=())
    if version < FIRST_BATCHED_VERSION:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    named = getattr(request, "members", ())
    reason = getattr(named[0], "reason", None) if named else None
    try:
        outcome = await context.services.groups.leave(request.group_id, leaving, reason)
    except Unavailable as error:
        outcome = error.error_code
    if isinstance(outcome, ErrorCode):
        return context.answer(error_code=outcome, members=())
    if version < FIRST_BATCHED_VERSION:
        return context.answer(error_code=outcome[0])
    members = [
        {"member_id": member_id, "group_instance_id": group_instance_id, "error_code": error_code}
        for (member_id, group_instance_id), error_code in zip(leaving, outcome, strict=True)
    ]
    return context.answer(error_code=ErrorCode.none, members=members)


FIRST_WITH_NOT_FOUND: Final = 6


async def handle_describe(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    asked = getattr(request, "include_authorized_operations", False)
    groups = await answer_each(request.groups, lambda group_id: _describe(context, group_id, asked))
    return context.answer(groups=groups)


def _describe(context: RequestContext[CoordinatorServices], group_id: str, operations_asked: bool) -> Any:
    error, message = ErrorCode.none, None
    group: ClassicGroup | None = None
    if not context.may_group(Operation.DESCRIBE, group_id):
        error = ErrorCode.group_authorization_failed
    else:
        try:
            group = context.services.groups.find(group_id)
        except Unavailable as unavailable:
            error = unavailable.error_code
        else:
            if group is None and context.api_version >= FIRST_WITH_NOT_FOUND:
                error, message = ErrorCode.group_id_not_found, f"Group {group_id} not found."
    is_stable = group is not None and group.state is GroupState.STABLE
    dead = GroupState.DEAD.value if error in {ErrorCode.none, ErrorCode.group_id_not_found} else ""
    return context.row(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=dead if group is None else group.state.value,
        protocol_type="" if group is None else group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group is not None and is_stable else "",
        members=()
        if group is None
        else [_member(group, member, is_stable) for member in group.members.values()],
        authorized_operations=group_operations(context, group_id)
        if operations_asked and error is ErrorCode.none
        else NOT_ASKED,
    )


def _member(group: ClassicGroup, member: Member, is_stable: bool) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(group.protocol_name) if is_stable else b"",
        "member_assignment": member.assignment,
    }


JOIN_GROUP_API = Api(key=11, versions=(0, 9), reaches=api.coordinators, handle=handle_join)
HEARTBEAT_API = Api(key=12, versions=(0, 4), reaches=api.coordinators, handle=handle_heartbeat, is_eager=True)
LEAVE_GROUP_API = Api(key=13, versions=(0, 5), reaches=api.coordinators, handle=handle_leave)
SYNC_GROUP_API = Api(key=14, versions=(0, 5), reaches=api.coordinators, handle=handle_sync)
DESCRIBE_GROUPS_API = Api(
    key=15, versions=(0, 6), reaches=api.coordinators, handle=handle_describe, may_be_given_up=True
)
