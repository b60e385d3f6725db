"""ShareAcknowledge (key 79, versions 1–2): accept, release, reject or renew acquired records one by one (KIP-932).

A client needs READ on the group and on each topic. Source: Kafka's KafkaApis.handleShareAcknowledgeRequest.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_leaders import ShareLeaders, no_leader
from gateway.handlers.sharing.share_session import (
    FINAL_EPOCH,
    Outcome,
    ShareRequestRefused,
    acknowledge,
    answer,
    check_request,
    continue_session,
    refused,
    unreadable,
)
from gateway.protocol.messages import build, response_module
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services

API_KEY: Final = 79


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Apply the acknowledgements; the answer leaves when they are durable."""
    module = response_module(API_KEY, context.api_version)
    shares = context.services.coordinators.shares
    try:
        check_request(context, request)
        continue_session(context, request)
    except ShareRequestRefused as error:
        return refused(module.ShareAcknowledgeResponse, error.error_code, str(error))
    except Unavailable as error:
        return refused(module.ShareAcknowledgeResponse, error.error_code, None)
    hidden = await unreadable(context, request, ())
    outcomes = await acknowledge(context, request, request.topics, hidden)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.release_member(request.group_id, request.member_id)
    rows = ((place, _partition(module, place[1], outcome)) for place, outcome in outcomes.items())
    return answer(
        module.ShareAcknowledgeResponse,
        module.ShareAcknowledgeTopicResponse,
        rows,
        shares.limits(request.group_id).lock_duration_ms,
        ShareLeaders(context, module),
    )


def _partition(module: Any, index: int, outcome: Outcome) -> Any:
    return build(
        module.PartitionData,
        partition_index=index,
        error_code=outcome.error_code,
        error_message=outcome.message,
        current_leader=no_leader(module),
    )


API = Api(
    key=API_KEY,
    name="ShareAcknowledge",
    min_version=1,
    max_version=2,
    reaches=api.everything,
    handle=handle,
)
