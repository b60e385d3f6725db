"""The outcome of an InitProducerId in each state of a transactional id. The error codes are those of Kafka
4.4.0.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.records import (
    COMPLETE_ABORT,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionState,
)
from seqgate.gateway.coordinator.transaction.rules import (
    LAST_EPOCH_TO_BUMP,
    MAX_EPOCH,
    NeedsProducerId,
    Producer,
    TransactionLimits,
    TransactionRefused,
    complete,
    fence,
)
from seqgate.gateway.handlers.transactions.init_producer_id import check_begin, next_state
from tests.gateway.coordinator.transaction.test_rules import transaction

NOW_MS = 1_000
NOBODY = Producer()
FENCED = ErrorCode.producer_fenced
BUSY = ErrorCode.concurrent_transactions


def begin(
    current: Transaction | None, claimed: Producer = NOBODY, fresh: int | None = None
) -> Transaction | ErrorCode:
    try:
        return next_state(current, 30_000, claimed, fresh, NOW_MS)
    except TransactionRefused as error:
        return error.error_code


def test_the_first_producer_of_an_id_has_epoch_0() -> None:
    with pytest.raises(NeedsProducerId):
        begin(None)
    assert begin(None, fresh=9) == Transaction(9, 0, 30_000, last_update_ms=NOW_MS)
    assert begin(None, Producer(5, 3), fresh=9) == Transaction(9, 0, 30_000, last_update_ms=NOW_MS)


@pytest.mark.parametrize("state", sorted(IDLE))
def test_the_next_producer_raises_the_epoch(state: TransactionState) -> None:
    after = begin(transaction(state, last_producer_epoch=3, client_version=2))
    assert after == Transaction(7, 5, 30_000, EMPTY, frozenset(), NOW_MS, client_version=2)


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_producer_that_recovers_raises_its_epoch_once(state: TransactionState) -> None:
    after = begin(transaction(state), Producer(7, 4))
    assert isinstance(after, Transaction)
    assert (after.producer_epoch, after.last_producer_epoch) == (5, 4)
    again = begin(after, Producer(7, 4))
    assert isinstance(again, Transaction)
    assert (again.producer_epoch, again.last_producer_epoch) == (5, 4)
    other = begin(again)
    assert isinstance(other, Transaction)
    assert begin(other, Producer(7, 4)) == FENCED
    assert begin(other, Producer(7, 5)) == FENCED


@pytest.mark.parametrize("claimed", [Producer(7, 3), Producer(7, 9), Producer(8, 4), Producer(8, MAX_EPOCH)])
@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_ABORT])
def test_another_producer_is_fenced(state: TransactionState, claimed: Producer) -> None:
    assert begin(transaction(state), claimed) == FENCED


@pytest.mark.parametrize("state", [PREPARE_ABORT, PREPARE_COMMIT])
def test_a_producer_waits_for_the_end_of_the_transaction_before(state: TransactionState) -> None:
    assert begin(transaction(state)) == BUSY


@pytest.mark.parametrize("claimed", [NOBODY, Producer(7, 4)])
def test_an_open_transaction_is_aborted_first(claimed: Producer) -> None:
    fencing = begin(transaction(ONGOING), claimed)
    assert fencing == transaction(
        PREPARE_ABORT, producer_epoch=5, last_producer_epoch=4, client_version=2, last_update_ms=NOW_MS
    )
    assert isinstance(fencing, Transaction)
    after = begin(complete(fencing, NOW_MS), claimed)
    assert isinstance(after, Transaction)
    assert after.producer_epoch == (6 if claimed is NOBODY else 5)


@pytest.mark.parametrize("claimed", [NOBODY, Producer(7, LAST_EPOCH_TO_BUMP)])
def test_when_the_epochs_are_used_up_another_id_follows(claimed: Producer) -> None:
    current = transaction(producer_epoch=LAST_EPOCH_TO_BUMP)
    with pytest.raises(NeedsProducerId):
        begin(current, claimed)
    assert isinstance(begin(transaction(producer_epoch=LAST_EPOCH_TO_BUMP - 1)), Transaction)
    assert begin(current, Producer(8, LAST_EPOCH_TO_BUMP)) is ErrorCode.producer_fenced
    after = begin(current, claimed, fresh=20)
    assert isinstance(after, Transaction)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (20, 0, 7)
    again = begin(after, Producer(7, LAST_EPOCH_TO_BUMP))
    assert again == (FENCED if claimed is NOBODY else after)


@pytest.mark.parametrize("epoch", [LAST_EPOCH_TO_BUMP, MAX_EPOCH])
def test_a_fence_at_the_last_epoch(epoch: int) -> None:
    fencing = fence(transaction(ONGOING, producer_epoch=epoch), NOW_MS)
    assert fencing.producer_epoch == MAX_EPOCH
    after = begin(complete(fencing, NOW_MS), fresh=20)
    assert isinstance(after, Transaction)
    assert (after.producer_id, after.producer_epoch) == (20, 0)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 1, ErrorCode.invalid_request),
        ("é" * 20_000, 1, ErrorCode.invalid_request),
        ("t", 0, ErrorCode.invalid_transaction_timeout),
        ("t", -1, ErrorCode.invalid_transaction_timeout),
        ("t", 900_001, ErrorCode.invalid_transaction_timeout),
    ],
)
def test_invalid_requests_of_a_producer(name: str, timeout_ms: int, error: ErrorCode) -> None:
    check_begin("t", 900_000, TransactionLimits())
    with pytest.raises(TransactionRefused) as refused:
        check_begin(name, timeout_ms, TransactionLimits())
    assert refused.value.error_code == error
