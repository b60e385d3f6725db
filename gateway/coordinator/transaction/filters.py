"""Filters of a listing of transactional ids.

Source: Kafka's TransactionStateManager.listTransactionStates, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import re2

from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.states import BY_NAME

NO_DURATION: Final = -1
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

Wanted = Callable[[str, Transaction], bool]


class InvalidPattern(ValueError):
    """The pattern is not a regular expression of RE2."""


def transaction_filter(
    states: Collection[str],
    producer_ids: Iterable[int],
    longer_than_ms: int,
    pattern: str | None,
    now_ms: int,
) -> Wanted:
    """Return a function that returns whether a transactional id passes every filter.

    An empty filter, a negative duration, or no pattern passes every id. `pattern` must match the whole id. No id is in
    a state that does not exist. As in Kafka, the duration filter passes an id that never began a transaction, and the
    duration keeps growing after a transaction has ended. Raises InvalidPattern.
    """
    wanted_states = {BY_NAME.get(name) for name in states}
    wanted_producer_ids = set(producer_ids)
    try:
        matches = re2.compile(pattern, _OPTIONS).fullmatch if pattern else None
    except re2.error as error:
        raise InvalidPattern(str(error)) from error

    def is_wanted(name: str, transaction: Transaction) -> bool:
        return (
            (not wanted_states or transaction.state in wanted_states)
            and (not wanted_producer_ids or transaction.producer_id in wanted_producer_ids)
            and (longer_than_ms < 0 or now_ms - transaction.start_ms > longer_than_ms)
            and (matches is None or bool(matches(name)))
        )

    return is_wanted
