"""The state of a shard is determined by its records alone."""

from __future__ import annotations

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
    TransactionRecord,
)
from seqgate.gateway.coordinator.transaction.shard import TransactionShard

PLACES = frozenset({("topic", 0)})
BEGUN = Transaction(7, 0, 100, EMPTY, last_update_ms=50)
OPEN = Transaction(7, 0, 100, ONGOING, PLACES, 60, 60)


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
