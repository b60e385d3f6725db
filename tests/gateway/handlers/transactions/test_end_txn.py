"""The outcome of an EndTxn in each state of a transactional id. The error codes are those of Kafka 4.4.0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.records import (
    ABORT,
    COMMIT,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
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
    TransactionRefused,
    add_partitions,
    complete,
    fence,
)
from seqgate.gateway.handlers.transactions.end_txn import EndRequest, decided_by, producer_after
from seqgate.gateway.handlers.transactions.init_producer_id import next_state
from tests.gateway.coordinator.transaction.test_rules import transaction

NOW_MS = 1_000
FENCED = ErrorCode.producer_fenced
UNKNOWN = ErrorCode.invalid_producer_id_mapping
BUSY = ErrorCode.concurrent_transactions
INVALID = ErrorCode.invalid_txn_state


def end(
    current: Transaction | None,
    epoch: int,
    commit: bool,
    version: int,
    fresh: int | None = None,
    pid: int = 7,
) -> TransactionState | ErrorCode | None:
    request = EndRequest(Producer(pid, epoch), commit, version)
    try:
        after = decided_by(current, request, fresh, NOW_MS)
    except TransactionRefused as error:
        return error.error_code
    return None if after is None else after.state


END_OF_V1 = {
    EMPTY: (INVALID, INVALID),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (BUSY, INVALID),
    PREPARE_ABORT: (INVALID, BUSY),
    COMPLETE_COMMIT: (None, INVALID),
    COMPLETE_ABORT: (INVALID, None),
}
END_OF_V2 = {
    EMPTY: (INVALID, PREPARE_ABORT),
    ONGOING: (PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (BUSY, BUSY),
    PREPARE_ABORT: (BUSY, BUSY),
    COMPLETE_COMMIT: (INVALID, PREPARE_ABORT),
    COMPLETE_ABORT: (INVALID, PREPARE_ABORT),
}
END_OF_V2_AGAIN = END_OF_V1 | {EMPTY: (FENCED, FENCED), ONGOING: (FENCED, FENCED)}


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
@pytest.mark.parametrize("state", END_OF_V1)
def test_outcomes_of_an_end(state: TransactionState, commit: bool) -> None:
    column = 0 if commit else 1
    current = transaction(state)
    assert end(current, 4, commit, 0) == END_OF_V1[state][column]
    assert end(current, 4, commit, 2) == END_OF_V2[state][column]
    assert end(current._replace(client_version=2), 3, commit, 2) == END_OF_V2_AGAIN[state][column]
    for version in (0, 2):
        assert end(current, 5, commit, version) == FENCED
        assert end(current, 4, commit, version, pid=8) == UNKNOWN
        assert end(None, 4, commit, version) == UNKNOWN
    assert end(current, 3, commit, 0) == FENCED


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
@pytest.mark.parametrize("state", END_OF_V1)
def test_an_end_of_a_successor_is_not_taken_for_ones_own(state: TransactionState, commit: bool) -> None:
    """A successor of version 1 keeps its first epoch, which is one above the epoch of the instance that it
    fenced, or the first one of another id.
    """
    successor = transaction(state, client_version=1, producer_epoch=4)
    assert end(successor, 3, commit, 2) == FENCED
    successor = successor._replace(producer_id=20, producer_epoch=0, previous_producer_id=7)
    assert end(successor, LAST_EPOCH_TO_BUMP, commit, 2) == FENCED


def test_an_end_of_version_2_raises_the_epoch() -> None:
    after = decided_by(transaction(ONGOING), EndRequest(Producer(7, 4), COMMIT, 2), None, NOW_MS)
    assert after == transaction(
        PREPARE_COMMIT, producer_epoch=5, last_producer_epoch=4, client_version=2, last_update_ms=NOW_MS
    )
    assert after is not None
    assert complete(after, 2_000) == after._replace(
        state=COMPLETE_COMMIT, partitions=frozenset(), last_update_ms=2_000
    )


def test_an_end_of_version_1_keeps_the_epoch() -> None:
    after = decided_by(transaction(ONGOING), EndRequest(Producer(7, 4), ABORT, 1), None, NOW_MS)
    assert after == transaction(PREPARE_ABORT, client_version=1, last_update_ms=NOW_MS)


def test_the_end_of_a_transaction_that_wrote_nothing_has_a_start() -> None:
    current = transaction(COMPLETE_COMMIT)
    after = decided_by(current, EndRequest(Producer(7, 4), ABORT, 2), None, NOW_MS)
    assert after is not None
    assert (after.start_ms, after.partitions) == (NOW_MS, frozenset())


def test_the_last_epoch_takes_no_partitions_and_an_abort_gives_another_id() -> None:
    """A timeout could not fence it. A client gets it when it repeats an abort that a timeout has made."""
    place = frozenset({("t", 0)})
    timed_out = complete(fence(transaction(ONGOING, producer_epoch=LAST_EPOCH_TO_BUMP), NOW_MS), NOW_MS)
    assert end(timed_out, LAST_EPOCH_TO_BUMP, ABORT, 2) is None
    with pytest.raises(TransactionRefused) as refused:
        add_partitions(timed_out, Producer(7, MAX_EPOCH), place, 2, 10, NOW_MS)
    assert refused.value.error_code is ErrorCode.invalid_producer_epoch
    aborted = decided_by(timed_out, EndRequest(Producer(7, MAX_EPOCH), ABORT, 2), 20, NOW_MS)
    assert aborted is not None
    assert (complete(aborted, NOW_MS).producer_id, complete(aborted, NOW_MS).producer_epoch) == (20, 0)


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_an_end_that_uses_up_the_epochs_gives_another_id(commit: bool) -> None:
    current = transaction(ONGOING, producer_epoch=LAST_EPOCH_TO_BUMP)
    request = EndRequest(Producer(7, LAST_EPOCH_TO_BUMP), commit, 2)
    with pytest.raises(NeedsProducerId):
        decided_by(current, request, None, NOW_MS)
    assert decided_by(current, request._replace(client_version=1), None, NOW_MS) is not None
    decided = decided_by(current, request, 20, NOW_MS)
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (7, MAX_EPOCH, 20)
    assert end(decided, LAST_EPOCH_TO_BUMP, commit, 2) == BUSY
    done = complete(decided, NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (20, 0, 7)
    assert end(done, LAST_EPOCH_TO_BUMP, commit, 2) is None
    assert end(done, LAST_EPOCH_TO_BUMP, not commit, 2) == INVALID
    assert end(done, 3, commit, 2) == UNKNOWN


def test_the_producer_of_a_new_id_waits_for_the_end_that_named_it() -> None:
    """The answer to an end leaves without a marker that takes too long. A fenced producer learns at once that
    it is fenced.
    """
    current = transaction(ONGOING, producer_epoch=LAST_EPOCH_TO_BUMP)
    decided = decided_by(current, EndRequest(Producer(7, LAST_EPOCH_TO_BUMP), COMMIT, 2), 20, NOW_MS)
    assert decided is not None
    next_producer = producer_after(decided)
    assert next_producer == Producer(20, 0)

    def refusals(producer: Producer) -> list[ErrorCode]:
        places = frozenset({("t", 0)})
        asked: list[Callable[[], object]] = [
            lambda: add_partitions(decided, producer, places, 2, 10, NOW_MS),
            lambda: decided_by(decided, EndRequest(producer, ABORT, 2), None, NOW_MS),
            lambda: next_state(decided, 60_000, producer, None, NOW_MS),
        ]
        found = []
        for ask in asked:
            with pytest.raises(TransactionRefused) as refused:
                ask()
            found.append(refused.value.error_code)
        return found

    assert refusals(next_producer) == [BUSY, BUSY, BUSY]
    assert refusals(Producer(6, 0)) == [UNKNOWN, UNKNOWN, FENCED]
    done = complete(decided, NOW_MS)
    assert add_partitions(done, next_producer, frozenset({("t", 0)}), 2, 10, NOW_MS) is not None
