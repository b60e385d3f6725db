"""ShareGroupDescribe (key 77, version 1): describe share groups, their members and assignments. Rights:
`DESCRIBE` on the group; `DESCRIBE` on the topic (each topic that a member has or shall have).

Without DESCRIBE on a topic of which a member is assigned a partition the group gets
TOPIC_AUTHORIZATION_FAILED and is described without its members. Topics to which members only subscribe do not
count. `describe_each` in `handlers/answering/described_group.py` decides who may see a group. Source: Kafka's
KafkaApis.handleShareGroupDescribe, GroupMetadataManager.shareGroupDescribe.

ShareGroupHeartbeat (key 76, version 1): join, stay in and leave a share group (KIP-932). Rights: `READ` on
the group; `DESCRIBE` on the topic (each topic that is named).

`share_heartbeat` in `coordinator/group/share_heartbeat.py` decides. Source: Kafka's
KafkaApis.handleShareGroupHeartbeat, GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.share_group import ShareMember
from seqgate.gateway.coordinator.group.share_heartbeat import ShareHeartbeat, check, check_member_id
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
from seqgate.gateway.handlers.answering.rights import describes_all
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.security.acls.access import Operation


async def handle_describe(context: RequestContext[Services], request: Any) -> Any:
    topics = context.services.partitions.registry.by_id

    return await describe_each(
        context,
        request,
        context.services.coordinators.shares.group,
        lambda _, member: _member(member, topics),
        needs_describe_on=assigned_topics,
    )


def _member(member: ShareMember, topics: Topics) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.value.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.value.client_id,
        "client_host": member.value.client_host,
        "subscribed_topic_names": member.value.subscribed_names,
        "assignment": named_assignment(member.current.assigned, topics),
    }


@refusing(refused)
async def handle_heartbeat(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Handle the heartbeat; the answer leaves when its effects are durable."""
    services, names = context.services, request.subscribed_topic_names
    if not context.may_group(Operation.READ, request.group_id):
        return refused(context, ErrorCode.group_authorization_failed)
    heartbeat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        subscribed_names=None if names is None else tuple(names),
    )
    check_member_id(heartbeat)
    if not await describes_all(context, names or ()):
        return refused(context, ErrorCode.topic_authorization_failed)
    check(heartbeat)
    await services.groups.ensure_topic()
    await services.shares.ensure_topic()
    reply = await services.shares.heartbeat(heartbeat)
    return accepted(context, reply, services.group_configs.of(request.group_id).share_heartbeat_interval_ms)


SHARE_GROUP_HEARTBEAT_API = Api(key=76, versions=(1, 1), reaches=api.coordinators, handle=handle_heartbeat)


SHARE_GROUP_DESCRIBE_API = Api(
    key=77, versions=(1, 1), reaches=api.everything, handle=handle_describe, may_be_given_up=True
)
