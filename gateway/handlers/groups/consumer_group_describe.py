"""ConsumerGroupDescribe (key 69, versions 0–1): describe consumer groups, their members and assignments.

Source: Kafka's GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.coordinator.group.consumer_group import NOWHERE, ConsumerGroup, ConsumerMember
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.described_group import (
    GroupDescription,
    Topics,
    assigned_topics,
    describe_each,
    named_assignment,
)
from gateway.protocol.messages import build
from gateway.runtime.services import Services

API_KEY: Final = 69
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Describe each group of the request."""
    topics = context.services.partitions.registry.by_id

    def describe(module: Any, group: ConsumerGroup) -> GroupDescription:
        return GroupDescription(
            group.state.value,
            group.group_epoch,
            group.assignment_epoch,
            group.preferred_assignor,
            tuple(_member(module, group, member, topics) for member in group.members.values()),
        )

    return await describe_each(
        context,
        request,
        API_KEY,
        context.services.coordinators.groups.find_consumer_group,
        describe,
        _topics_of,
    )


def _topics_of(description: GroupDescription) -> Iterable[str]:
    for member in description.members:
        yield from assigned_topics(member.assignment, member.target_assignment)


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
    reaches=api.everything,
    handle=handle,
    may_be_given_up=True,
)
