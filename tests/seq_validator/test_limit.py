from __future__ import annotations

import pytest

from seqgate.seq_validator import ACCEPTED, ProducerLimit, ProducerTable, Rejected, RejectionReason
from tests.seq_validator.candidate import Candidate


def append(table: ProducerTable, producer_id: int, now_ms: int, base_sequence: int = 0) -> bool:
    """Judge a batch and fold it in; return whether it was accepted."""
    batch = Candidate(base_sequence, producer_id=producer_id)
    verdict = table.judge(batch, now_ms)
    if verdict is ACCEPTED:
        table.update(batch, 0, now_ms)
        return True
    assert isinstance(verdict, Rejected)
    assert verdict.reason is RejectionReason.PRODUCER_LIMIT_REACHED
    assert "Retry later" in verdict.message
    return False


def ids(table: ProducerTable) -> list[int]:
    return [entry.producer_id for entry in table]


@pytest.mark.parametrize("bounds", [{"max_per_partition": 0}, {"max_in_all": 0}, {"min_idle_ms": -1}])
def test_bounds_are_checked(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        ProducerLimit(**bounds)


class TestPerPartition:
    def test_the_longest_idle_producer_is_evicted_first(self) -> None:
        limit = ProducerLimit(max_per_partition=2, min_idle_ms=100)
        table = ProducerTable(limit=limit)
        append(table, 1, 0)
        append(table, 2, 10)
        append(table, 1, 20, base_sequence=1)
        assert append(table, 3, 110)
        assert ids(table) == [1, 3]
        assert (limit.evictions, limit.refusals, len(limit)) == (1, 0, 2)

    def test_an_active_producer_is_never_evicted(self) -> None:
        limit = ProducerLimit(max_per_partition=2, min_idle_ms=100)
        table = ProducerTable(limit=limit)
        append(table, 1, 0)
        append(table, 2, 10)
        assert not append(table, 3, 99)
        assert ids(table) == [1, 2]
        assert (limit.evictions, limit.refusals) == (0, 1)
        assert append(table, 3, 100)

    def test_a_known_producer_is_never_refused(self) -> None:
        table = ProducerTable(limit=ProducerLimit(max_per_partition=1, min_idle_ms=100))
        append(table, 1, 0)
        assert append(table, 1, 1, base_sequence=1)


class TestInAll:
    def test_the_longest_idle_producer_of_all_tables_is_evicted_first(self) -> None:
        limit = ProducerLimit(max_in_all=3, min_idle_ms=100)
        first, second = ProducerTable(limit=limit), ProducerTable(limit=limit)
        append(first, 1, 0)
        append(second, 2, 1)
        append(first, 3, 2)
        append(first, 1, 3, base_sequence=1)
        assert not append(second, 4, 100)
        assert append(first, 4, 101)
        assert (ids(first), ids(second)) == ([3, 1, 4], [])

    def test_expired_and_cleared_tables_give_room_back(self) -> None:
        limit = ProducerLimit(max_in_all=2, min_idle_ms=100)
        first, second = ProducerTable(limit=limit), ProducerTable(limit=limit)
        append(first, 1, 0)
        append(first, 2, 0)
        first.clear()
        assert append(second, 3, 1)
        assert limit.expirations == 0, "a table that is cleared forgets, and nothing expires"
        second.expire(50, 10)
        assert (len(limit), limit.expirations) == (0, 1)
        second.expire(50, 10)
        assert limit.expirations == 1

    def test_entries_of_restored_tables_are_sorted_by_activity(self) -> None:
        limit = ProducerLimit(max_in_all=3, min_idle_ms=100)
        snapshots = []
        for producers in ((1, 50), (3, 70)), ((2, 20),):
            table = ProducerTable()
            for producer_id, now_ms in producers:
                append(table, producer_id, now_ms)
            snapshots.append(table.snapshot(0))
        (first, _), (second, _) = (ProducerTable.restore(data, limit=limit) for data in snapshots)
        assert append(first, 4, 160)
        assert (ids(first), ids(second)) == ([1, 3, 4], [])

    def test_replay_exceeds_the_limit_and_evicts_no_active_producer(self) -> None:
        limit = ProducerLimit(max_per_partition=2, max_in_all=2, min_idle_ms=100)
        table = ProducerTable(limit=limit)
        for producer_id in range(4):
            table.update(Candidate(producer_id=producer_id), producer_id, 0)
        assert len(table) == 4
        assert not append(table, 9, 99)
        assert append(table, 9, 100)
        assert ids(table) == [3, 9]
        assert limit.evictions == 3
