"""Heartbeat (key 12, versions 0–4): keep a member's session alive; the answer announces a rebalance.

Source: Kafka's GroupMetadataManager.classicGroupHeartbeat.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.offsets import Committer
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, response_type
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 12
FIRST_WITH_INSTANCE_ID: Final = 3


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Pass the heartbeat to the coordinator."""
    version = context.api_version
    if not context.may_group(Operation.READ, request.group_id):
        return build(response_type(API_KEY, version), error_code=ErrorCode.group_authorization_failed)
    member = Committer(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None,
    )
    try:
        error_code = context.services.groups.heartbeat(member)
    except Unavailable as error:
        error_code = error.error_code
    return build(response_type(API_KEY, version), error_code=error_code)


API = Api(
    key=API_KEY,
    name="Heartbeat",
    min_version=0,
    max_version=4,
    reaches=api.coordinators,
    handle=handle,
    is_eager=True,
)
