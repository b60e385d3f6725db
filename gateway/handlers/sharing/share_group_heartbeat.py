"""ShareGroupHeartbeat (key 76, version 1): join, stay in and leave a share group (KIP-932).

A client needs READ on the group, and DESCRIBE on every topic that it names.

Source: Kafka's KafkaApis.handleShareGroupHeartbeat, GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused
from gateway.coordinator.group.share_heartbeat import ShareHeartbeat, check, check_member_id
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.described_group import accepted, refused
from gateway.handlers.answering.rights import describes_all
from gateway.runtime.coordinators.group_log import log_refused
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 76


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Handle the heartbeat; the answer leaves when its effects are durable."""
    version, services = context.api_version, context.services
    names = request.subscribed_topic_names
    if not context.may_group(Operation.READ, request.group_id):
        return refused(API_KEY, version, ErrorCode.group_authorization_failed, None)
    heartbeat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        subscribed_names=None if names is None else tuple(names),
    )
    try:
        check_member_id(heartbeat)
        if not await describes_all(context, names or ()):
            return refused(API_KEY, version, ErrorCode.topic_authorization_failed, None)
        check(heartbeat)
        await services.groups.ensure_topic()
        await services.shares.ensure_topic()
        reply = await services.shares.heartbeat(heartbeat)
    except HeartbeatRefused as error:
        log_refused(heartbeat.group_id, heartbeat.member_id, error)
        return refused(API_KEY, version, error.error_code, str(error))
    except Unavailable as error:
        return refused(API_KEY, version, error.error_code, None)
    interval_ms = services.group_configs.of(request.group_id).share_heartbeat_interval_ms
    return accepted(API_KEY, version, reply, interval_ms)


API = Api(
    key=API_KEY,
    name="ShareGroupHeartbeat",
    min_version=1,
    max_version=1,
    reaches=api.coordinators,
    handle=handle,
)
