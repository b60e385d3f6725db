"""Two ProducerTables with a common limit, compared with a model that keeps every accepted batch for ever.

The model decides by searching its whole history. It has no windows, orders or counters of its own.

All batches come over one connection. Some are refused at random, for reasons that have nothing to do with
their sequence. `tests.models.refusals` has the rule for the batches behind them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seqgate.seq_validator import (
    ACCEPTED,
    Duplicate,
    ProducerLimit,
    ProducerTable,
    RefusalLimit,
    RefusedBatches,
    RefusedBefore,
    Rejected,
    RejectionReason,
)
from tests.models.refusals import Awaited
from tests.seq_validator.candidate import Candidate

RETAINED = 5
MAX_PER_PARTITION = 3
MAX_IN_ALL = 4
MIN_IDLE_MS = 40
SEQUENCES = 2**31


@dataclass(frozen=True)
class Marker:
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    max_timestamp: int
    records: int = 1


@dataclass(eq=False)
class Appended:
    table: int
    batch: Candidate | Marker
    base_offset: int
    at_ms: int


@dataclass
class History:
    """Every accepted batch and marker, and for each producer the point from which on its batches count."""

    appended: list[Appended] = field(default_factory=list)
    forgotten: list[Appended] = field(default_factory=list)
    awaited: defaultdict[tuple[int, int], Awaited] = field(default_factory=lambda: defaultdict(Awaited))

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
        return [one for one in known[epoch_began:] if isinstance(one.batch, Candidate)][-RETAINED:]

    def next_sequence(self, table: int, producer_id: int) -> int:
        window = self.window(table, producer_id)
        if not window:
            return 0
        last = window[-1].batch
        assert isinstance(last, Candidate)
        return (last.base_sequence + last.records) % SEQUENCES

    def open_since(self, table: int, producer_id: int) -> int:
        """Return the first offset of the producer's open transaction, -1 without one."""
        first_offset = -1
        for one in self.of(table, producer_id):
            if isinstance(one.batch, Marker):
                first_offset = -1
            elif one.batch.is_transactional and first_offset < 0:
                first_offset = one.base_offset
        return first_offset

    def newest_marker(self, table: int, producer_id: int) -> Appended | None:
        markers = [one for one in self.of(table, producer_id) if isinstance(one.batch, Marker)]
        return markers[-1] if markers else None

    def producers(self, table: int) -> list[int]:
        """Return the known producers of a table, longest idle first."""
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

    def is_full(self, table: int) -> bool:
        return len(self.producers(table)) >= MAX_PER_PARTITION or len(self.all_producers()) >= MAX_IN_ALL

    def victim(self, table: int, now_ms: int) -> tuple[int, int] | None:
        """Return the producer that may be evicted from the full `table`: the one idle longest without an open
        transaction.
        """
        if len(self.producers(table)) >= MAX_PER_PARTITION:
            candidates = [(table, producer_id) for producer_id in self.producers(table)]
        else:
            candidates = self.all_producers()
        for pair in candidates:
            if self.open_since(*pair) < 0:
                return pair if now_ms - self.last_active_ms(pair) >= MIN_IDLE_MS else None
        return None

    def judge(self, table: int, batch: Candidate, now_ms: int) -> object:
        known = self.of(table, batch.producer_id)
        if not known:
            if self.must_wait(table, batch):
                return RejectionReason.EARLIER_BATCH_REFUSED
            if self.is_full(table) and self.victim(table, now_ms) is None:
                return RejectionReason.PRODUCER_LIMIT_REACHED
            return ACCEPTED
        verdict = self.judge_sequence(table, batch)
        if verdict is RejectionReason.OUT_OF_ORDER_SEQUENCE and self.must_wait(table, batch):
            return RejectionReason.EARLIER_BATCH_REFUSED
        if (
            verdict is ACCEPTED
            and self.open_since(table, batch.producer_id) >= 0
            and not batch.is_transactional
        ):
            return RejectionReason.INVALID_TXN_STATE
        return verdict

    def must_wait(self, table: int, batch: Candidate) -> bool:
        awaited = self.awaited[table, batch.producer_id]
        return awaited.holds_back(batch.producer_epoch, batch.base_sequence)

    def judge_marker(self, table: int, marker: Marker, transaction_version: int) -> object:
        known = self.of(table, marker.producer_id)
        is_strict = transaction_version == 2 and self.open_since(table, marker.producer_id) >= 0
        if known and marker.producer_epoch < known[-1].batch.producer_epoch + is_strict:
            return RejectionReason.INVALID_PRODUCER_EPOCH
        newest = self.newest_marker(table, marker.producer_id)
        if newest is not None:
            assert isinstance(newest.batch, Marker)
            if marker.coordinator_epoch < newest.batch.coordinator_epoch:
                return RejectionReason.TRANSACTION_COORDINATOR_FENCED
        return ACCEPTED

    def judge_sequence(self, table: int, batch: Candidate) -> object:
        last = self.of(table, batch.producer_id)[-1].batch
        if batch.producer_epoch < last.producer_epoch:
            return RejectionReason.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > last.producer_epoch:
            free = batch.base_sequence == 0 or last.producer_epoch == -1
            return ACCEPTED if free else RejectionReason.OUT_OF_ORDER_SEQUENCE
        if batch.base_sequence == self.next_sequence(table, batch.producer_id):
            return ACCEPTED
        for one in reversed(self.window(table, batch.producer_id)):
            assert isinstance(one.batch, Candidate)
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
        self.refused = RefusedBatches(RefusalLimit(1_000))
        self.end_offsets = [0, 0]
        self.model = History()
        self.now_ms = 1_000
        self.evictions = 0
        self.refusals = 0

    def offer(self, table: int, batch: Candidate) -> None:
        self.now_ms += 1
        expected = self.model.judge(table, batch, self.now_ms)
        verdict = self.tables[table].judge(batch, self.now_ms, before=RefusedBefore(table, self.refused))
        actual = verdict.reason if isinstance(verdict, Rejected) else verdict
        assert actual == expected
        self.refusals += actual is RejectionReason.PRODUCER_LIMIT_REACHED
        self.note(table, batch, actual)
        if verdict is ACCEPTED:
            self.append(table, batch)

    def note(self, table: int, batch: Candidate, verdict: object) -> None:
        """Remember at both sides what a Produce remembers of a verdict."""
        awaited, waits = self.model.awaited[table, batch.producer_id], self.model.must_wait(table, batch)
        if verdict is RejectionReason.PRODUCER_LIMIT_REACHED:
            self.strike(table, batch)
        elif verdict in {RejectionReason.OUT_OF_ORDER_SEQUENCE, RejectionReason.EARLIER_BATCH_REFUSED}:
            self.refused.pass_over(table, batch)
            if waits:
                awaited.held_back()
        elif isinstance(verdict, RejectionReason):
            self.refused.give_up(table, batch)
            if not waits:
                awaited.taken()
        else:
            self.refused.forget(table, batch)
            awaited.stored(batch.producer_epoch, batch.base_sequence)

    def strike(self, table: int, batch: Candidate) -> None:
        self.refused.refuse(table, batch)
        if batch.base_sequence >= 0:
            self.model.awaited[table, batch.producer_id].refused(batch.producer_epoch, batch.base_sequence)

    def append(self, table: int, batch: Candidate | Marker) -> None:
        offset = self.end_offsets[table]
        if not self.model.of(table, batch.producer_id):
            self.make_room(table)
        first_offset = self.model.open_since(table, batch.producer_id)
        if isinstance(batch, Marker):
            ended = self.tables[table].end_transaction(
                batch.producer_id,
                batch.producer_epoch,
                coordinator_epoch=batch.coordinator_epoch,
                offset=offset,
                timestamp=batch.max_timestamp,
                now_ms=self.now_ms,
            )
            assert ended == first_offset
        else:
            self.tables[table].update(batch, offset, self.now_ms)
            if batch.is_transactional:
                begun = self.tables[table].continue_transaction(batch.producer_id, offset)
                assert begun == (first_offset < 0)
        self.model.appended.append(Appended(table, batch, self.end_offsets[table], self.now_ms))
        self.end_offsets[table] += batch.records

    def make_room(self, table: int) -> None:
        while self.model.is_full(table):
            victim = self.model.victim(table, self.now_ms)
            if victim is None and len(self.model.producers(table)) >= MAX_PER_PARTITION:
                # No producer of this table may be evicted, but one of the other table may. So the longest
                # idle producer of all tables is tried.
                others = [pair for pair in self.model.all_producers() if self.model.open_since(*pair) < 0]
                full = len(self.model.all_producers()) >= MAX_IN_ALL
                idle = [
                    pair
                    for pair in others[:1]
                    if self.now_ms - self.model.last_active_ms(pair) >= MIN_IDLE_MS
                ]
                victim = idle[0] if full and idle else None
            if victim is None:
                return
            self.model.forget(*victim)
            self.evictions += 1

    @rule(
        table=tables,
        producer_id=producer_ids,
        epoch=st.integers(0, 3),
        coordinator_epoch=st.integers(0, 2),
        version=st.integers(0, 2),
    )
    def mark(self, table: int, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> None:
        self.now_ms += 1
        marker = Marker(producer_id, epoch, coordinator_epoch, self.now_ms)
        verdict = self.tables[table].judge_marker(producer_id, epoch, coordinator_epoch, version)
        actual = verdict.reason if isinstance(verdict, Rejected) else verdict
        assert actual == self.model.judge_marker(table, marker, version)
        if verdict is ACCEPTED:
            self.append(table, marker)

    @rule(table=tables, producer_id=producer_ids, bump=st.integers(0, 1))
    def end_what_is_open(self, table: int, producer_id: int, bump: int) -> None:
        known = self.model.of(table, producer_id)
        if known:
            newest = self.model.newest_marker(table, producer_id)
            coordinator_epoch = newest.batch.coordinator_epoch if newest else 0
            epoch = known[-1].batch.producer_epoch + bump
            self.mark(table, producer_id, epoch, coordinator_epoch, version=2 * bump)

    @rule(
        table=tables,
        producer_id=producer_ids,
        epoch=st.integers(-1, 2),
        base_sequence=near_the_wrap,
        count=records,
        is_transactional=st.booleans(),
    )
    def send_anything(
        self, table: int, producer_id: int, epoch: int, base_sequence: int, count: int, is_transactional: bool
    ) -> None:
        batch = Candidate(base_sequence, count, producer_id, epoch, self.now_ms, is_transactional)
        self.offer(table, batch)

    @rule(
        table=tables,
        producer_id=producer_ids,
        epoch=st.integers(-1, 2),
        base_sequence=near_the_wrap,
        later=st.integers(0, 6),
        is_given_up=st.booleans(),
    )
    def refuse(
        self, table: int, producer_id: int, epoch: int, base_sequence: int, later: int, is_given_up: bool
    ) -> None:
        """Refuse a batch that its client sends again, and receive later ones, which the client may give up."""
        batch = Candidate(base_sequence, 1, producer_id, epoch)
        self.strike(table, batch)
        for _ in range(later):
            batch = Candidate((batch.base_sequence + 1) % SEQUENCES, 1, producer_id, epoch, self.now_ms)
            self.offer(table, batch)
            if is_given_up:
                self.note(table, batch, RejectionReason.INVALID_TXN_STATE)

    @rule(
        table=tables,
        producer_id=producer_ids,
        counts=st.lists(records, min_size=1, max_size=8),
        is_transactional=st.booleans(),
    )
    def send_in_sequence(
        self, table: int, producer_id: int, counts: list[int], is_transactional: bool
    ) -> None:
        for count in counts:
            known = self.model.of(table, producer_id)
            base_sequence, epoch = self.first, 0
            if known:
                epoch = known[-1].batch.producer_epoch
                base_sequence = self.model.next_sequence(table, producer_id)
            self.offer(
                table, Candidate(base_sequence, count, producer_id, epoch, self.now_ms, is_transactional)
            )

    @rule(table=tables, choice=st.integers(0, 30), more=st.sampled_from([0, 0, 0, -1, 1]))
    def send_again(self, table: int, choice: int, more: int) -> None:
        sent = [
            one.batch
            for one in self.model.appended
            if one.table == table and isinstance(one.batch, Candidate)
        ]
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
            and self.model.open_since(table, producer_id) < 0
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
        self.refused = RefusedBatches(RefusalLimit(1_000))
        self.model.awaited.clear()

    @invariant()
    def the_tables_hold_what_the_history_says(self) -> None:
        assert len(self.limit) == len(self.model.all_producers())
        assert (self.limit.evictions, self.limit.refusals) == (self.evictions, self.refusals)
        for table in (0, 1):
            assert [entry.producer_id for entry in self.tables[table]] == self.model.producers(table)
            for entry in list(self.tables[table]):
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
                newest = self.model.of(table, entry.producer_id)[-1]
                assert entry.producer_epoch == newest.batch.producer_epoch
                assert entry.last_timestamp == newest.batch.max_timestamp
                assert entry.current_transaction_first_offset == self.model.open_since(
                    table, entry.producer_id
                )
                marker = self.model.newest_marker(table, entry.producer_id)
                assert entry.coordinator_epoch == (marker.batch.coordinator_epoch if marker else -1)
                assert entry.last_active_ms == self.model.last_active_ms((table, entry.producer_id))


TestProducerTables = ProducerTables.TestCase
TestProducerTables.settings = settings(max_examples=150, stateful_step_count=40)


@given(
    first=near_the_wrap,
    sent=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40),
    snapshot_at=st.integers(0, 40),
    retained_batches=st.integers(1, 12),
)
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
