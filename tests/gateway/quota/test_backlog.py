"""The rules of backlog quotas and TTL, for any log and any readers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.quota.backlog import (
    BacklogRules,
    GroupReader,
    Limit,
    OffsetMove,
    Policy,
    eviction_moves,
    expired_moves,
    measure,
    position,
)

NOW_MS = 100_000


@dataclass
class Batches:
    """A partition of one-record batches: the records' sizes and ages from the start offset on."""

    log_start_offset: int
    sizes: list[int]
    ages: list[int]
    skippable_end_offset: int

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.sizes)

    def bytes_from(self, offset: int) -> int:
        return sum(self.sizes[max(0, offset - self.log_start_offset) :])

    def newest_timestamp_at(self, offset: int) -> int | None:
        left = self.ages[offset - self.log_start_offset :]
        return NOW_MS - left[0] if left else None

    def expired_until(self, offset: int, before_ms: int) -> int:
        while offset < self.skippable_end_offset and self.age(offset) > NOW_MS - before_ms:
            offset += 1
        return offset

    def offset_with_bytes_left(self, max_bytes: int) -> int:
        return next(
            offset
            for offset in range(self.log_start_offset, self.log_end_offset + 1)
            if self.bytes_from(offset) <= max_bytes
        )

    def age(self, offset: int) -> int:
        return self.ages[offset - self.log_start_offset]


@st.composite
def partitions(draw: st.DrawFn) -> Batches:
    start = draw(st.integers(0, 5))
    records = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=12))
    sizes, ages = [size for size, _ in records], [age for _, age in records]
    return Batches(start, sizes, ages, start + draw(st.integers(0, len(records))))


readers = st.lists(
    st.builds(GroupReader, st.sampled_from("abcdef"), st.booleans(), st.integers(0, 20), st.booleans()),
    max_size=5,
    unique_by=lambda reader: reader.group,
)
limits = st.one_of(st.just(-1), st.integers(1, 120))
rules = st.builds(BacklogRules, limits, limits, st.sampled_from(list(Policy)), limits)


def after(found: list[GroupReader], moves: list[OffsetMove]) -> list[GroupReader]:
    targets = {move.reader: move.to_offset for move in moves}
    return [reader._replace(offset=targets.get(reader, reader.offset)) for reader in found]


@settings(max_examples=150)
@given(partitions(), readers, rules)
def test_ttl_skips_only_old_records(view: Batches, found: list[GroupReader], of: BacklogRules) -> None:
    moves = expired_moves(view, found, of, NOW_MS)
    assert of.ttl_ms >= 0 or not moves
    for move in moves:
        assert not move.reader.in_transaction
        assert move.from_offset == position(view, move.reader) < move.to_offset <= view.skippable_end_offset
        assert all(view.age(offset) > of.ttl_ms for offset in range(move.from_offset, move.to_offset))
        assert move.limit is Limit.TTL
    for reader in after(found, moves):
        offset = position(view, reader)
        is_at_the_end = offset >= view.skippable_end_offset
        assert of.ttl_ms < 0 or reader.in_transaction or is_at_the_end or view.age(offset) <= of.ttl_ms
    assert expired_moves(view, after(found, moves), of, NOW_MS) == []


@settings(max_examples=200)
@given(partitions(), readers, rules)
def test_eviction_moves_slow_readers_until_the_quota_is_kept(
    view: Batches, found: list[GroupReader], of: BacklogRules
) -> None:
    before = measure(view, found, of, NOW_MS)
    moves = eviction_moves(view, found, of, NOW_MS)
    if of.policy is not Policy.EVICT or before.exceeded is None:
        slow = [reader for reader in found if position(view, reader) < view.skippable_end_offset]
        # a reader that is further behind may have younger records ahead of it
        assert not moves or (of.policy is Policy.EVICT and of.quota_ms >= 0 and slow)
    for move in moves:
        assert not move.reader.in_transaction
        assert move.from_offset < move.to_offset <= view.skippable_end_offset
    later = after(found, moves)
    usage = measure(view, later, of, NOW_MS)
    if of.policy is Policy.EVICT and usage.exceeded is not None:
        assert usage.slowest is not None
        stuck = position(view, usage.slowest) >= view.skippable_end_offset
        assert usage.slowest.in_transaction or stuck
    assert all(new.offset >= old.offset for new, old in zip(later, found, strict=True))


@given(partitions(), readers, rules)
def test_the_backlog_is_that_of_the_slowest(
    view: Batches, found: list[GroupReader], of: BacklogRules
) -> None:
    usage = measure(view, found, of, NOW_MS)
    assert (usage.slowest is None) == (not found)
    if usage.slowest is not None:
        assert usage.backlog_bytes == max(view.bytes_from(position(view, reader)) for reader in found)
        assert (usage.exceeded is Limit.QUOTA_BYTES) == (0 <= of.quota_bytes < usage.backlog_bytes)


def test_a_quota_by_size_is_kept_again_with_room_to_spare() -> None:
    view = Batches(0, [10] * 20, [0] * 20, 20)
    of = BacklogRules(quota_bytes=100, policy=Policy.EVICT)
    slow, fast = GroupReader("slow", False, 2), GroupReader("fast", True, 15)
    (move,) = eviction_moves(view, [slow, fast], of, NOW_MS)
    assert move == OffsetMove(slow, 2, 11, Limit.QUOTA_BYTES)


def test_with_both_quotas_the_farther_move_counts() -> None:
    view = Batches(0, [10] * 20, [50] * 15 + [0] * 5, 20)
    slow = GroupReader("slow", False, 0)
    of = BacklogRules(quota_bytes=100, quota_ms=40, policy=Policy.EVICT)
    assert eviction_moves(view, [slow], of, NOW_MS) == [OffsetMove(slow, 0, 15, Limit.QUOTA_MS)]
    of = BacklogRules(quota_bytes=20, quota_ms=40, policy=Policy.EVICT)
    assert eviction_moves(view, [slow], of, NOW_MS) == [OffsetMove(slow, 0, 19, Limit.QUOTA_BYTES)]


def test_no_reader_moves_beyond_held_records() -> None:
    view = Batches(0, [10] * 4, [90] * 4, 2)
    slow = GroupReader("slow", False, 0)
    assert expired_moves(view, [slow], BacklogRules(ttl_ms=10), NOW_MS) == [OffsetMove(slow, 0, 2, Limit.TTL)]
    of = BacklogRules(quota_bytes=5, policy=Policy.EVICT)
    assert eviction_moves(view, [slow], of, NOW_MS) == [OffsetMove(slow, 0, 2, Limit.QUOTA_BYTES)]


def test_a_group_whose_offset_a_transaction_holds_stays_and_counts() -> None:
    view = Batches(0, [10] * 4, [90] * 4, 4)
    slow = GroupReader("slow", False, 0, in_transaction=True)
    assert expired_moves(view, [slow], BacklogRules(ttl_ms=10), NOW_MS) == []
    assert measure(view, [slow], BacklogRules(quota_bytes=30), NOW_MS).exceeded is Limit.QUOTA_BYTES


def test_without_readers_there_is_no_backlog() -> None:
    view = Batches(0, [10] * 4, [90] * 4, 4)
    usage = measure(view, [], BacklogRules(quota_bytes=1, quota_ms=1), NOW_MS)
    assert (usage.slowest, usage.backlog_bytes, usage.exceeded) == (None, 0, None)
