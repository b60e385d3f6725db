"""ShareGroupDescribe (key 77, version 1): share groups and what their members read.

Source: Kafka's GroupMetadataManager.shareGroupDescribe.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.group.share_group import ShareMember
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.assignments import Topics, named_assignment
from gateway.handlers.answering.named_twice import answer_each
from gateway.handlers.groups.described_group import described, find_or_absent
from gateway.protocol.messages import build, response_module

API_KEY: Final = 77
ASSIGNOR: Final = "simple"


async def handle(context: RequestContext, request: Any) -> Any:
    """Describe each group that is asked for."""
    module = response_module(API_KEY, context.api_version)
    asked = request.include_authorized_operations
    groups = await answer_each(
        request.group_ids, lambda group_id: _describe(context, module, group_id, asked)
    )
    return build(module.ShareGroupDescribeResponse, groups=groups)


def _describe(context: RequestContext, module: Any, group_id: str, operations_asked: bool) -> Any:
    group, absent = find_or_absent(module, group_id, context.services.shares.group)
    if group is None:
        return absent
    topics = context.services.partitions.by_id
    return described(
        module,
        group_id,
        state=group.state,
        epochs=(group.group_epoch, group.assignment_epoch),
        assignor_name=ASSIGNOR,
        members=tuple(_member(module, member, topics) for member in group.members.values()),
        operations_asked=operations_asked,
    )


def _member(module: Any, member: ShareMember, topics: Topics) -> Any:
    return build(
        module.Member,
        member_id=member.member_id,
        rack_id=member.value.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.value.client_id,
        client_host=member.value.client_host,
        subscribed_topic_names=member.value.subscribed_names,
        assignment=named_assignment(module, member.assigned, topics),
    )


API = Api(
    key=API_KEY, name="ShareGroupDescribe", min_version=1, max_version=1, handle=handle, may_be_given_up=True
)
