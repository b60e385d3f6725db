"""DescribeTransactions (key 65, version 0): describe the producer and the transaction of each transactional
id.

Source: Kafka's TransactionCoordinator.handleDescribeTransactions.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import by_topic
from seqgate.gateway.coordinator.transaction.records import Transaction
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.named_twice import answer_each
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Describe each transactional id of the request."""
    module = context.response_module
    states = await answer_each(request.transactional_ids, lambda name: _state(context, module, name))
    return build(module.DescribeTransactionsResponse, transaction_states=states)


def _state(context: RequestContext[CoordinatorServices], module: Any, transactional_id: str) -> Any:
    error = ErrorCode.none
    found = None
    if not context.may_transactional_id(Operation.DESCRIBE, transactional_id):
        error = ErrorCode.transactional_id_authorization_failed
    elif not transactional_id:
        error = ErrorCode.invalid_request
    else:
        try:
            found = context.services.transactions.find(transactional_id)
        except Unavailable as unavailable:
            error = unavailable.error_code
        else:
            error = ErrorCode.none if found else ErrorCode.transactional_id_not_found
    value = found or Transaction(0, 0, 0, start_ms=0)
    return build(
        module.TransactionState,
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if found is None else value.state.text,
        transaction_timeout=value.timeout_ms * _MS,
        transaction_start_time=_EPOCH + value.start_ms * _MS,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=tuple(
            build(module.TopicData, topic=topic, partitions=tuple(indexes))
            for topic, indexes in by_topic(value.partitions).items()
            if context.could(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ),
    )


API = Api(65, "DescribeTransactions", 0, 0, api.coordinators, handle=handle, may_be_given_up=True)
