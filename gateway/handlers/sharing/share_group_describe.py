"""ShareGroupDescribe (key 77, version 1): describe share groups, their members and assignments.

A client needs DESCRIBE on each topic of which a member is assigned a partition. Otherwise the group gets
TOPIC_AUTHORIZATION_FAILED and is described without its members. Topics to which members only subscribe do
not count.

Source: Kafka's KafkaApis.handleShareGroupDescribe, GroupMetadataManager.shareGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.coordinator.group.share_group import ASSIGNOR, ShareGroup, ShareMember
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

API_KEY: Final = 77


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Describe each group of the request."""
    topics = context.services.partitions.registry.by_id

    def describe(module: Any, group: ShareGroup) -> GroupDescription:
        return GroupDescription(
            group.state_text,
            group.group_epoch,
            group.assignment_epoch,
            ASSIGNOR,
            tuple(_member(module, member, topics) for member in group.members.values()),
        )

    return await describe_each(
        context, request, API_KEY, context.services.coordinators.shares.group, describe, _topics_of
    )


def _topics_of(description: GroupDescription) -> Iterable[str]:
    return assigned_topics(*(member.assignment for member in description.members))


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
    key=API_KEY,
    name="ShareGroupDescribe",
    min_version=1,
    max_version=1,
    reaches=api.everything,
    handle=handle,
    may_be_given_up=True,
)
