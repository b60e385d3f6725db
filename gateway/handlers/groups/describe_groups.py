"""DescribeGroups (key 15, versions 0–6): describe the state, protocol and members of classic groups.

A group that does not exist is reported as Dead, from v6 on with GROUP_ID_NOT_FOUND.
Source: Kafka's GroupMetadataManager.describeGroups.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.named_twice import answer_each
from seqgate.gateway.handlers.answering.rights import NOT_ASKED, group_operations
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_OPERATIONS: Final = 3
FIRST_WITH_NOT_FOUND: Final = 6


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Describe each group of the request."""
    module = context.response_module
    asked = context.api_version >= FIRST_WITH_OPERATIONS and request.include_authorized_operations
    groups = await answer_each(request.groups, lambda group_id: _describe(context, module, group_id, asked))
    return build(module.DescribeGroupsResponse, groups=groups)


def _describe(
    context: RequestContext[CoordinatorServices], module: Any, group_id: str, operations_asked: bool
) -> Any:
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
    return build(
        module.DescribedGroup,
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=dead if group is None else group.state.value,
        protocol_type="" if group is None else group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group is not None and is_stable else "",
        members=()
        if group is None
        else tuple(_member(module, group, member, is_stable) for member in group.members.values()),
        authorized_operations=group_operations(context, group_id)
        if operations_asked and error is ErrorCode.none
        else NOT_ASKED,
    )


def _member(module: Any, group: ClassicGroup, member: Member, is_stable: bool) -> Any:
    return build(
        module.DescribedGroupMember,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
        member_assignment=member.assignment,
    )


API = Api(15, "DescribeGroups", 0, 6, api.coordinators, handle=handle, may_be_given_up=True)
