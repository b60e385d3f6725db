"""A gate refuses batches before they are written, and later admits a producer's batches in their order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.quota.backlog import BacklogRules, Limit, Policy, Reader, Usage
from gateway.quota.produce_gate import REMEMBERED_MS, ProduceGate, strict_gate

READER = Reader("slow", False, 0)
BY_SIZE = BacklogRules(quota_bytes=100, policy=Policy.REFUSE)
FULL = Usage(READER, 101, None, Limit.QUOTA_BYTES)
EMPTY = Usage(READER, 0, None, None)


def gate(usage: Usage = EMPTY, rules: BacklogRules = BY_SIZE, max_refused: int = 10) -> ProduceGate:
    made = ProduceGate(max_refused)
    made.update(usage, rules)
    return made


def test_a_quota_by_size_is_counted_down_between_measurements() -> None:
    found = gate(Usage(READER, 60, None, None))
    assert found.refusal(-1, -1, -1, 0) is None
    found.count_append(40)
    assert found.refusal(-1, -1, -1, 0) is None, "100 bytes are the quota, not more than it"
    found.count_append(1)
    reason = found.refusal(-1, -1, -1, 0)
    assert reason is not None
    assert "slow" in reason
    assert "backlog.quota.bytes is 100" in reason
    assert found.refused_batches == 1


def test_a_quota_by_time_closes_whatever_the_size() -> None:
    rules = BacklogRules(quota_bytes=100, quota_ms=5_000)
    found = gate(Usage(READER, 1, 6_000, Limit.QUOTA_MS), rules)
    assert found.is_closed
    assert found.holds
    assert "backlog.quota.ms is 5000" in (found.refusal(-1, -1, -1, 0) or "")


def test_without_readers_every_batch_is_taken() -> None:
    found = gate(Usage(None, 0, None, None))
    found.count_append(2**40)
    assert found.lets_all_pass


def test_a_batch_behind_a_refused_one_waits_for_it() -> None:
    found = gate(FULL)
    assert found.refusal(7, 0, 0, 0)
    found.update(EMPTY, BY_SIZE)
    assert not found.lets_all_pass
    assert found.refusal(7, 0, 3, 1), "the log does not know producer 7 and would take any sequence"
    assert found.refusal(8, 0, 3, 1) is None, "a batch of another producer must pass"
    assert found.refusal(7, 0, 0, 2) is None
    assert found.refusal(7, 0, 3, 3) is None
    assert found.lets_all_pass


def test_a_new_epoch_is_not_held_up_by_a_refused_batch() -> None:
    found = gate(FULL)
    assert found.refusal(7, 0, 5, 0)
    found.update(EMPTY, BY_SIZE)
    assert found.refusal(7, 1, 9, 1) is None


def test_the_gate_does_not_wait_for_a_refused_batch_for_ever() -> None:
    found = gate(FULL)
    assert found.refusal(7, 0, 0, 0)
    found.update(EMPTY, BY_SIZE)
    assert found.refusal(7, 0, 1, REMEMBERED_MS)
    assert found.refusal(7, 0, 1, REMEMBERED_MS + 1) is None


def test_sequences_wrap() -> None:
    found = gate(FULL)
    assert found.refusal(7, 0, 2**31 - 1, 0)
    found.update(EMPTY, BY_SIZE)
    assert found.refusal(7, 0, 0, 1), "0 follows the largest sequence"
    assert found.refusal(7, 0, 2**31 - 1, 1) is None


def test_the_table_of_refused_producers_is_bounded() -> None:
    found = gate(FULL, max_refused=3)
    for producer_id in range(5):
        assert found.refusal(producer_id, 0, 0, 0)
    found.update(EMPTY, BY_SIZE)
    verdicts = [found.refusal(producer_id, 0, 1, 0) is None for producer_id in range(5)]
    assert verdicts == [True, True, False, False, False]


@settings(max_examples=150)
@given(
    st.integers(1, 5),
    st.lists(st.one_of(st.sampled_from(["open", "close"]), st.integers(0, 4)), max_size=60),
    st.integers(0, 2**31 - 1),
)
def test_batches_of_a_producer_enter_in_order(in_flight: int, steps: list[str | int], first: int) -> None:
    """A producer has up to 5 batches in flight. Refused batches come again, in any order."""
    found = gate(FULL)
    entered: list[int] = []
    waiting = list(range(in_flight))
    sent_first = [found.refusal(7, 0, (first + number) & (2**31 - 1), 0) is None for number in waiting]
    assert not any(sent_first)
    for now_ms, step in enumerate(steps):
        if isinstance(step, str):
            found.update(EMPTY if step == "open" else FULL, BY_SIZE)
            continue
        if step not in waiting or found.refusal(7, 0, (first + step) & (2**31 - 1), now_ms) is not None:
            continue
        # once its first batch is stored, the log accepts only the producer's next sequence
        if not entered or step == entered[-1] + 1:
            entered.append(step)
            waiting.remove(step)
    assert entered == list(range(len(entered)))


def test_a_refused_batch_that_is_stored_holds_up_nobody() -> None:
    """Its first attempt was stored by the leader before, whose answer came late."""
    found = gate()
    found.remember_refusal(7, 0, 12, 0)
    found.note_stored(7, 0, 11)
    assert found.refusal(7, 0, 14, 1)
    found.note_stored(7, 0, 13)
    assert found.refusal(7, 0, 14, 1) is None
    found.remember_refusal(7, 1, 0, 0)
    found.note_stored(7, 0, 13)
    assert found.refusal(7, 1, 4, 1)
    found.note_stored(7, 2, 5)
    assert found.refusal(7, 1, 4, 1) is None


def test_a_clock_that_is_set_back_ends_the_memory() -> None:
    found = strict_gate(None, 10, now_ms=3_600_000)
    found.remember_refusal(7, 0, 0, 3_600_000)
    assert found.refusal(7, 0, 3, 3_599_000), "the clock may be corrected by a second"
    assert found.refusal(7, 0, 3, 0) is None
    assert not found.is_strict(0)


class TestAPartitionThatIsNew:
    """A gateway that begins to lead a partition does not know what it, or another one, has refused a moment ago."""

    def test_a_batch_that_is_not_the_first_of_an_unknown_producer_must_come_twice(self) -> None:
        found = strict_gate(None, 10, now_ms=0)
        assert found.is_strict(1)
        assert found.refusal(7, 0, 12, 1, must_be_first=True)
        assert found.refusal(7, 0, 14, 1, must_be_first=True), "a batch behind it"
        assert found.refusal(7, 0, 12, 2, must_be_first=True) is None, "its producer has nothing before it"
        assert found.refusal(7, 0, 14, 3) is None

    def test_the_first_one_is_taken_before_it(self) -> None:
        found = strict_gate(None, 10, now_ms=0)
        assert found.refusal(7, 0, 12, 1, must_be_first=True)
        assert found.refusal(7, 0, 0, 2, must_be_first=True) is None
        assert found.refusal(7, 0, 4, 3) is None
        assert found.refusal(7, 0, 12, 4) is None

    def test_an_earlier_one_must_come_twice_as_well(self) -> None:
        found = strict_gate(None, 10, now_ms=0)
        assert found.refusal(7, 0, 12, 1, must_be_first=True)
        assert found.refusal(7, 0, 4, 2, must_be_first=True)
        assert found.refusal(7, 0, 12, 3, must_be_first=True)
        assert found.refusal(7, 0, 4, 4, must_be_first=True) is None

    def test_known_producers_and_those_without_an_id_pass(self) -> None:
        found = strict_gate(None, 10, now_ms=0)
        assert found.refusal(7, 0, 12, 1) is None
        assert found.refusal(-1, -1, -1, 1, must_be_first=True) is None

    def test_what_was_refused_before_is_remembered(self) -> None:
        kept = ProduceGate(10)
        kept.remember_refusal(7, 0, 3, 0)
        found = strict_gate(kept, 10, now_ms=0)
        assert found.refusal(7, 0, 5, 1, must_be_first=True)
        assert found.refusal(7, 0, 3, 2, must_be_first=True) is None

    def test_all_pass_after_a_while(self) -> None:
        found = strict_gate(None, 10, now_ms=0)
        assert not found.lets_all_pass
        assert not found.is_strict(REMEMBERED_MS)
        assert found.lets_all_pass
