"""ShareAcknowledge (key 79, versions 1–2): accept, release, reject or renew acquired records one by one (KIP-932).

Source: Kafka's KafkaApis.handleShareAcknowledgeRequest.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, RequestContext
from gateway.handlers.share_session import (
    FINAL_EPOCH,
    ShareRequestRefused,
    acknowledge,
    check_request,
    continue_session,
)
from gateway.protocol.messages import build, response_module
from gateway.runtime.coordinator_shards import Unavailable

API_KEY: Final = 79


async def handle(context: RequestContext, request: Any) -> Any:
    """Take the acknowledgements; the answer is durable."""
    module = response_module(API_KEY, context.api_version)
    shares = context.services.shares
    try:
        check_request(context, request)
        continue_session(context, request)
    except ShareRequestRefused as error:
        return _refused(module, error.error_code, str(error))
    except Unavailable as error:
        return _refused(module, error.error_code, None)
    outcomes = await acknowledge(context, request, request.topics)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.release_member(request.group_id, request.member_id)
    by_topic: dict[uuid.UUID, list[Any]] = {}
    for (topic_id, index), outcome in outcomes.items():
        by_topic.setdefault(topic_id, []).append(
            build(
                module.PartitionData,
                partition_index=index,
                error_code=outcome.error_code,
                error_message=outcome.message,
                current_leader=build(module.LeaderIdAndEpoch, leader_id=0, leader_epoch=0),
            )
        )
    responses = tuple(
        build(module.ShareAcknowledgeTopicResponse, topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )
    return build(
        module.ShareAcknowledgeResponse,
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=timedelta(milliseconds=shares.limits.lock_duration_ms),
        responses=responses,
        node_endpoints=(),
    )


def _refused(module: Any, error: ErrorCode, message: str | None) -> Any:
    return build(
        module.ShareAcknowledgeResponse,
        error_code=error,
        error_message=message,
        acquisition_lock_timeout=timedelta(0),
        responses=(),
        node_endpoints=(),
    )


API = Api(key=API_KEY, name="ShareAcknowledge", min_version=1, max_version=2, handle=handle)
