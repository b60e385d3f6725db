"""Two ProducerTables that share a limit, against a model that keeps every accepted batch for ever.

The model decides by searching its whole history; it knows no windows, orders or counters but what it reads from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seq_validator import ACCEPTED, Duplicate, ProducerLimit, ProducerTable, Rejected, RejectionReason
from tests.seq_validator.candidate import Candidate

RETAINED = 5
MAX_PER_PARTITION = 3
MAX_IN_ALL = 4
MIN_IDLE_MS = 40
SEQUENCES = 2**31


@dataclass(eq=False)
class Appended:
    table: int
    batch: Candidate
    base_offset: int
    at_ms: int


@dataclass
class History:
    """Every accepted batch, and for each producer from where on it still counts."""

    appended: list[Appended] = field(default_factory=list)
    forgotten: list[Appended] = field(default_factory=list)

    def of(self, table: int, producer_id: int) -> list[Appended]:
        return [
            one
            for one in self.appended
            if (one.table, one.batch.producer_id) == (table, producer_id) and one not in self.forgotten
        ]

    def window(self, table: int, producer_id: int) -> list[Appended]:
        known = self.of(table, producer_id)
        epoch_began = max(
            (
                n
                for n in range(1, len(known))
                if known[n].batch.producer_epoch != known[n - 1].batch.producer_epoch
            ),
            default=0,
        )
        return known[epoch_began:][-RETAINED:]

    def producers(self, table: int) -> list[int]:
        """The known producers of a table, longest idle first."""
        known = {
            one.batch.producer_id for one in self.appended if one.table == table and one not in self.forgotten
        }
        return sorted(known, key=lambda producer_id: self.of(table, producer_id)[-1].at_ms)

    def all_producers(self) -> list[tuple[int, int]]:
        pairs = [(table, producer_id) for table in (0, 1) for producer_id in self.producers(table)]
        return sorted(pairs, key=lambda pair: self.of(*pair)[-1].at_ms)

    def last_active_ms(self, pair: tuple[int, int]) -> int:
        return self.of(*pair)[-1].at_ms

    def forget(self, table: int, producer_id: int) -> None:
        self.forgotten += self.of(table, producer_id)

    def victim(self, table: int) -> tuple[int, int] | None:
        """Who has to go before a newcomer enters `table`."""
        if len(self.producers(table)) >= MAX_PER_PARTITION:
            return table, self.producers(table)[0]
        if len(self.all_producers()) >= MAX_IN_ALL:
            return self.all_producers()[0]
        return None

    def judge(self, table: int, batch: Candidate, now_ms: int) -> object:
        known = self.of(table, batch.producer_id)
        if not known:
            victim = self.victim(table)
            if victim is not None and now_ms - self.last_active_ms(victim) < MIN_IDLE_MS:
                return RejectionReason.PRODUCER_LIMIT_REACHED
            return ACCEPTED
        last = known[-1].batch
        if batch.producer_epoch < last.producer_epoch:
            return RejectionReason.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > last.producer_epoch:
            free = batch.base_sequence == 0 or last.producer_epoch == -1
            return ACCEPTED if free else RejectionReason.OUT_OF_ORDER_SEQUENCE
        if batch.base_sequence == (last.base_sequence + last.records) % SEQUENCES:
            return ACCEPTED
        for one in reversed(self.window(table, batch.producer_id)):
            if (one.batch.base_sequence, one.batch.records) == (batch.base_sequence, batch.records):
                return Duplicate(
                    one.base_offset, one.base_offset + one.batch.records - 1, one.batch.max_timestamp
                )
        return ACCEPTED if batch.producer_epoch == -1 else RejectionReason.OUT_OF_ORDER_SEQUENCE


records = st.one_of(st.integers(1, 4), st.sampled_from([2**30, 2**31 - 1]))
near_the_wrap = st.integers(-6, 6).map(lambda n: n % SEQUENCES)
tables = st.integers(0, 1)
producer_ids = st.sampled_from([0, 1, 2, 2**62])


class ProducerTables(RuleBasedStateMachine):
    @initialize(first=near_the_wrap)
    def begin(self, first: int) -> None:
        self.first = first
        self.limit = ProducerLimit(
            max_per_partition=MAX_PER_PARTITION, max_in_all=MAX_IN_ALL, min_idle_ms=MIN_IDLE_MS
        )
        self.tables = [ProducerTable(retained_batches=RETAINED, limit=self.limit) for _ in range(2)]
        self.end_offsets = [0, 0]
        self.model = History()
        self.now_ms = 1_000
        self.evictions = 0
        self.refusals = 0

    def offer(self, table: int, batch: Candidate) -> None:
        self.now_ms += 1
        expected = self.model.judge(table, batch, self.now_ms)
        verdict = self.tables[table].judge(batch, self.now_ms)
        actual = verdict.reason if isinstance(verdict, Rejected) else verdict
        assert actual == expected
        self.refusals += actual is RejectionReason.PRODUCER_LIMIT_REACHED
        if verdict is ACCEPTED:
            self.append(table, batch)

    def append(self, table: int, batch: Candidate) -> None:
        if not self.model.of(table, batch.producer_id):
            victim = self.model.victim(table)
            if victim is not None:
                self.model.forget(*victim)
                self.evictions += 1
        self.tables[table].update(batch, self.end_offsets[table], self.now_ms)
        self.model.appended.append(Appended(table, batch, self.end_offsets[table], self.now_ms))
        self.end_offsets[table] += batch.records

    @rule(
        table=tables,
        producer_id=producer_ids,
        epoch=st.integers(-1, 2),
        base_sequence=near_the_wrap,
        count=records,
    )
    def send_anything(self, table: int, producer_id: int, epoch: int, base_sequence: int, count: int) -> None:
        self.offer(table, Candidate(base_sequence, count, producer_id, epoch, self.now_ms))

    @rule(table=tables, producer_id=producer_ids, counts=st.lists(records, min_size=1, max_size=8))
    def send_in_sequence(self, table: int, producer_id: int, counts: list[int]) -> None:
        for count in counts:
            known = self.model.of(table, producer_id)
            base_sequence, epoch = self.first, 0
            if known:
                last = known[-1].batch
                base_sequence, epoch = (last.base_sequence + last.records) % SEQUENCES, last.producer_epoch
            self.offer(table, Candidate(base_sequence, count, producer_id, epoch, self.now_ms))

    @rule(table=tables, choice=st.integers(0, 30), more=st.sampled_from([0, 0, 0, -1, 1]))
    def send_again(self, table: int, choice: int, more: int) -> None:
        sent = [one.batch for one in self.model.appended if one.table == table]
        if choice < len(sent):
            batch = sent[-1 - choice]
            count = max(1, min(batch.records + more, 2**31 - 1))
            self.offer(
                table,
                Candidate(batch.base_sequence, count, batch.producer_id, batch.producer_epoch, self.now_ms),
            )

    @rule(table=tables, producer_id=producer_ids, count=records)
    def begin_a_new_epoch(self, table: int, producer_id: int, count: int) -> None:
        known = self.model.of(table, producer_id)
        epoch = known[-1].batch.producer_epoch + 1 if known else 0
        self.offer(table, Candidate(0, count, producer_id, epoch, self.now_ms))

    @rule(passed_ms=st.sampled_from([1, MIN_IDLE_MS // 2, MIN_IDLE_MS]))
    def let_time_pass(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(table=tables, expiration_ms=st.sampled_from([5, 60]))
    def expire(self, table: int, expiration_ms: int) -> None:
        idle = [
            producer_id
            for producer_id in self.model.producers(table)
            if self.now_ms - self.model.last_active_ms((table, producer_id)) >= expiration_ms
        ]
        assert self.tables[table].expire(self.now_ms, expiration_ms) == len(idle)
        for producer_id in idle:
            self.model.forget(table, producer_id)

    @rule(table=tables)
    def restart(self, table: int) -> None:
        data = self.tables[table].snapshot(self.end_offsets[table])
        self.tables[table].clear()
        self.tables[table], log_end_offset = ProducerTable.restore(
            data, retained_batches=RETAINED, limit=self.limit
        )
        assert log_end_offset == self.end_offsets[table]

    @invariant()
    def the_tables_hold_what_the_history_says(self) -> None:
        assert len(self.limit) == len(self.model.all_producers())
        assert (self.limit.evictions, self.limit.refusals) == (self.evictions, self.refusals)
        for table in (0, 1):
            assert [entry.producer_id for entry in self.tables[table]] == self.model.producers(table)
            for entry in self.tables[table].entries():
                window = self.model.window(table, entry.producer_id)
                assert [
                    (
                        batch.base_sequence,
                        batch.last_sequence,
                        batch.base_offset,
                        batch.last_offset,
                        batch.timestamp,
                    )
                    for batch in entry.batches
                ] == [
                    (
                        one.batch.base_sequence,
                        one.batch.last_sequence,
                        one.base_offset,
                        one.base_offset + one.batch.records - 1,
                        one.batch.max_timestamp,
                    )
                    for one in window
                ]
                assert entry.producer_epoch == window[-1].batch.producer_epoch
                assert entry.last_active_ms == self.model.last_active_ms((table, entry.producer_id))


TestProducerTables = ProducerTables.TestCase
TestProducerTables.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(
    first=near_the_wrap,
    sent=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40),
    snapshot_at=st.integers(0, 40),
    retained_batches=st.integers(1, 12),
)
@settings(deadline=None)
def test_a_snapshot_and_the_log_after_it_give_the_same_state(
    first: int, sent: list[tuple[int, int]], snapshot_at: int, retained_batches: int
) -> None:
    live = ProducerTable(retained_batches=retained_batches)
    written: list[tuple[Candidate, int, int]] = []
    offset = 0
    data = live.snapshot(0)
    for n, (producer_id, count) in enumerate(sent):
        if n == snapshot_at:
            data = live.snapshot(offset)
        entry = live.get(producer_id)
        base_sequence = first if entry is None else entry.next_sequence
        batch = Candidate(base_sequence, count, producer_id, max_timestamp=n)
        assert live.judge(batch, n) is ACCEPTED
        live.update(batch, offset, n)
        written.append((batch, offset, n))
        offset += count
    restored, log_end_offset = ProducerTable.restore(data, retained_batches=retained_batches)
    for batch, base_offset, now_ms in written:
        if base_offset >= log_end_offset:
            restored.update(batch, base_offset, now_ms)
    assert restored.snapshot(offset) == live.snapshot(offset)
    for batch, _, now_ms in written:
        assert restored.judge(batch, now_ms) == live.judge(batch, now_ms)
