"""ConsumerGroupDescribe (key 69, versions 0–1): describe consumer groups, their members and assignments.
Rights: `DESCRIBE` on the group; `DESCRIBE` on the topic (each topic that a member has or shall have).

`describe_each` in `handlers/answering/described_group.py` decides who may see a group. Source: Kafka's
GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.

ConsumerGroupHeartbeat (key 68, versions 0–1): join, stay in and leave a consumer group (KIP-848). Rights:
`READ` on the group; `DESCRIBE` on the topic (each topic that is named, or that a regular expression finds).

In v0 the coordinator gives a member without an id one; from v1 on members choose their ids. A regular
expression matches only topics that the client may describe (both in `handlers/groups/consumer_group.py`).
`consumer_heartbeat` in `coordinator/group/consumer_heartbeat.py` decides about the group and the member.
Source: Kafka's KafkaApis.handleConsumerGroupHeartbeat, GroupCoordinatorService.consumerGroupHeartbeat.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_group import NOWHERE, ConsumerGroup, ConsumerMember
from seqgate.gateway.coordinator.group.consumer_heartbeat import Heartbeat, check, consumer_heartbeat
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.described_group import (
    Topics,
    accepted,
    assigned_topics,
    describe_each,
    named_assignment,
    refused,
    refusing,
)
from seqgate.gateway.handlers.answering.rights import describable_topics, describes_all
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.security.acls.access import Operation

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle_describe(context: RequestContext[Services], request: Any) -> Any:
    topics = context.services.partitions.registry.by_id
    groups = context.services.coordinators.groups

    return await describe_each(
        context,
        request,
        lambda group_id: groups.shard_of(group_id).consumers.groups.get(group_id),
        lambda group, member: _member(group, member, topics),
        needs_describe_on=assigned_topics,
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> dict[str, Any]:
    value = member.value
    return {
        "member_id": member.member_id,
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "subscribed_topic_names": value.subscribed_names,
        "subscribed_topic_regex": value.subscribed_regex or "",
        "assignment": named_assignment(member.holds, topics),
        "target_assignment": named_assignment(group.targets.get(member.member_id, NOWHERE), topics),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


FIRST_WITH_IDS_OF_CLIENTS: Final = 1


@refusing(refused)
async def handle_heartbeat(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Handle the heartbeat; the answer leaves when its effects are durable."""
    if not context.may_group(Operation.READ, request.group_id):
        return refused(context, ErrorCode.group_authorization_failed)
    if not await describes_all(context, request.subscribed_topic_names or ()):
        return refused(context, ErrorCode.topic_authorization_failed)
    heartbeat = _heartbeat(context, request)
    check(heartbeat)
    reply = await context.services.groups.run(
        heartbeat.group_id, lambda shard, effects: consumer_heartbeat(shard, heartbeat, effects)
    )
    interval_ms = context.services.group_configs.of(request.group_id).consumer.heartbeat_interval_ms
    return accepted(context, reply, interval_ms)


def _heartbeat(context: RequestContext[CoordinatorServices], request: Any) -> Heartbeat:
    owned: frozenset[Place] | None = None
    if request.topic_partitions is not None:
        owned = frozenset(
            (topic.topic_id or uuid.UUID(int=0), partition)
            for topic in request.topic_partitions
            for partition in topic.partitions
        )
    names = request.subscribed_topic_names
    member_id = request.member_id
    if not member_id and request.member_epoch == 0 and context.api_version < FIRST_WITH_IDS_OF_CLIENTS:
        member_id = str(uuid.uuid4())
    return Heartbeat(
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        subscribed_names=None if names is None else tuple(names),
        subscribed_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=owned,
        sight=describable_topics(context),
    )


CONSUMER_GROUP_HEARTBEAT_API = Api(
    key=68, versions=(0, 1), reaches=api.coordinators, handle=handle_heartbeat, is_eager=True
)


CONSUMER_GROUP_DESCRIBE_API = Api(
    key=69, versions=(0, 1), reaches=api.everything, handle=handle_describe, may_be_given_up=True
)
