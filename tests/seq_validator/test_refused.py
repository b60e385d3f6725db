"""No batch of an idempotent producer is stored before an earlier one that was refused and is sent again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.seq_validator import (
    ACCEPTED,
    ProducerTable,
    RefusalLimit,
    RefusedBatches,
    RefusedBefore,
    Rejected,
    RejectionReason,
    Verdict,
)
from seqgate.seq_validator.entry import MAX_SEQUENCE
from seqgate.seq_validator.refused import LATER_BATCHES
from tests.seq_validator.candidate import Candidate

PLACE = ("orders", 0)


class Partition:
    """A partition without a log, and one connection to it."""

    def __init__(self, max_remembered: int = 100) -> None:
        self.table = ProducerTable()
        self.limit = RefusalLimit(max_remembered)
        self.refused = RefusedBatches(self.limit)
        self.must_come_twice = False
        self.stored: list[Candidate] = []

    def send(self, batch: Candidate) -> Verdict:
        """Judge a batch, and do what a Produce does with the verdict."""
        before = RefusedBefore(PLACE, self.refused, self.must_come_twice)
        verdict = self.table.judge(batch, 0, before=before)
        if isinstance(verdict, Rejected):
            if verdict.reason is RejectionReason.EARLIER_BATCHES_UNKNOWN:
                self.refused.refuse(PLACE, batch)
            else:
                self.refused.pass_over(PLACE, batch)
            return verdict
        if verdict is ACCEPTED:
            self.table.update(batch, len(self.stored), 0)
            self.stored.append(batch)
        self.refused.forget(PLACE, batch)
        return verdict

    def refuses(self, batch: Candidate) -> bool:
        verdict = self.send(batch)
        return isinstance(verdict, Rejected) and verdict.reason is RejectionReason.EARLIER_BATCH_REFUSED


@pytest.fixture
def partition() -> Partition:
    return Partition()


A, B, C = Candidate(0, 5), Candidate(5, 5), Candidate(10, 5)


def test_a_later_batch_waits_for_the_refused_one(partition: Partition) -> None:
    partition.refused.refuse(PLACE, A)
    assert partition.refuses(B)
    assert partition.refuses(C)
    assert [partition.send(each) for each in (A, B, C)] == [ACCEPTED] * 3
    assert not partition.refused
    assert partition.limit.remembered == 0


def test_a_known_producer_waits_only_behind_a_refused_batch(partition: Partition) -> None:
    assert partition.send(A) is ACCEPTED
    assert not partition.refuses(C), "the gap has another cause"
    partition.refused.refuse(PLACE, B)
    assert partition.refuses(C)
    assert [partition.send(each) for each in (B, C)] == [ACCEPTED] * 2
    newer = [Candidate(sequence, 5, producer_epoch=1) for sequence in (0, 5)]
    partition.refused.refuse(PLACE, newer[0])
    assert partition.refuses(newer[1]), "a new epoch begins with its first batch"
    assert [partition.send(each) for each in newer] == [ACCEPTED] * 2


def test_the_first_part_of_a_split_batch_ends_the_wait(partition: Partition) -> None:
    partition.refused.refuse(PLACE, A)
    assert partition.refuses(B)
    assert [partition.send(each) for each in (Candidate(0, 2), Candidate(2, 3), B)] == [ACCEPTED] * 3


def test_an_unknown_producer_may_begin_with_any_sequence(partition: Partition) -> None:
    """Its topic was deleted and created again, or the partition has forgotten it."""
    partition.refused.refuse(PLACE, B)
    assert partition.refuses(C)
    assert partition.send(B) is ACCEPTED


@pytest.mark.parametrize(
    "other",
    [Candidate(5, producer_id=8), Candidate(0, producer_epoch=1), Candidate(5, producer_epoch=1)],
    ids=["another producer", "a newer epoch", "a newer epoch from any sequence"],
)
def test_others_do_not_wait(partition: Partition, other: Candidate) -> None:
    partition.refused.refuse(PLACE, A)
    assert partition.send(other) is ACCEPTED


def test_another_partition_does_not_wait(partition: Partition) -> None:
    partition.refused.refuse(("orders", 1), A)
    assert partition.send(B) is ACCEPTED


def test_the_earliest_refused_batch_is_remembered(partition: Partition) -> None:
    for batch in (B, A, C):
        partition.refused.refuse(PLACE, batch)
    assert partition.refuses(B)
    assert partition.send(A) is ACCEPTED


def test_the_newest_epoch_is_remembered(partition: Partition) -> None:
    newer = Candidate(0, 5, producer_epoch=1)
    partition.refused.refuse(PLACE, newer)
    partition.refused.refuse(PLACE, A)
    assert partition.refuses(Candidate(5, 5, producer_epoch=1))
    assert partition.send(newer) is ACCEPTED


def test_a_batch_that_is_given_up_holds_back_nobody(partition: Partition) -> None:
    partition.refused.refuse(PLACE, A)
    partition.refused.give_up(PLACE, B)
    assert partition.refuses(B), "only the batch behind the refused one was given up"
    partition.refused.give_up(PLACE, A)
    assert partition.send(B) is ACCEPTED


def test_a_producer_that_goes_on_without_a_word_is_let_through(partition: Partition) -> None:
    partition.refused.refuse(PLACE, A)
    later = [Candidate(5 + number) for number in range(LATER_BATCHES + 1)]
    assert [partition.refuses(batch) for batch in later] == [True] * LATER_BATCHES + [False]


def test_each_refusal_counts_the_later_ones_anew(partition: Partition) -> None:
    for _ in range(3):
        partition.refused.refuse(PLACE, A)
        assert all(partition.refuses(Candidate(5 + number)) for number in range(LATER_BATCHES - 1))
    assert partition.send(A) is ACCEPTED


def test_sequences_wrap(partition: Partition) -> None:
    partition.refused.refuse(PLACE, Candidate(MAX_SEQUENCE))
    assert partition.refuses(Candidate(0))
    assert partition.send(Candidate(MAX_SEQUENCE)) is ACCEPTED
    assert partition.send(Candidate(0)) is ACCEPTED


def test_a_batch_without_a_producer_or_a_sequence_is_not_remembered(partition: Partition) -> None:
    partition.refused.refuse(PLACE, Candidate(producer_id=-1))
    partition.refused.refuse(PLACE, Candidate(base_sequence=-1))
    assert not partition.refused


def test_what_came_before_its_connection_closed_still_waits_for_a_refused_batch(partition: Partition) -> None:
    """The client sends the refused batch again over its next connection, and must not find a later one."""
    partition.refused.refuse(PLACE, A)
    partition.refused.close()
    assert partition.limit.remembered == 0, "it takes nothing from the connections that are open"
    assert partition.refuses(B)
    partition.refused = RefusedBatches(partition.limit)
    partition.refused.close()
    partition.refused.refuse(PLACE, A)
    assert partition.refuses(B), "a batch may also be refused after that"
    assert [partition.send(batch) for batch in (A, B)] == [ACCEPTED, ACCEPTED]
    assert (len(partition.refused), partition.limit.remembered) == (0, 0)


def test_at_the_limit_a_connection_forgets_its_own_oldest_batch() -> None:
    limit = RefusalLimit(3)
    first, second = RefusedBatches(limit), RefusedBatches(limit)
    for producer_id in range(3):
        first.refuse(PLACE, Candidate(0, producer_id=producer_id))
    second.refuse(PLACE, Candidate(0, producer_id=9))
    assert (len(first), len(second)) == (3, 1), "another connection keeps what it remembers"
    second.refuse(PLACE, Candidate(0, producer_id=10))
    assert (len(first), len(second)) == (3, 1)
    first.refuse(PLACE, Candidate(0, producer_id=3))
    assert [first.precedes(PLACE, Candidate(1, producer_id=producer_id)) for producer_id in range(4)] == [
        False,
        True,
        True,
        True,
    ]
    with pytest.raises(ValueError, match="at least 1"):
        RefusalLimit(0)


def test_behind_a_batch_that_can_not_be_read_every_later_one_comes_twice(partition: Partition) -> None:
    partition.refused.refuse_unreadable(PLACE)
    verdicts = [partition.send(batch) for batch in (B, C, A, B, C)]
    assert [isinstance(verdict, Rejected) for verdict in verdicts] == [True, True, False, False, False]
    assert partition.limit.remembered == 0
    partition.refused.refuse_unreadable(PLACE)
    assert partition.send(Candidate(30, producer_id=9)) is not ACCEPTED
    assert partition.send(Candidate(30, producer_id=9)) is ACCEPTED, "it has nothing before it"
    partition.refused.refuse_unreadable(("orders", 1))
    assert partition.send(Candidate(30, producer_id=10)) is ACCEPTED, "another partition"


class TestANewLeader:
    """A gateway that begins to lead a partition does not know what it, or another one, has refused a moment
    ago.
    """

    @pytest.fixture
    def partition(self) -> Partition:
        made = Partition()
        made.must_come_twice = True
        return made

    def reasons(self, partition: Partition, *batches: Candidate) -> list[RejectionReason | None]:
        verdicts = [partition.send(batch) for batch in batches]
        return [verdict.reason if isinstance(verdict, Rejected) else None for verdict in verdicts]

    def test_a_batch_that_is_not_the_first_must_come_twice(self, partition: Partition) -> None:
        unknown, order = RejectionReason.EARLIER_BATCHES_UNKNOWN, RejectionReason.EARLIER_BATCH_REFUSED
        assert self.reasons(partition, B, C, B, C) == [unknown, order, None, None]

    def test_an_earlier_one_is_stored_first(self, partition: Partition) -> None:
        unknown = RejectionReason.EARLIER_BATCHES_UNKNOWN
        assert self.reasons(partition, C, A, B, C) == [unknown, None, None, None]
        other = [Candidate(sequence, 5, producer_id=8) for sequence in (10, 5, 5, 10)]
        assert self.reasons(partition, *other) == [unknown, unknown, None, None]


@dataclass
class NaiveClient:
    """A producer with up to five batches in flight on one connection; the refused ones come again, the
    earliest first.
    """

    batches: list[Candidate]
    acknowledged: list[Candidate] = field(default_factory=list)


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    first=st.sampled_from([0, 7, MAX_SEQUENCE - 3]),
    struck=st.lists(st.booleans(), max_size=40),
    forgets=st.lists(st.booleans(), max_size=40),
)
def test_the_order_holds_whatever_is_refused_and_forgotten(
    sizes: list[int], first: int, struck: list[bool], forgets: list[bool]
) -> None:
    """The model: whatever is stored is stored once, in the order in which it was first sent."""
    partition = Partition()
    batches, sequence = [], first
    for records in sizes:
        batches.append(Candidate(sequence, records))
        sequence = (sequence + records) & MAX_SEQUENCE
    client = NaiveClient(batches)
    strikes, losses = iter(struck), iter(forgets)
    while client.batches:
        answers = []
        for batch in client.batches[:5]:
            if next(losses, False):
                partition.table.clear()  # evicted, expired, or its topic was created again
            if next(strikes, False):
                partition.refused.refuse(PLACE, batch)
                answers.append(False)
            else:
                answers.append(not isinstance(partition.send(batch), Rejected))
        done = [batch for batch, answered in zip(client.batches, answers, strict=False) if answered]
        client.acknowledged += done
        client.batches = [batch for batch in client.batches if batch not in done]
    assert partition.stored == batches
    assert client.acknowledged == batches
