"""A share partition behaves like one that tracks every offset separately, whatever members, time and the log
do.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seqgate.gateway.coordinator.share.records import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshot,
    ShareState,
    ShareStates,
    ShareUpdate,
    decode,
    encode,
)
from seqgate.gateway.coordinator.share.share_partition import (
    DONE,
    Acknowledgement,
    AcknowledgeType,
    DeliveryState,
    InvalidRecordState,
    NeverAcquired,
    Run,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from tests.gateway.coordinator.share.naive_partition import FRESH, NaivePartition, Stored

KEY: Final = SharePartitionKey("readers", uuid.UUID(int=7), 3)
LIMITS: Final = ShareLimits(lock_duration_ms=100, delivery_count_limit=3, max_record_locks=14)
WITH_LETTERS: Final = msgspec.structs.replace(LIMITS, has_dead_letters=True)
WITH_DELAYS: Final = msgspec.structs.replace(WITH_LETTERS, retry_backoff_ms=(50, 200))
START_OFFSET: Final = 5
MEMBERS: Final = st.sampled_from(("a", "b", "c"))
TYPES: Final = st.sampled_from(list(AcknowledgeType))


class SharedReading(RuleBasedStateMachine):
    """Members of a group read one partition, whose log has gaps, grows and shrinks."""

    limits = LIMITS

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.real = SharePartition(START_OFFSET)
        self.naive = NaivePartition(START_OFFSET, self.limits)
        self.records: list[ShareRecord] = [ShareSnapshot(KEY, ShareState(START_OFFSET, ()))]
        self.log: list[tuple[int, int]] = []
        self.log_end_offset = 0
        self.done: set[int] = set()
        """The offsets that are durably accepted, rejected, archived or skipped: no member may get them again."""

    def _store(self, changed: Sequence[StateBatch], start_before: int) -> None:
        if changed or self.real.start_offset != start_before:
            self.records.append(ShareUpdate(KEY, self.real.start_offset, tuple(changed)))

    # --- the log

    @rule(gap=st.sampled_from((0, 0, 0, 1, 4, 20)), size=st.integers(1, 9))
    def append(self, gap: int, size: int) -> None:
        base_offset = self.log_end_offset + gap
        self.log.append((base_offset, base_offset + size - 1))
        self.log_end_offset = base_offset + size

    @rule(more=st.integers(0, 12))
    def delete_records(self, more: int) -> None:
        offset = min(self.real.start_offset + more, self.log_end_offset)
        self.log = [batch for batch in self.log if batch[1] >= offset]
        before = self.real.start_offset
        self._store(self.real.move_to(offset), before)
        self.naive.log_starts_at(offset)
        self.done.update(range(before, offset))

    # --- members

    @rule(member_id=MEMBERS, count=st.integers(1, 4), max_records=st.integers(1, 12), is_strict=st.booleans())
    def acquire(self, member_id: str, count: int, max_records: int, is_strict: bool) -> None:
        next_offset = self.real.next_offset()
        batches = [batch for batch in self.log if batch[1] >= next_offset][:count]
        acquired = self.real.acquire(
            member_id, batches, max_records, self.limits, self.now_ms, is_strict=is_strict
        )
        each = [
            (offset, delivery_count)
            for first, last, delivery_count in acquired
            for offset in range(first, last + 1)
        ]
        assert each == self.naive.acquire(member_id, batches, max_records, self.now_ms, is_strict=is_strict)
        assert self.done.isdisjoint(offset for offset, _ in each)
        assert all(1 <= delivery_count <= self.limits.delivery_count_limit for _, delivery_count in each)
        if is_strict:
            assert len(each) <= max_records
        inside = {offset for base, last in self.log for offset in range(base, last + 1)}
        assert inside.issuperset(offset for offset, _ in each)
        end_before = self.naive.end_offset - self.naive.start_offset
        if batches and end_before < self.limits.max_record_locks:
            assert each, "a record is available and there is room, but no record was acquired"

    @rule(data=st.data(), member_id=MEMBERS)
    def acknowledge(self, data: st.DataObject, member_id: str) -> None:
        held = [offset for offset in self.naive.offsets if self.naive.holds(member_id, offset)]
        first = data.draw(st.sampled_from(held) if held else st.integers(0, self.log_end_offset))
        said: list[Acknowledgement] = []
        for _ in range(data.draw(st.integers(1, 2))):
            size = data.draw(st.integers(1, 6))
            one_for_all = data.draw(st.booleans())
            types = data.draw(st.lists(TYPES, min_size=size, max_size=size))
            said.append(Acknowledgement(first, first + size - 1, tuple(types[: 1 if one_for_all else size])))
            first += size + data.draw(st.integers(0, 2))
        self._acknowledge(member_id, said)

    @precondition(lambda self: any(known.member_id for known in self.naive.offsets.values()))
    @rule(data=st.data())
    def acknowledge_what_is_held(self, data: st.DataObject) -> None:
        held = [offset for offset, known in self.naive.offsets.items() if known.member_id]
        first = last = data.draw(st.sampled_from(held))
        member_id = self.naive.offsets[first].member_id
        while self.naive.holds(member_id, last + 1) and data.draw(st.booleans()):
            last += 1
        size = last - first + 1
        types = data.draw(
            st.lists(TYPES, min_size=1, max_size=1) | st.lists(TYPES, min_size=size, max_size=size)
        )
        self._acknowledge(member_id, [Acknowledgement(first, last, tuple(types))])

    def _acknowledge(self, member_id: str, said: Sequence[Acknowledgement]) -> None:
        before = self.real.start_offset
        expected = self.naive.acknowledge(member_id, said, self.now_ms)
        try:
            changed = self.real.acknowledge(member_id, said, self.limits, self.now_ms)
        except (InvalidRecordState, NeverAcquired):
            assert not expected
        else:
            assert expected
            self._store(changed, before)

    @rule(member_id=MEMBERS)
    def leave(self, member_id: str) -> None:
        before = self.real.start_offset
        self._store(self.real.release(member_id, self.limits, self.now_ms), before)
        self.naive.release_where(lambda known: known.member_id == member_id, self.now_ms)

    # --- time and restarts

    @rule(passed_ms=st.sampled_from((1, 30, 100, 250)))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        before = self.real.start_offset
        assert self.real.next_deadline_ms() == min(
            (known.deadline_ms for known in self.naive.offsets.values()), default=2**63 - 1
        )
        self._store(self.real.expire(self.limits, self.now_ms), before)
        self.naive.expire(self.now_ms)
        assert self.real.next_deadline_ms() > self.now_ms

    @rule()
    def write_anew(self) -> None:
        self.records = [
            ShareSnapshot(KEY, ShareState(self.real.start_offset, tuple(self.real.stored_batches())))
        ]
        self.naive.store_all()

    @rule()
    def crash(self) -> None:
        self.real = self._restored()
        self.naive.crash()

    def _restored(self) -> SharePartition:
        states = ShareStates()
        for record in self.records:
            again = decode(*encode(record))
            assert again is not None
            states.replay(again, self.now_ms)
        return states.partitions[KEY]

    @staticmethod
    def _death(partition: SharePartition, run: Run) -> tuple[str, int]:
        """Return why records died, and the number of the round of their letters."""
        if run.state is not DeliveryState.ARCHIVING:
            assert not run.is_rejected
            assert not run.is_sending
            return "", 0
        reason = "rejected" if run.is_rejected else "delivered too often"
        return reason, partition.letter_round if run.is_sending else 0

    # --- properties that must always hold

    @invariant()
    def is_as_the_naive_one(self) -> None:
        assert self.real.start_offset == self.naive.start_offset
        assert self.real.end_offset == self.naive.end_offset
        each = {
            offset: (
                run.state,
                run.delivery_count,
                run.member_id,
                run.deadline_ms,
                *self._death(self.real, run),
            )
            for run in self.real.runs
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        assert each == {
            offset: (
                known.state,
                known.delivery_count,
                known.member_id,
                known.deadline_ms,
                known.reason,
                known.round,
            )
            for offset, known in self.naive.offsets.items()
        }
        assert sorted(each) == list(range(self.real.start_offset, self.real.end_offset))

    @invariant()
    def what_is_stored_is_found_again(self) -> None:
        restored = self._restored()
        assert restored.start_offset == self.naive.stored_start_offset
        each: dict[int, Stored] = {
            offset: (run.state, run.delivery_count, *self._death(restored, run), run.deadline_ms)
            for run in restored.runs
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        assert all(state is not DeliveryState.ACQUIRED for state, *_ in each.values())
        offsets = each.keys() | self.naive.stored.keys()
        for offset in offsets:
            assert each.get(offset, FRESH) == self.naive.stored.get(offset, FRESH), offset
        self.done |= {
            offset for offset, (state, *_) in each.items() if state in DONE | {DeliveryState.ARCHIVING}
        }
        assert restored.letter_round == self.naive.stored_round
        assert restored.is_sending == bool(restored.letters())
        self.done |= set(range(START_OFFSET, restored.start_offset))


class ReadingWithLetters(SharedReading):
    """The group has a dead-letter topic: each record that died is in exactly one round that has ended."""

    limits = WITH_LETTERS

    def __init__(self) -> None:
        super().__init__()
        self.in_queue: list[int] = []
        """The records whose letters were written."""
        self.written_round = 0
        """The newest round that was written. A round is written again only if it has not ended."""

    @rule(is_lost=st.booleans())
    def write_letters(self, is_lost: bool) -> None:
        """Write the present round; `is_lost`: a crash follows before the state has ended the round."""
        letters = {
            offset: (letter.delivery_count, "rejected" if letter.is_rejected else "delivered too often")
            for letter in self.real.letters()
            for offset in range(letter.first_offset, letter.last_offset + 1)
        }
        assert letters == self.naive.letters()
        if letters and self.real.letter_round > self.written_round:
            self.written_round = self.real.letter_round
            self.in_queue += letters
        if is_lost:
            self.crash()
            return
        before = self.real.start_offset
        self._store(self.real.end_round(*self._round(), self.now_ms), before)
        self.naive.end_round()

    @precondition(lambda self: self.real.letter_round > self.written_round)
    @rule()
    def split_letters(self) -> None:
        """The round does not fit a batch, so that nothing of it was written."""
        before = self.real.start_offset
        self._store(self.real.split_round(*self._round(), self.now_ms), before)
        self.naive.split_round()

    @rule(earlier=st.integers(0, 3))
    def end_an_earlier_round(self, earlier: int) -> None:
        """The round is an earlier one of this state, or one of a state before it (`earlier` is 0)."""
        before = self.real.start_offset
        number, since_ms = self._round()
        since_ms -= not earlier
        self._store(self.real.end_round(number - earlier, since_ms, self.now_ms), before)

    def _round(self) -> tuple[int, int]:
        return self.real.letter_round, self.real.letters_since_ms

    @invariant()
    def no_letter_is_there_twice_and_none_is_forgotten(self) -> None:
        assert len(self.in_queue) == len(set(self.in_queue))
        waiting = {
            offset for offset, known in self.naive.offsets.items() if known.state is DeliveryState.ARCHIVING
        }
        assert not waiting or self.real.is_sending
        if self.real.letter_round == self.written_round and self.real.is_sending:
            assert set(self.in_queue) >= self.naive.letters().keys()
            waiting -= self.naive.letters().keys()
        assert waiting.isdisjoint(self.in_queue)


class ReadingWithDelays(ReadingWithLetters):
    """Released records come again after the delay of their delivery count, also after a crash."""

    limits = WITH_DELAYS

    @invariant()
    def what_waits_is_known_to_wait(self) -> None:
        assert self.real.waits >= any(run.is_waiting for run in self.real.runs)


TestSharedReading = pytest.mark.tier("all")(SharedReading.TestCase)
TestSharedReading.settings = settings(max_examples=150, stateful_step_count=40)
TestReadingWithLetters = pytest.mark.tier("all")(ReadingWithLetters.TestCase)
TestReadingWithLetters.settings = settings(max_examples=150, stateful_step_count=40)
TestReadingWithDelays = pytest.mark.tier("all")(ReadingWithDelays.TestCase)
TestReadingWithDelays.settings = settings(max_examples=150, stateful_step_count=40)
