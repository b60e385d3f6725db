"""ConsumerGroupHeartbeat (key 68, versions 0–1): join, stay in and leave a consumer group (KIP-848).

In v0 the coordinator gives a member without an id one; from v1 on members choose their ids. A client needs READ on the
group, and DESCRIBE on every topic that it names; a regular expression matches only topics that it may describe.
Source: Kafka's KafkaApis.handleConsumerGroupHeartbeat, GroupCoordinatorService.consumerGroupHeartbeat.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import Heartbeat, HeartbeatRefused, check
from gateway.coordinator.places import Place
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.described_group import accepted, refused
from gateway.handlers.answering.rights import describes_all, sight
from gateway.protocol.messages import milliseconds
from gateway.runtime.coordinators.group_log import log_refused
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 68
FIRST_WITH_REGEX: Final = 1


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Handle the heartbeat; the answer leaves when its effects are durable."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return refused(API_KEY, version, ErrorCode.group_authorization_failed, None)
    if not await describes_all(context, request.subscribed_topic_names or ()):
        return refused(API_KEY, version, ErrorCode.topic_authorization_failed, None)
    heartbeat = _heartbeat(context, request)
    try:
        check(heartbeat)
        reply = await context.services.groups.consumer_heartbeat(heartbeat)
    except HeartbeatRefused as error:
        log_refused(heartbeat.group_id, heartbeat.member_id, error)
        return refused(API_KEY, version, error.error_code, str(error))
    except Unavailable as error:
        return refused(API_KEY, version, error.error_code, None)
    interval_ms = context.services.group_configs.consumer_limits(request.group_id).heartbeat_interval_ms
    return accepted(API_KEY, version, reply, interval_ms)


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
    if not member_id and request.member_epoch == 0 and context.api_version < FIRST_WITH_REGEX:
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
        subscribed_regex=request.subscribed_topic_regex if context.api_version >= FIRST_WITH_REGEX else None,
        server_assignor=request.server_assignor,
        owned=owned,
        sight=sight(context),
    )


API = Api(
    key=API_KEY,
    name="ConsumerGroupHeartbeat",
    min_version=0,
    max_version=1,
    reaches=api.coordinators,
    handle=handle,
    is_eager=True,
)
