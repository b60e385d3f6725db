"""Delayed records behave like a plain dictionary, for any order of adding, deciding, deleting and passing
time.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seqgate.log.environment import DelayedLimit
from seqgate.log.state.delays import NEVER_DUE, NOT_HELD, RELEASED_AT_ONCE, DelayedRecords

HOLD_MS = 600
STEP_MS = HOLD_MS // 60
PRODUCERS = st.sampled_from((7, 8))


class Waiting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 10_000
        self.limit = DelayedLimit()
        self.real = DelayedRecords(self.limit, HOLD_MS)
        self.due: dict[int, int] = {}
        self.undecided: dict[int, set[int]] = {}
        self.was_due: dict[int, int] = {}
        self.end_offset = 0

    @rule(
        gap=st.integers(0, 2),
        delay_ms=st.sampled_from((1, 5, 50, 50, 5_000)),
        producer_id=st.none() | PRODUCERS,
    )
    def add(self, gap: int, delay_ms: int, producer_id: int | None) -> None:
        offset = self.end_offset + gap
        self.end_offset = offset + 1
        self.real.add(offset, self.now_ms + delay_ms, producer_id)
        self.due[offset] = self.now_ms + delay_ms
        if producer_id is not None:
            self.undecided.setdefault(producer_id, set()).add(offset)

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.real.end_transaction(producer_id, commit=commit)
        for offset in self.undecided.pop(producer_id, set()):
            if not commit:
                self.due.pop(offset, None)

    @rule(passed_ms=st.sampled_from((0, 1, 7, 60, 400)))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        released = {offset: due_ms for offset, due_ms in self.due.items() if due_ms <= self.now_ms}
        assert self.real.release(self.now_ms) == bool(released)
        for offset in released:
            del self.due[offset]
        self.was_due |= released
        self.was_due = {
            offset: due_ms for offset, due_ms in self.was_due.items() if due_ms + HOLD_MS > self.now_ms
        }

    @rule(more=st.integers(0, 5))
    def delete_records(self, more: int) -> None:
        offset = min([*self.due, self.end_offset]) + more
        self.real.discard_below(offset)
        for gone in [other for other in self.due if other < offset]:
            del self.due[gone]
        self.was_due = {other: due_ms for other, due_ms in self.was_due.items() if other >= offset}

    @rule()
    def come_back(self) -> None:
        """Restore as from a file, which holds only decided records."""
        if any(offsets & self.due.keys() for offsets in self.undecided.values()):
            return
        entries, holds = self.real.entries(), self.real.holds()
        self.real.clear()
        assert self.limit.in_all == 0
        self.real = DelayedRecords(self.limit, HOLD_MS)
        self.real.restore(entries, holds)
        self.undecided.clear()

    @invariant()
    def knows_what_waits(self) -> None:
        assert len(self.real) == self.limit.in_all == len(self.due)
        assert sorted(self.real.entries()) == sorted((due_ms, offset) for offset, due_ms in self.due.items())
        for offset in range(self.end_offset + 2):
            assert (self.real.first_due(offset) == offset) == (offset not in self.due)
        ranges = self.real.waiting(0, self.end_offset)
        assert [offset for first, last in ranges for offset in range(first, last + 1)] == sorted(self.due)

    @invariant()
    def wakes_in_time(self) -> None:
        assert self.real.next_due_ms <= min(self.due.values(), default=NEVER_DUE)

    @invariant()
    def holds_the_log(self) -> None:
        assert self.real.held_from <= min([*self.due, *self.was_due], default=NOT_HELD)

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.real.holds()) <= 62


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_nothing_is_held_for_long() -> None:
    records = DelayedRecords(DelayedLimit(), HOLD_MS)
    records.add(5, 1_000)
    records.release(1_000)
    assert records.held_from == 5
    records.release(1_000 + HOLD_MS - 1)
    assert records.held_from == 5
    records.release(1_000 + HOLD_MS + STEP_MS)
    assert records.held_from == NOT_HELD


def test_with_nothing_to_hold_for() -> None:
    records = DelayedRecords(DelayedLimit(), 0)
    records.add(5, 1_000)
    records.release(1_000)
    assert records.held_from == NOT_HELD


def test_what_was_aborted_leaves_nothing_behind() -> None:
    records = DelayedRecords(DelayedLimit(), HOLD_MS)
    for number in range(10):
        for offset in range(number * 1000, number * 1000 + 1000):
            records.add(offset, 10**12, 7)
        records.end_transaction(7, commit=False)
        assert len(records._by_due) <= 2048
    assert (len(records), records.held_from) == (0, NOT_HELD)


def test_what_is_known_of_an_open_transaction_is_in_proportion_to_what_waits() -> None:
    records = DelayedRecords(DelayedLimit(), HOLD_MS)
    for offset in range(10_000):
        records.add(offset, offset, 7)
        records.release(offset)
    assert sum(map(len, records._undecided.values())) <= 1100


def test_many_that_are_due_at_once_are_let_go_in_parts() -> None:
    records = DelayedRecords(DelayedLimit(), HOLD_MS)
    for offset in range(RELEASED_AT_ONCE + 100):
        records.add(offset, 1_000)
    assert records.release(1_000)
    assert (len(records), records.first_due(0)) == (100, 0)
    assert records.next_due_ms == 1_000
    assert records.release(1_000)
    assert (len(records), records.held_from) == (0, 0)


def test_what_waits_no_longer_since_a_mark() -> None:
    records = DelayedRecords(DelayedLimit(), 0)
    for offset in range(1_000):
        records.add(offset, 1_000 - offset)
    _, mark = records.released_since(0)
    assert records.released_since(mark) == (NEVER_DUE, mark)
    records.release(1)
    records.release(2)
    assert records.released_since(mark)[0] == 998
    old = mark
    for now_ms in range(3, 500):
        records.release(now_ms)
    assert records.released_since(old)[0] == 0, "for a mark that is too old the offset must be 0"


def test_limits_of_a_partition_and_of_all() -> None:
    limit = DelayedLimit(max_per_partition=3, max_in_all=5)
    first, second = DelayedRecords(limit, 0), DelayedRecords(limit, 0)
    for offset in range(3):
        first.add(offset, 10)
    assert "the partition" in (first.refusal(1) or "")
    assert second.refusal(2) is None
    assert "the gateway" in (second.refusal(3) or "")
    first.release(10)
    assert second.refusal(3) is None
