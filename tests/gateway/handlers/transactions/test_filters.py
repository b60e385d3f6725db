from __future__ import annotations

import pytest

from seqgate.gateway.coordinator.transaction.records import COMPLETE_COMMIT, ONGOING, Transaction
from seqgate.gateway.handlers.transactions.transactions import NO_DURATION, InvalidPattern, transaction_filter

NOW_MS = 1_000_000
TRANSACTIONS = {
    "billing-1": Transaction(1, 0, 60_000, ONGOING, frozenset({("orders", 0)}), NOW_MS, NOW_MS - 500),
    "billing-2": Transaction(2, 0, 60_000, COMPLETE_COMMIT, frozenset(), NOW_MS, NOW_MS - 900),
    "shipping": Transaction(3, 0, 60_000),
}


@pytest.mark.parametrize(
    ("states", "producer_ids", "longer_than_ms", "pattern", "expected"),
    [
        ((), (), NO_DURATION, None, ["billing-1", "billing-2", "shipping"]),
        ((), (), NO_DURATION, "", ["billing-1", "billing-2", "shipping"]),
        (("Ongoing", "Empty"), (), NO_DURATION, None, ["billing-1", "shipping"]),
        (("Nothing",), (), NO_DURATION, None, []),
        ((), (2, 3, 4), NO_DURATION, None, ["billing-2", "shipping"]),
        ((), (), 500, None, ["billing-2", "shipping"]),
        ((), (), 499, None, ["billing-1", "billing-2", "shipping"]),
        ((), (), NO_DURATION, "billing-.", ["billing-1", "billing-2"]),
        ((), (), NO_DURATION, "billing", []),
        (("Ongoing",), (1, 2), 0, ".*-1", ["billing-1"]),
        (("Ongoing",), (2,), 0, ".*-1", []),
    ],
)
def test_filters(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int,
    pattern: str | None,
    expected: list[str],
) -> None:
    is_wanted = transaction_filter(states, producer_ids, longer_than_ms, pattern, NOW_MS)
    assert [name for name, value in TRANSACTIONS.items() if is_wanted(name, value)] == expected


def test_an_invalid_pattern_is_refused() -> None:
    with pytest.raises(InvalidPattern):
        transaction_filter((), (), NO_DURATION, "(", NOW_MS)
