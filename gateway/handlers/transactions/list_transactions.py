"""ListTransactions (key 66, versions 0–2): list this node's transactional ids.

Filters: state and producer id, from v1 on duration, from v2 on a pattern of the whole id.
Source: Kafka's TransactionStateManager.listTransactionStates, KIP-994, KIP-1152.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.records import BY_NAME
from seqgate.gateway.coordinator.transaction.rules import (
    NO_DURATION,
    InvalidPattern,
    Wanted,
    transaction_filter,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType

FIRST_WITH_DURATION: Final = 1
FIRST_WITH_PATTERN: Final = 2


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """List the ids that pass every filter and that the client may describe.

    The answer lists the states of the filter that do not exist.
    """
    module = context.response_module
    unknown = tuple(name for name in dict.fromkeys(request.state_filters) if name not in BY_NAME)
    try:
        is_wanted = _filter(context, request)
    except InvalidPattern:
        return build(
            module.ListTransactionsResponse,
            error_code=ErrorCode.invalid_regular_expression,
            unknown_state_filters=(),
            transaction_states=(),
        )
    states: list[Any] = []
    error = ErrorCode.none
    try:
        async for name, transaction in TimeLimit(context).each(context.services.transactions.all()):
            if is_wanted(name, transaction) and context.could(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
            ):
                states.append(
                    build(
                        module.TransactionState,
                        transactional_id=name,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.text,
                    )
                )
    except TimeoutError:
        error = ErrorCode.request_timed_out
        states.clear()
    return build(
        module.ListTransactionsResponse,
        error_code=error,
        unknown_state_filters=unknown,
        transaction_states=tuple(states),
    )


def _filter(context: RequestContext[CoordinatorServices], request: Any) -> Wanted:
    """Build the filter of the request. Raises InvalidPattern."""
    version = context.api_version
    return transaction_filter(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter if version >= FIRST_WITH_DURATION else NO_DURATION,
        request.transactional_id_pattern if version >= FIRST_WITH_PATTERN else None,
        context.node.clock.now_ms(),
    )


API = Api(66, "ListTransactions", 0, 2, api.coordinators, handle=handle, is_long=True, may_be_given_up=True)
