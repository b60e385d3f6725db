"""InitProducerId (key 22, versions 0–5): a fresh producer id with epoch 0 for an idempotent producer.

A transactional id is refused: there is no transaction coordinator on this node.
Source: Kafka's KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, RequestContext
from gateway.protocol.messages import build, response_type
from pid_allocator import NoProducerIds

logger = logging.getLogger(__name__)

API_KEY = 22


async def handle(context: RequestContext, request: Any) -> Any:
    """Hand out the next id of the current block."""
    if request.transactional_id is not None:
        return _refused(context, _transactional_error(request.transactional_id))
    if context.api_version >= 3 and (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(context, ErrorCode.invalid_request)
    try:
        producer_id = await context.services.producer_ids.next_producer_id()
    except NoProducerIds as error:
        logger.warning("no producer id for %s: %s", context.peer_host, error)
        return _refused(context, ErrorCode.coordinator_load_in_progress)
    return build(
        response_type(API_KEY, context.api_version),
        error_code=ErrorCode.none,
        producer_id=producer_id,
        producer_epoch=0,
    )


def _transactional_error(transactional_id: str) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.invalid_request
    return ErrorCode.transactional_id_authorization_failed


def _refused(context: RequestContext, error: ErrorCode) -> Any:
    return build(
        response_type(API_KEY, context.api_version), error_code=error, producer_id=-1, producer_epoch=-1
    )


API = Api(key=API_KEY, name="InitProducerId", min_version=0, max_version=5, handle=handle)
