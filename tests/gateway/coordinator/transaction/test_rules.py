"""The outcome of a request in each state of a transactional id. The error codes are those of Kafka 4.4.0."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import (
    BY_NAME,
    COMPLETE_COMMIT,
    EMPTY,
    IDLE,
    MAY_FOLLOW,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionRecord,
    TransactionState,
)
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused, TransactionShard

NOW_MS = 1_000
PLACE = ("topic", 3)
PLACES = frozenset({PLACE})
FENCED = ErrorCode.producer_fenced
UNKNOWN = ErrorCode.invalid_producer_id_mapping
BUSY = ErrorCode.concurrent_transactions
BEGUN = Transaction(7, 0, 100, EMPTY, last_update_ms=50)
OPEN = Transaction(7, 0, 100, ONGOING, PLACES, 60, 60)


def transaction(state: TransactionState = EMPTY, **changes: object) -> Transaction:
    plain = Transaction(7, 4, 60_000, state, PLACES if state not in IDLE else frozenset(), 900, 500)
    return plain._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_partition_begins_the_transaction(state: TransactionState) -> None:
    after = rules.add_partitions(transaction(state), Producer(7, 4), PLACES, 2, 10, NOW_MS)
    assert after == transaction(ONGOING, last_update_ms=NOW_MS, start_ms=NOW_MS, client_version=2)


def test_partitions_are_added_to_the_transaction() -> None:
    current = transaction(ONGOING)
    assert rules.add_partitions(current, Producer(7, 4), PLACES, 2, 10, NOW_MS) is None
    after = rules.add_partitions(current, Producer(7, 4), frozenset({("b", 0)}), 0, 10, NOW_MS)
    assert after is not None
    assert after.partitions == {PLACE, ("b", 0)}
    assert after.start_ms == current.start_ms


def test_a_transaction_has_a_limit_of_partitions() -> None:
    with pytest.raises(TransactionRefused) as refused:
        rules.add_partitions(transaction(ONGOING), Producer(7, 4), frozenset({("b", 0)}), 2, 1, NOW_MS)
    assert refused.value.error_code == ErrorCode.policy_violation


@pytest.mark.parametrize(
    ("current", "producer", "error"),
    [
        (None, Producer(7, 4), UNKNOWN),
        (transaction(ONGOING), Producer(8, 4), UNKNOWN),
        (transaction(ONGOING), Producer(7, 3), FENCED),
        (transaction(ONGOING), Producer(7, 5), FENCED),
        (transaction(PREPARE_COMMIT), Producer(7, 4), BUSY),
        (transaction(PREPARE_ABORT), Producer(7, 4), BUSY),
    ],
)
def test_producers_that_may_not_write(
    current: Transaction | None, producer: Producer, error: ErrorCode
) -> None:
    with pytest.raises(TransactionRefused) as refused:
        rules.add_partitions(current, producer, PLACES, 2, 10, NOW_MS)
    assert refused.value.error_code == error
    with pytest.raises(TransactionRefused) as refused:
        rules.check_partition(current, producer, PLACE)
    assert refused.value.error_code == error


def test_a_partition_that_was_not_added() -> None:
    rules.check_partition(transaction(ONGOING), Producer(7, 4), PLACE)
    for current in (transaction(ONGOING), transaction(EMPTY), transaction(COMPLETE_COMMIT)):
        with pytest.raises(TransactionRefused) as refused:
            rules.check_partition(current, Producer(7, 4), ("other", 0))
        assert refused.value.error_code == ErrorCode.transaction_abortable


def test_a_transaction_is_overdue_after_its_timeout() -> None:
    current = transaction(ONGOING)
    assert not rules.is_overdue(current, current.start_ms + 60_000)
    assert rules.is_overdue(current, current.start_ms + 60_001)
    assert not rules.is_overdue(transaction(PREPARE_ABORT), 10**12)


def test_a_transaction_is_overdue_when_the_clock_is_set_back_beyond_its_timeout() -> None:
    current = transaction(ONGOING, timeout_ms=60_000)
    assert not rules.is_overdue(current, current.start_ms - 60_000)
    assert rules.is_overdue(current, current.start_ms - 60_001)


def test_an_overdue_transaction_may_have_a_grace_period() -> None:
    current = transaction(ONGOING, timeout_ms=60_000)
    assert not rules.is_overdue(current, current.start_ms, 5_000)
    assert not rules.is_overdue(current, current.start_ms + 65_000, 5_000)
    assert rules.is_overdue(current, current.start_ms + 65_001, 5_000)


def test_an_id_expires_only_between_transactions() -> None:
    assert rules.is_expired(transaction(), 100, 1_000)
    assert not rules.is_expired(transaction(), 100, 999)
    for state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT):
        assert not rules.is_expired(transaction(state), 100, 10**12)


def test_every_stored_state_says_what_it_may_follow() -> None:
    assert set(MAY_FOLLOW) == set(TransactionState) - {
        TransactionState.DEAD,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
    with pytest.raises(AssertionError):
        rules.fence(transaction(PREPARE_COMMIT), NOW_MS)


def test_names_are_kafkas() -> None:
    assert list(BY_NAME) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# The state of a shard is determined by its records alone.


def replayed(*records: tuple[str, Transaction | None]) -> TransactionShard:
    shard = TransactionShard()
    for name, value in records:
        shard.replay(TransactionRecord(name, value), 0)
    return shard


def test_the_last_record_of_an_id_counts() -> None:
    shard = replayed(("a", BEGUN), ("b", BEGUN._replace(producer_id=8)), ("a", OPEN))
    assert shard.transactions == {"a": OPEN, "b": BEGUN._replace(producer_id=8)}
    assert (shard.open, shard.decided) == ({"a"}, set())
    assert shard.by_producer_id == {7: "a", 8: "b"}
    assert [record for name in shard.stored_keys() for record in shard.records_of(name)] == [
        TransactionRecord("a", OPEN),
        TransactionRecord("b", BEGUN._replace(producer_id=8)),
    ]


def test_a_tombstone_forgets_everything() -> None:
    shard = replayed(("a", OPEN), ("a", None), ("b", None))
    assert not shard.transactions
    assert not shard.open
    assert not shard.by_producer_id
    assert not shard.records_of("a")


def test_a_former_producer_id_is_unknown() -> None:
    shard = replayed(("a", BEGUN), ("a", BEGUN._replace(producer_id=9)))
    assert shard.by_producer_id == {9: "a"}


def test_overdue_and_expired_ids() -> None:
    shard = replayed(("a", OPEN), ("b", BEGUN._replace(producer_id=8)), ("c", rules.fence(OPEN, 70)))
    assert shard.decided == {"c"}
    assert shard.transactions["c"].state is PREPARE_ABORT
    assert shard.overdue(160) == []
    assert shard.overdue(161) == ["a"]
    assert shard.expired(1_000, 1_050) == ["b"]
