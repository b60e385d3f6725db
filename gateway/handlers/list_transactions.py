"""ListTransactions (key 66, versions 0–2): the transactional ids of this node, by state and producer id, by how long
they run (v1) and by a pattern of the whole id (v2) where asked.

Source: Kafka's TransactionStateManager.listTransactionStates, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2
from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.states import BY_NAME
from gateway.handlers.api import Api, RequestContext
from gateway.protocol.messages import build, response_module

API_KEY: Final = 66
FIRST_WITH_DURATION: Final = 1
FIRST_WITH_PATTERN: Final = 2
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

Wanted = Callable[[str, Transaction], bool]


async def handle(context: RequestContext, request: Any) -> Any:
    """List what passes every filter; a state that does not exist is told."""
    module = response_module(API_KEY, context.api_version)
    unknown = tuple(name for name in dict.fromkeys(request.state_filters) if name not in BY_NAME)
    try:
        is_wanted = _filter(context, request)
    except re2.error:
        return build(
            module.ListTransactionsResponse,
            error_code=ErrorCode.invalid_regular_expression,
            unknown_state_filters=(),
            transaction_states=(),
        )
    states = tuple(
        build(
            module.TransactionState,
            transactional_id=name,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.text,
        )
        for name, transaction in context.services.transactions.all()
        if is_wanted(name, transaction)
    )
    return build(
        module.ListTransactionsResponse,
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=states,
    )


def _filter(context: RequestContext, request: Any) -> Wanted:
    """Raises re2.error."""
    version = context.api_version
    states = {BY_NAME.get(name) for name in request.state_filters}
    producer_ids = set(request.producer_id_filters)
    longer_than_ms = request.duration_filter if version >= FIRST_WITH_DURATION else -1
    pattern = request.transactional_id_pattern if version >= FIRST_WITH_PATTERN else None
    matches = re2.compile(pattern, _OPTIONS).fullmatch if pattern else bool
    now_ms = context.services.clock.now_ms()

    def is_wanted(name: str, transaction: Transaction) -> bool:
        return (
            (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - transaction.start_ms > longer_than_ms)
            and (not pattern or bool(matches(name)))
        )

    return is_wanted


API = Api(key=API_KEY, name="ListTransactions", min_version=0, max_version=2, handle=handle)
