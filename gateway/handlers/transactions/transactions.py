"""DescribeTransactions (key 65, version 0): describe the producer and the transaction of each transactional
id. Rights: `DESCRIBE` on the transactional id; `DESCRIBE` on the topic (else the answer leaves out its
partitions); `DESCRIBE` on the cluster (tells the clients of producers).

Who may DESCRIBE the cluster is told the client of each producer, too, in a tagged field of Seqgate.
Source: Kafka's TransactionCoordinator.handleDescribeTransactions.

ListTransactions (key 66, versions 0–2): list this node's transactional ids. Rights: `DESCRIBE` on the
transactional id (shows its transaction).

Filters: state and producer id, from v1 on duration, from v2 on a pattern of the whole id.
Source: Kafka's TransactionStateManager.listTransactionStates, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import by_topic
from seqgate.gateway.coordinator.transaction.records import BY_NAME, Transaction
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import TimeLimit, answer_each
from seqgate.gateway.handlers.transactions.describe_producers import client_finder
from seqgate.gateway.protocol.messages import time_of
from seqgate.gateway.regular_expressions import pattern_of
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.security.acls.access import Operation, ResourceType


async def handle_describe(context: RequestContext[Services], request: Any) -> Any:
    """Describe each transactional id of the request."""
    find_client = client_finder(context)
    states = await answer_each(request.transactional_ids, lambda name: _state(context, name, find_client))
    return context.answer(transaction_states=states)


def _state(
    context: RequestContext[Services], transactional_id: str, find_client: Callable[[int, int], str | None]
) -> Any:
    error = ErrorCode.none
    found = None
    if not context.may_transactional_id(Operation.DESCRIBE, transactional_id):
        error = ErrorCode.transactional_id_authorization_failed
    elif not transactional_id:
        error = ErrorCode.invalid_request
    else:
        try:
            found = context.services.coordinators.transactions.find(transactional_id)
        except Unavailable as unavailable:
            error = unavailable.error_code
        else:
            error = ErrorCode.none if found else ErrorCode.transactional_id_not_found
    value = found or Transaction(0, 0, 0, start_ms=0)
    return context.row(
        "TransactionState",
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if found is None else value.state.text,
        transaction_timeout=timedelta(milliseconds=value.timeout_ms),
        transaction_start_time=time_of(value.start_ms),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        client=None if found is None else find_client(value.producer_id, value.producer_epoch),
        topics=[
            {"topic": topic, "partitions": tuple(indexes)}
            for topic, indexes in by_topic(value.partitions).items()
            if context.could(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


async def handle_list(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """List ids that pass every filter and that the client may describe, and the filter's unknown states."""
    unknown = tuple(name for name in dict.fromkeys(request.state_filters) if name not in BY_NAME)
    states: list[Any] = []
    error = ErrorCode.none
    try:
        is_wanted = transaction_filter(
            request.state_filters,
            request.producer_id_filters,
            getattr(request, "duration_filter", NO_DURATION),
            getattr(request, "transactional_id_pattern", None),
            context.node.clock.now_ms(),
        )
        states = [
            context.row(
                "TransactionState",
                transactional_id=name,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.text,
            )
            async for name, transaction in TimeLimit(context).each(context.services.transactions.all())
            if is_wanted(name, transaction)
            and context.could(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ]
    except InvalidPattern:
        error, unknown = ErrorCode.invalid_regular_expression, ()
    except TimeoutError:
        error = ErrorCode.request_timed_out
    if error is ErrorCode.none and context.services.transactions.shards.is_loading:
        error = ErrorCode.coordinator_load_in_progress
    if error is not ErrorCode.none:
        states.clear()
    return context.answer(error_code=error, unknown_state_filters=unknown, transaction_states=tuple(states))


NO_DURATION: Final = -1

IsWanted = Callable[[str, Transaction], bool]


class InvalidPattern(ValueError):
    """The pattern is not a regular expression of RE2."""


def _full_match(pattern: str) -> Callable[[str], object]:
    try:
        matches: Callable[[str], object] = pattern_of(pattern).fullmatch
    except ValueError as error:
        raise InvalidPattern(str(error)) from error
    return matches


def transaction_filter(
    states: Collection[str],
    producer_ids: Iterable[int],
    longer_than_ms: int,
    pattern: str | None,
    now_ms: int,
) -> IsWanted:
    """Return a function that returns whether a transactional id passes every filter.

    An empty filter, a negative duration, or no pattern passes every id. `pattern` must match the whole id. No
    id is in a state that does not exist. As in Kafka, the duration filter passes an id that never began a
    transaction, and the duration keeps growing after a transaction has ended. Raises InvalidPattern.
    """
    wanted_states = {BY_NAME.get(name) for name in states}
    wanted_producer_ids = set(producer_ids)
    matches = _full_match(pattern) if pattern else None

    def is_wanted(name: str, transaction: Transaction) -> bool:
        return (
            (not wanted_states or transaction.state in wanted_states)
            and (not wanted_producer_ids or transaction.producer_id in wanted_producer_ids)
            and (longer_than_ms < 0 or now_ms - transaction.start_ms > longer_than_ms)
            and (matches is None or bool(matches(name)))
        )

    return is_wanted


LIST_TRANSACTIONS_API = Api(
    key=66, versions=(0, 2), reaches=api.coordinators, handle=handle_list, is_long=True, may_be_given_up=True
)


DESCRIBE_TRANSACTIONS_API = Api(
    key=65, versions=(0, 0), reaches=api.everything, handle=handle_describe, may_be_given_up=True
)
