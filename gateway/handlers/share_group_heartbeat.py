"""ShareGroupHeartbeat (key 76, version 1): the whole life of a member of a share group (KIP-932).

Source: Kafka's KafkaApis.handleShareGroupHeartbeat, GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.share.records import MAX_GROUP_ID_BYTES
from gateway.coordinator.share.share_group import (
    JOINING,
    LEAVING,
    ShareHeartbeat,
    ShareHeartbeatRefused,
)
from gateway.handlers.api import Api, RequestContext
from gateway.handlers.group_heartbeat import accepted, refused
from gateway.runtime.coordinator_shards import Unavailable

API_KEY: Final = 76
MAX_MEMBER_ID_LENGTH: Final = 36


async def handle(context: RequestContext, request: Any) -> Any:
    """Take the heartbeat."""
    version, services = context.api_version, context.services
    names = request.subscribed_topic_names
    heartbeat = ShareHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        subscribed_names=None if names is None else tuple(names),
    )
    try:
        _check(request)
        await services.groups.ensure_topic()
        await services.shares.ensure_topic()
        if services.groups.knows(request.group_id):
            text = f"Group {request.group_id} is not a share group."
            return refused(API_KEY, version, ErrorCode.group_id_not_found, text)
        member, must_tell = services.shares.heartbeat(request.group_id, heartbeat)
    except ShareHeartbeatRefused as error:
        return refused(API_KEY, version, error.error_code, str(error))
    except Unavailable as error:
        return refused(API_KEY, version, error.error_code, None)
    return accepted(
        API_KEY,
        version,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        interval_ms=services.group_configs.of(request.group_id).share_heartbeat_interval_ms,
        assigned=member.assigned if must_tell else None,
    )


def _check(request: Any) -> None:
    """Raises ShareHeartbeatRefused."""
    invalid = ErrorCode.invalid_request
    if not request.group_id.strip():
        raise ShareHeartbeatRefused(invalid, "GroupId can't be empty.")
    if len(request.group_id.encode()) > MAX_GROUP_ID_BYTES:
        raise ShareHeartbeatRefused(ErrorCode.invalid_group_id, "The group's id is too long.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise ShareHeartbeatRefused(invalid, "RackId can't be empty.")
    if not request.member_id.strip():
        raise ShareHeartbeatRefused(invalid, "MemberId can't be empty.")
    if len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        text = f"MemberId can't be longer than {MAX_MEMBER_ID_LENGTH} characters."
        raise ShareHeartbeatRefused(invalid, text)
    if request.member_epoch < LEAVING:
        raise ShareHeartbeatRefused(invalid, "MemberEpoch is invalid.")
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise ShareHeartbeatRefused(invalid, "SubscribedTopicNames must be set in first request.")


API = Api(key=API_KEY, name="ShareGroupHeartbeat", min_version=1, max_version=1, handle=handle)
