"""Offsets of open transactions follow Kafka's rule: the later record in the log counts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seqgate.gateway.coordinator.change import Pending, TransactionEnd
from seqgate.gateway.coordinator.group.offsets import GroupOffsets, HeldOffset
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.places import NO_TOPICS
from tests.gateway.coordinator.group.consumer_scene import Cluster

GROUPS = ("g", "h")
PARTITIONS = (0, 1)
PRODUCERS = (7, 8, 9)
TOPIC = "t"

Key = tuple[str, int]


def record(key: Key, offset: int | None, timestamp_ms: int = 0, topic_id: bytes = b"") -> OffsetCommitRecord:
    value = None if offset is None else CommittedOffset(offset, -1, "", timestamp_ms, topic_id=topic_id)
    return OffsetCommitRecord(key[0], TOPIC, key[1], value)


@dataclass
class Naive:
    """A naive model: every value with its record's offset in the log
    (OffsetMetadataManager.replayEndTransactionMarker).
    """

    end_offset: int = 0
    committed: dict[Key, tuple[int, int]] = field(default_factory=dict)
    pending: dict[int, dict[Key, tuple[int, int]]] = field(default_factory=dict)

    def commit(self, key: Key, offset: int) -> None:
        self.end_offset += 1
        self.committed[key] = self.end_offset, offset

    def delete(self, key: Key) -> None:
        self.end_offset += 1
        self.committed.pop(key, None)
        for held in self.pending.values():
            held.pop(key, None)

    def hold(self, producer_id: int, key: Key, offset: int) -> None:
        self.end_offset += 1
        self.pending.setdefault(producer_id, {})[key] = self.end_offset, offset

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        for key, found in self.pending.pop(producer_id, {}).items():
            if is_commit and found > self.committed.get(key, (-1, -1)):
                self.committed[key] = found


keys = st.tuples(st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
producers = st.sampled_from(PRODUCERS)
offsets = st.integers(0, 99)


class PendingOffsetsMachine(RuleBasedStateMachine):
    """The real state and the naive model; at times the real state is rewritten and replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.real = GroupOffsets()
        self.naive = Naive()

    @rule(key=keys, offset=offsets)
    def commit(self, key: Key, offset: int) -> None:
        self.naive.commit(key, offset)
        self.real.replay(record(key, offset, self.naive.end_offset))

    @rule(key=keys)
    def keep_only_a_copy(self, key: Key) -> None:
        """A crash amid a rewrite may keep the copy of a committed offset, and lose that of a pending one."""
        value = self.real.of(key[0]).get((TOPIC, key[1]))
        if value is not None:
            self.real.replay(OffsetCommitRecord(key[0], TOPIC, key[1], value))

    @rule(key=keys)
    def delete(self, key: Key) -> None:
        self.real.replay(record(key, None))
        self.naive.delete(key)

    @rule(producer_id=producers, key=keys, offset=offsets)
    def hold(self, producer_id: int, key: Key, offset: int) -> None:
        self.real.pending.hold(Pending(producer_id, 0, record(key, offset)))
        self.naive.hold(producer_id, key, offset)

    @rule(producer_id=producers, is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        self.real.end_transaction(TransactionEnd(producer_id, is_commit))
        self.naive.end(producer_id, is_commit=is_commit)

    @rule()
    def write_anew(self) -> None:
        fresh = GroupOffsets()
        for group_id in self.real.groups():
            for place in self.real.places(group_id):
                for found in self.real.records_at(group_id, place):
                    if isinstance(found, Pending):
                        fresh.pending.hold(found)
                    else:
                        fresh.replay(found)
        # a rewrite drops offsets that will never count, so the naive model drops them too
        for held in self.naive.pending.values():
            for key in [
                key for key, found in held.items() if found < self.naive.committed.get(key, (-1, -1))
            ]:
                del held[key]
        self.real = fresh

    @invariant()
    def the_same_offsets_are_committed(self) -> None:
        told = {
            (group_id, partition): value.offset
            for group_id in GROUPS
            for (_, partition), value in self.real.of(group_id).items()
        }
        assert told == {key: offset for key, (_, offset) in self.naive.committed.items()}

    @invariant()
    def the_same_places_are_held(self) -> None:
        held = {key for found in self.naive.pending.values() for key in found}
        for group_id in GROUPS:
            for partition in PARTITIONS:
                is_held = self.real.pending.is_held(group_id, (TOPIC, partition))
                assert is_held == ((group_id, partition) in held)
            assert self.real.has_any(group_id) == any(
                key[0] == group_id for key in (*held, *self.naive.committed)
            )


TestPendingOffsets = PendingOffsetsMachine.TestCase
TestPendingOffsets.settings = settings(max_examples=200, stateful_step_count=40)


def test_the_holders_of_offsets_are_listed() -> None:
    offsets_of_groups = GroupOffsets()
    for producer_id in (8, 7):
        offsets_of_groups.pending.hold(Pending(producer_id, 3, record(("g", 0), 5)))
    offsets_of_groups.replay(record(("g", 0), 4))
    offsets_of_groups.pending.hold(Pending(7, 3, record(("g", 1), 6)))
    earlier, later = (HeldOffset(producer_id, 3, record(("g", 0), 5), True) for producer_id in (8, 7))
    other = HeldOffset(7, 3, record(("g", 1), 6), False)
    pending = offsets_of_groups.pending
    assert pending.of_group("g") == {(TOPIC, 0): [earlier, later], (TOPIC, 1): [other]}
    assert pending.of_group("h") == {}
    assert sorted(pending.of_producer(7), key=lambda held: held.record.partition) == [later, other]
    assert pending.of_producer(8) == [earlier]
    assert pending.of_producer(9) == []


def test_an_offset_that_a_transaction_holds_does_not_expire() -> None:
    offsets_of_groups = GroupOffsets()
    for partition in PARTITIONS:
        offsets_of_groups.replay(record(("g", partition), 5))
    offsets_of_groups.pending.hold(Pending(7, 0, record(("g", 0), 6)))

    def expired() -> list[tuple[str, int]]:
        return offsets_of_groups.expired_unless("g", lambda _: False, 1_000_000, 1)

    assert expired() == [(TOPIC, 1)]
    offsets_of_groups.end_transaction(TransactionEnd(7, is_commit=False))
    assert expired() == [(TOPIC, 0), (TOPIC, 1)]


def test_offsets_of_deleted_topics_are_dropped_with_the_pending_ones() -> None:
    offsets_of_groups = GroupOffsets()
    offsets_of_groups.pending.hold(Pending(7, 0, record(("g", 0), 6)))
    gone = offsets_of_groups.of_gone_topics(NO_TOPICS)
    assert gone == [OffsetCommitRecord("g", TOPIC, 0, None)]
    offsets_of_groups.replay(gone[0])
    assert not offsets_of_groups.has_any("g")


def test_an_offset_that_counts_is_kept_beside_one_of_an_earlier_topic() -> None:
    """A record deletes all offsets of a place."""
    topics = Cluster()
    before, now = uuid.UUID(int=9).bytes, topics.create(TOPIC, 3).bytes
    offsets_of_groups = GroupOffsets()
    for partition, committed, held in ((0, before, now), (1, now, before), (2, before, before)):
        offsets_of_groups.replay(record(("g", partition), 5, topic_id=committed))
        offsets_of_groups.pending.hold(Pending(7, 0, record(("g", partition), 6, topic_id=held)))
    assert offsets_of_groups.of_gone_topics(topics) == [OffsetCommitRecord("g", TOPIC, 2, None)]
