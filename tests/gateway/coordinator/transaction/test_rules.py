"""The outcome of a request in each state of a transactional id. The error codes are those of Kafka 4.4.0."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import (
    ABORT,
    BY_NAME,
    COMMIT,
    COMPLETE_ABORT,
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
from seqgate.gateway.coordinator.transaction.rules import (
    LAST_EPOCH_TO_BUMP,
    MAX_EPOCH,
    EndRequest,
    NeedsProducerId,
    Producer,
    TransactionLimits,
    TransactionRefused,
    TransactionShard,
)

NOW_MS = 1_000
NOBODY = Producer()
PLACE = ("topic", 3)
PLACES = frozenset({PLACE})
FENCED = ErrorCode.producer_fenced
UNKNOWN = ErrorCode.invalid_producer_id_mapping
BUSY = ErrorCode.concurrent_transactions
INVALID = ErrorCode.invalid_txn_state
BEGUN = Transaction(7, 0, 100, EMPTY, last_update_ms=50)
OPEN = Transaction(7, 0, 100, ONGOING, PLACES, 60, 60)


def transaction(state: TransactionState = EMPTY, **changes: object) -> Transaction:
    plain = Transaction(7, 4, 60_000, state, PLACES if state not in IDLE else frozenset(), 900, 500)
    return plain._replace(**changes)  # type: ignore[arg-type]


def begin(
    current: Transaction | None, claimed: Producer = NOBODY, fresh: int | None = None
) -> Transaction | ErrorCode:
    try:
        return rules.begin_producer(current, 30_000, claimed, fresh, NOW_MS)
    except TransactionRefused as error:
        return error.error_code


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
        after = rules.end(current, request, fresh, NOW_MS)
    except TransactionRefused as error:
        return error.error_code
    return None if after is None else after.state


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
    after = begin(rules.complete(fencing, NOW_MS), claimed)
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
    fencing = rules.fence(transaction(ONGOING, producer_epoch=epoch), NOW_MS)
    assert fencing.producer_epoch == MAX_EPOCH
    after = begin(rules.complete(fencing, NOW_MS), fresh=20)
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
    rules.check_begin("t", 900_000, TransactionLimits())
    with pytest.raises(TransactionRefused) as refused:
        rules.check_begin(name, timeout_ms, TransactionLimits())
    assert refused.value.error_code == error


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
    fenced.
    """
    successor = transaction(state, client_version=1, producer_epoch=4)
    assert end(successor, 3, commit, 2) == FENCED


def test_an_end_of_version_2_raises_the_epoch() -> None:
    after = rules.end(transaction(ONGOING), EndRequest(Producer(7, 4), COMMIT, 2), None, NOW_MS)
    assert after == transaction(
        PREPARE_COMMIT, producer_epoch=5, last_producer_epoch=4, client_version=2, last_update_ms=NOW_MS
    )
    assert after is not None
    assert rules.complete(after, 2_000) == after._replace(
        state=COMPLETE_COMMIT, partitions=frozenset(), last_update_ms=2_000
    )


def test_an_end_of_version_1_keeps_the_epoch() -> None:
    after = rules.end(transaction(ONGOING), EndRequest(Producer(7, 4), ABORT, 1), None, NOW_MS)
    assert after == transaction(PREPARE_ABORT, client_version=1, last_update_ms=NOW_MS)


def test_the_end_of_a_transaction_that_wrote_nothing_has_a_start() -> None:
    current = transaction(COMPLETE_COMMIT)
    after = rules.end(current, EndRequest(Producer(7, 4), ABORT, 2), None, NOW_MS)
    assert after is not None
    assert (after.start_ms, after.partitions) == (NOW_MS, frozenset())


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_an_end_that_uses_up_the_epochs_gives_another_id(commit: bool) -> None:
    current = transaction(ONGOING, producer_epoch=LAST_EPOCH_TO_BUMP)
    request = EndRequest(Producer(7, LAST_EPOCH_TO_BUMP), commit, 2)
    with pytest.raises(NeedsProducerId):
        rules.end(current, request, None, NOW_MS)
    assert rules.end(current, request._replace(client_version=1), None, NOW_MS) is not None
    decided = rules.end(current, request, 20, NOW_MS)
    assert decided is not None
    assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (7, MAX_EPOCH, 20)
    assert end(decided, LAST_EPOCH_TO_BUMP, commit, 2) == BUSY
    done = rules.complete(decided, NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (20, 0, 7)
    assert end(done, LAST_EPOCH_TO_BUMP, commit, 2) is None
    assert end(done, LAST_EPOCH_TO_BUMP, not commit, 2) == INVALID
    assert end(done, 3, commit, 2) == UNKNOWN


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
