"""Members read a partition with delayed records: none is early, none is lost, and a finished one never
returns.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

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
    Acquired,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from seqgate.log.environment import DelayedLimit
from seqgate.log.state.delays import DelayedRecords

KEY: Final = SharePartitionKey("readers", uuid.UUID(int=7), 3)
LIMITS: Final = ShareLimits(
    lock_duration_ms=100, delivery_count_limit=3, max_record_locks=6, max_stretches=12
)
MEMBERS: Final = st.sampled_from(("a", "b"))
HEARD: Final = st.sampled_from((AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT))


@dataclass(slots=True)
class Known:
    """The due time and delivery count of an offset, as the test's simple model computes them."""

    due_ms: int
    delivery_count: int = 0
    stored_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    is_done: bool = False


class DelayedReading(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.delays: DelayedRecords | None = DelayedRecords(DelayedLimit(), 0)
        self.real = SharePartition(0)
        self.records: list[ShareRecord] = [ShareSnapshot(KEY, ShareState(0, ()))]
        self.log: list[tuple[int, int]] = []
        self.known: dict[int, Known] = {}
        self.log_end_offset = 0

    def _store(self, changed: list[StateBatch], start_before: int) -> None:
        if changed or self.real.start_offset != start_before:
            self.records.append(ShareUpdate(KEY, self.real.start_offset, tuple(changed)))

    @rule(
        gap=st.sampled_from((0, 0, 0, 2)),
        delays_ms=st.lists(st.sampled_from((0, 0, 10, 10, 60, 1_000)), min_size=1, max_size=6),
    )
    def append(self, gap: int, delays_ms: list[int]) -> None:
        base_offset = self.log_end_offset + gap
        for number, delay_ms in enumerate(delays_ms):
            delayed = delay_ms and self.delays is not None
            self.known[base_offset + number] = Known(self.now_ms + delay_ms if delayed else 0)
            if delayed and self.delays is not None:
                self.delays.add(base_offset + number, self.now_ms + delay_ms)
        self.log_end_offset = base_offset + len(delays_ms)
        self.log.append((base_offset, self.log_end_offset - 1))

    @rule(turned_on=st.booleans())
    def configure(self, turned_on: bool) -> None:
        if not turned_on:
            self.delays = None
            for known in self.known.values():
                known.due_ms = 0
        elif self.delays is None:
            self.delays = DelayedRecords(DelayedLimit(), 0)

    @rule(
        member_id=MEMBERS,
        count=st.integers(1, 3),
        max_records=st.integers(1, 5),
        is_strict=st.booleans(),
        meanwhile=st.sampled_from(("", "due", "off")),
    )
    def acquire(self, member_id: str, count: int, max_records: int, is_strict: bool, meanwhile: str) -> None:
        if self.delays is not None:
            self.delays.release(self.now_ms)
        read_from = self.real.next_offset(self.delays)
        batches = [batch for batch in self.log if batch[1] >= read_from][:count]
        free = [
            offset
            for offset, known in self.known.items()
            if not known.is_done and not known.member_id and known.due_ms <= self.now_ms
        ]
        if meanwhile == "off":
            self.configure(turned_on=False)
        elif meanwhile == "due" and self.delays is not None:
            self.time_passes(10)
            self.delays.release(self.now_ms)
        given_out = sum(known.delivery_count > 0 and not known.is_done for known in self.known.values())
        distance = self.real.end_offset - self.real.start_offset
        is_full = len(self.real.runs) >= LIMITS.max_stretches
        acquired = self.real.acquire(
            member_id,
            batches,
            max_records,
            LIMITS,
            self.now_ms,
            is_strict=is_strict,
            delays=self.delays,
            read_from=read_from,
        )
        self._check(acquired, member_id)
        got = [offset for first, last, _ in acquired for offset in range(first, last + 1)]
        assert len(got) <= max_records or not is_strict
        used = distance if self.delays is None else given_out
        if free and used < LIMITS.max_record_locks and not (self.delays is not None and is_full):
            assert min(free) in got or (got and meanwhile), (
                "a record is due and there is room, but no member gets it"
            )
        if self.delays is not None:
            given_out = sum(known.delivery_count > 0 and not known.is_done for known in self.known.values())
            assert given_out <= LIMITS.max_record_locks or not any(count == 1 for *_, count in acquired)

    def _check(self, acquired: list[Acquired], member_id: str) -> None:
        for first, last, delivery_count in acquired:
            for offset in range(first, last + 1):
                known = self.known[offset]
                assert known.due_ms <= self.now_ms, "early"
                assert not known.is_done
                assert not known.member_id
                known.delivery_count += 1
                assert known.delivery_count == delivery_count
                known.member_id = member_id
                known.deadline_ms = self.now_ms + LIMITS.lock_duration_ms

    @precondition(lambda self: any(known.member_id for known in self.known.values()))
    @rule(data=st.data(), kind=HEARD)
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        held = [offset for offset, known in self.known.items() if known.member_id]
        first = last = data.draw(st.sampled_from(held))
        member_id = self.known[first].member_id
        while last + 1 in held and self.known[last + 1].member_id == member_id and data.draw(st.booleans()):
            last += 1
        before = self.real.start_offset
        said = [Acknowledgement(first, last, (int(kind),))]
        self._store(self.real.acknowledge(member_id, said, LIMITS, self.now_ms), before)
        for offset in range(first, last + 1):
            self._free(self.known[offset], is_done=kind is not AcknowledgeType.RELEASE)

    def _free(self, known: Known, *, is_done: bool) -> None:
        known.member_id = ""
        known.is_done = is_done or known.delivery_count >= LIMITS.delivery_count_limit
        known.stored_count = known.delivery_count

    @rule(passed_ms=st.sampled_from((1, 10, 60, 100, 1_000)))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        before = self.real.start_offset
        self._store(self.real.expire(LIMITS, self.now_ms), before)
        for known in self.known.values():
            if known.member_id and known.deadline_ms <= self.now_ms:
                self._free(known, is_done=False)

    @rule(more=st.integers(0, 4))
    def delete_records(self, more: int) -> None:
        offset = min(self.real.start_offset + more, self.log_end_offset)
        if self.delays is not None:
            self.delays.discard_below(offset)
        self.log = [batch for batch in self.log if batch[1] >= offset]
        for gone in [other for other in self.known if other < offset]:
            del self.known[gone]
        if self.real.log_starts_at(offset):
            self.records.append(ShareUpdate(KEY, self.real.start_offset, ()))

    @rule(writes_anew=st.booleans())
    def crash(self, writes_anew: bool) -> None:
        if writes_anew:
            state = ShareState(self.real.start_offset, tuple(self.real.stored_batches()))
            self.records = [ShareSnapshot(KEY, state)]
        states = ShareStates()
        for record in self.records:
            again = decode(*encode(record))
            assert again is not None
            states.replay(again, self.now_ms)
        self.real = states.partitions[KEY]
        for known in self.known.values():
            known.member_id = ""
            known.delivery_count = known.stored_count

    @invariant()
    def nothing_is_lost(self) -> None:
        for offset, known in self.known.items():
            if offset < self.real.start_offset:
                assert known.is_done, offset
        for run in self.real.runs:
            if run.state in DONE:
                for offset in range(run.first_offset, run.last_offset + 1):
                    assert offset not in self.known or self.known[offset].is_done, offset

    @invariant()
    def stretches_are_bounded(self) -> None:
        assert len(self.real.runs) <= LIMITS.max_stretches + 30


TestDelayedReading = DelayedReading.TestCase
TestDelayedReading.settings = settings(max_examples=150, stateful_step_count=40)


def test_many_waiting_records_in_front_hold_no_member_up() -> None:
    delays = DelayedRecords(DelayedLimit(), 0)
    for offset in range(10_000):
        delays.add(offset, 100)
    found = SharePartition(0)
    limits = ShareLimits(max_record_locks=5)
    assert found.next_offset(delays) == 10_000
    for number in range(20):
        first = 10_000 + 5 * number
        acquired = found.acquire(
            "a", [(first, first + 9)], 100, limits, 0, delays=delays, read_from=found.next_offset(delays)
        )
        assert acquired == [Acquired(first, first + 4, 1)], (
            "the member must get as many records as there are locks"
        )
        found.acknowledge("a", [Acknowledgement(first, first + 4, (1,))], limits, 0)
    assert (found.start_offset, len(found.runs)) == (0, 2)
    delays.release(100)
    assert found.next_offset(delays) == 0
    assert found.acquire("a", [(0, 9)], 100, limits, 0, delays=delays) == [Acquired(0, 4, 1)]


def test_a_waiting_record_does_not_hold_up_its_neighbours_in_the_batch() -> None:
    delays = DelayedRecords(DelayedLimit(), 0)
    for offset in (1, 2, 5):
        delays.add(offset, 100 + offset)
    found = SharePartition(0)
    assert found.acquire("a", [(0, 6)], 100, ShareLimits(), 0, delays=delays) == [
        Acquired(0, 0, 1),
        Acquired(3, 4, 1),
        Acquired(6, 6, 1),
    ]
    delays.release(102)
    assert found.next_offset(delays) == 1
    assert found.acquire("b", [(0, 6)], 100, ShareLimits(), 102, delays=delays, read_from=1) == [
        Acquired(1, 2, 1)
    ]


@pytest.mark.parametrize("turned_off", [False, True])
def test_a_record_that_came_due_after_the_read_is_not_archived(turned_off: bool) -> None:
    delays = DelayedRecords(DelayedLimit(), 0)
    for offset in range(4):
        delays.add(offset, 100)
    found = SharePartition(0)
    read_from = found.next_offset(delays)
    delays.release(100)
    now = None if turned_off else delays
    acquired = found.acquire("a", [(4, 5)], 100, ShareLimits(), 100, delays=now, read_from=read_from)
    assert acquired == [Acquired(4, 5, 1)]
    assert found.next_offset(now) == 0
    assert found.acquire("a", [(0, 3), (4, 5)], 100, ShareLimits(), 100, delays=now) == [Acquired(0, 3, 1)]
