"""The limits on the number of remembered names, and the choice of the name that is evicted."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from seqgate.seq_validator.names import NameBudget, NamedRecord, NamesRejected, NameTable, TopicNames
from seqgate.seq_validator.names.entry import NamesAccepted


def take(table: NameTable, *names: bytes, now_ms: int, transaction_of: int = -1) -> bool:
    """Judge and fold in a batch with one new record of each name; return whether the batch was accepted."""
    records = []
    for position, name in enumerate(names):
        state = table.state(name, 0)
        records.append(NamedRecord(position, name, 1 if state is None else state.pushed_sequence + 1, -1))
    verdict = table.judge(records, now_ms, high_watermark=0, transaction_of=transaction_of)
    if isinstance(verdict, NamesRejected):
        return False
    assert isinstance(verdict, NamesAccepted)
    table.update(verdict.advances, 0, now_ms, high_watermark=0, transaction_of=transaction_of)
    return True


def known(table: NameTable) -> set[bytes]:
    return {state.name for state in table.states(0)}


def test_a_new_name_does_not_evict_an_idle_name_of_the_same_batch() -> None:
    budget = NameBudget(min_idle_ms=10)
    table = NameTable(TopicNames(budget, max_names=2))
    assert take(table, b"a", now_ms=0)
    assert take(table, b"b", now_ms=1)
    assert take(table, b"new", b"a", now_ms=100)
    assert known(table) == {b"new", b"a"}
    assert budget.evictions == 1


def test_a_name_with_an_open_transaction_is_not_evicted() -> None:
    table = NameTable(TopicNames(NameBudget(), max_names=1))
    assert take(table, b"a", now_ms=0, transaction_of=7)
    assert not take(table, b"b", now_ms=100)
    assert table.expire(100, 1) == 0
    table.end_transaction(7, commit=True, marker_offset=5, high_watermark=0)
    assert take(table, b"b", now_ms=100)
    assert known(table) == {b"b"}


def test_an_evicted_name_leaves_all_partitions() -> None:
    budget = NameBudget()
    topic = TopicNames(budget, max_names=1)
    first, second = NameTable(topic), NameTable(topic)
    assert take(first, b"a", now_ms=0)
    assert take(second, b"a", now_ms=1)
    assert (len(topic), budget.in_all) == (1, 2)
    assert take(second, b"b", now_ms=2)
    assert (known(first), known(second), budget.in_all) == (set(), {b"b"}, 1)


def test_the_limit_over_all_partitions_refuses_new_names() -> None:
    budget = NameBudget(max_in_all=1)
    first, second = NameTable(TopicNames(budget)), NameTable(TopicNames(budget))
    assert take(first, b"a", now_ms=0)
    assert not take(second, b"a", now_ms=1)
    assert budget.refusals == 1
    first.clear()
    assert take(second, b"a", now_ms=1)


def test_idle_names_expire_the_longest_idle_first() -> None:
    budget = NameBudget()
    table = NameTable(TopicNames(budget))
    for now_ms, name in enumerate((b"a", b"b", b"a")):
        assert take(table, name, now_ms=now_ms)
    assert table.expire(11, 10) == 1
    assert known(table) == {b"a"}
    assert (budget.expired, budget.in_all) == (1, 1)


def test_a_name_that_is_active_in_another_partition_does_not_expire() -> None:
    topic = TopicNames(NameBudget())
    first, second = NameTable(topic), NameTable(topic)
    assert take(first, b"a", now_ms=0)
    assert take(second, b"a", now_ms=5)
    assert (first.expire(14, 10), second.expire(14, 10)) == (0, 0)
    assert (first.expire(15, 10), second.expire(15, 10)) == (1, 1)


def test_room_for_all_names_of_a_batch_is_made_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that were idle longest have open transactions, so each pass must walk over them."""
    topic = TopicNames(NameBudget(), max_names=20)
    table = NameTable(topic)
    assert take(table, *[b"held %d" % number for number in range(10)], now_ms=0, transaction_of=7)
    assert take(table, *[b"idle %d" % number for number in range(10)], now_ms=1)
    looked_at = Mock(side_effect=table.is_pending)
    monkeypatch.setattr(NameTable, "is_pending", lambda _, name: looked_at(name))
    assert take(table, *[b"new %d" % number for number in range(10)], now_ms=2)
    assert looked_at.call_count <= 2 * 20, "one pass for judging, and one for making room"
    assert {name[:4] for name in known(table)} == {b"held", b"new "}
    assert topic.budget.evictions == 10


def test_a_name_that_comes_to_another_partition_is_not_evicted_elsewhere() -> None:
    topic = TopicNames(NameBudget(min_idle_ms=10), max_names=2)
    first, second = NameTable(topic), NameTable(topic)
    assert take(first, b"a", now_ms=0)
    assert take(first, b"b", now_ms=1)
    assert take(second, b"new", b"a", now_ms=100)
    assert (known(first), known(second)) == ({b"a"}, {b"a", b"new"})


def test_a_name_active_in_the_future_counts_as_active_now() -> None:
    budget = NameBudget(min_idle_ms=10)
    table = NameTable(TopicNames(budget, max_names=2))
    assert take(table, b"a", now_ms=1_000)  # then the clock is set back
    assert take(table, b"b", now_ms=1)
    assert not take(table, b"c", now_ms=5)
    assert table.expire(5, 10) == 0
    assert take(table, b"c", now_ms=15)
    assert known(table) == {b"b", b"c"}
    assert table.expire(25, 10) == 2


def test_the_limit_over_all_partitions_evicts_idle_names_of_the_topic() -> None:
    budget = NameBudget(max_in_all=4, min_idle_ms=10)
    topic, other = TopicNames(budget), TopicNames(budget)
    first, second, elsewhere = NameTable(topic), NameTable(topic), NameTable(other)
    assert take(elsewhere, b"old", now_ms=0)
    assert take(first, b"a", now_ms=1)
    assert take(second, b"a", now_ms=1)
    assert take(first, b"b", now_ms=2)
    assert not take(second, b"b", now_ms=5), "no name is idle"
    assert take(second, b"new", now_ms=50)
    assert (known(first), known(second), known(elsewhere)) == ({b"b"}, {b"new"}, {b"old"})
    assert (budget.in_all, budget.evictions, budget.refusals) == (3, 1, 1)
