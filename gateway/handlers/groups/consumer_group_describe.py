"""ConsumerGroupDescribe (key 69, versions 0–1): groups of the consumer protocol, their members and assignments.

Source: Kafka's GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.group.consumer_group import NOWHERE, ConsumerGroup, ConsumerMember
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.assignments import Topics, named_assignment
from gateway.handlers.answering.named_twice import answer_each
from gateway.handlers.groups.described_group import described, find_or_absent
from gateway.protocol.messages import build, response_module

API_KEY: Final = 69
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(context: RequestContext, request: Any) -> Any:
    """Describe each group that is asked for."""
    module = response_module(API_KEY, context.api_version)
    asked = request.include_authorized_operations
    groups = await answer_each(
        request.group_ids, lambda group_id: _describe(context, module, group_id, asked)
    )
    return build(module.ConsumerGroupDescribeResponse, groups=groups)


def _describe(context: RequestContext, module: Any, group_id: str, operations_asked: bool) -> Any:
    group, absent = find_or_absent(module, group_id, context.services.groups.find_consumer_group)
    if group is None:
        return absent
    topics = context.services.partitions.by_id
    return described(
        module,
        group_id,
        state=group.state.value,
        epochs=(group.group_epoch, group.assignment_epoch),
        assignor_name=group.preferred_assignor,
        members=tuple(_member(module, group, member, topics) for member in group.members.values()),
        operations_asked=operations_asked,
    )


def _member(module: Any, group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Any:
    return build(
        module.Member,
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_names,
        subscribed_topic_regex=member.subscribed_regex or "",
        assignment=named_assignment(module, member.holds, topics),
        target_assignment=named_assignment(module, group.targets.get(member.member_id, NOWHERE), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


API = Api(
    key=API_KEY,
    name="ConsumerGroupDescribe",
    min_version=0,
    max_version=1,
    handle=handle,
    may_be_given_up=True,
)
