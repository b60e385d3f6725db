"""EndTxn (key 26, versions 0–5): commit or abort; answered when every partition has its marker.

From v5 on each end raises the epoch, and the answer has the new one (KIP-890).
Source: Kafka's KafkaApis.handleEndTxnRequest.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import VERSION_2, EndRequest, Producer, TransactionRefused
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.transactions.late_requests import refuse_late
from gateway.handlers.transactions.transaction_errors import error_code_for
from gateway.protocol.messages import build, response_type
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import CoordinatorServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 26
FIRST_WITH_FENCED: Final = 2
FIRST_WITH_EPOCH: Final = 5


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """End the transaction durably."""
    version = context.api_version
    error, producer = ErrorCode.none, Producer()
    asked = EndRequest(
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        VERSION_2 if version >= FIRST_WITH_EPOCH else 0,
    )
    if not context.may_transactional_id(Operation.WRITE, request.transactional_id):
        error = ErrorCode.transactional_id_authorization_failed
    elif not request.transactional_id:
        error = ErrorCode.invalid_request
    else:
        if asked.client_version < VERSION_2:
            refuse_late(context.services.transactions.connections, context.peer, asked.producer)
        try:
            producer = await context.services.transactions.end(request.transactional_id, asked)
        except (TransactionRefused, Unavailable) as refused:
            error = error_code_for(refused, version, FIRST_WITH_FENCED)
    return build(
        response_type(API_KEY, version),
        error_code=error,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


API = Api(key=API_KEY, name="EndTxn", min_version=0, max_version=5, reaches=api.coordinators, handle=handle)
