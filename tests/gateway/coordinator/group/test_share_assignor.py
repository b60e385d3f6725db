"""The share assignor: every partition is read, members have similar numbers of partitions, and few partitions
move.
"""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.share_group import Targets, assign
from seqgate.gateway.coordinator.places import Place

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
topic_sets = st.frozensets(st.sampled_from(TOPICS))
members = st.text("abcdef", min_size=1, max_size=3)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))


def places_of(partitions: dict[uuid.UUID, int]) -> frozenset[Place]:
    return frozenset((topic_id, index) for topic_id, count in partitions.items() for index in range(count))


def spread(values: list[int]) -> int:
    return max(values, default=0) - min(values, default=0)


@given(st.dictionaries(members, topic_sets, max_size=6), counts, st.data())
def test_everything_is_read_as_often_as_the_rest_of_its_topic(
    asked: dict[str, frozenset[uuid.UUID]], partitions: dict[uuid.UUID, int], data: st.DataObject
) -> None:
    places = places_of(partitions)
    before: Targets = assign(asked, places, {})
    changed = {**asked, **data.draw(st.dictionaries(members, topic_sets, max_size=2))}
    found = assign(changed, places, before)
    assert found.keys() == changed.keys()
    for member_id, read in found.items():
        assert {topic_id for topic_id, _ in read} <= changed[member_id]
    for topic_id, count in partitions.items():
        readers = [member_id for member_id, wanted in changed.items() if topic_id in wanted]
        if not readers:
            continue
        sharing = [sum((topic_id, index) in read for read in found.values()) for index in range(count)]
        assert spread(sharing) == 0
        assert all(0 < times <= len(readers) for times in sharing)


@given(st.integers(1, 6), counts, st.frozensets(members, max_size=3))
def test_members_with_one_subscription_have_equal_shares(
    size: int, partitions: dict[uuid.UUID, int], more: frozenset[str]
) -> None:
    places = places_of(partitions)
    wanted = frozenset(TOPICS)
    before = assign(dict.fromkeys([f"m{number}" for number in range(size)], wanted), places, {})
    for found in (before, assign(dict.fromkeys([*before, *more], wanted), places, before)):
        assert spread([len(read) for read in found.values()]) <= 1
        assert frozenset().union(*found.values()) == places
        if places:
            assert all(found.values())


@given(st.dictionaries(members, topic_sets, max_size=6), counts)
def test_nothing_moves_without_a_reason(
    asked: dict[str, frozenset[uuid.UUID]], partitions: dict[uuid.UUID, int]
) -> None:
    places = places_of(partitions)
    found = assign(asked, places, {})
    assert assign(asked, places, found) == found


def test_a_new_member_takes_no_more_than_its_share() -> None:
    wanted = frozenset(TOPICS[:1])
    places = places_of({TOPICS[0]: 9})
    before = assign(dict.fromkeys("ab", wanted), places, {})
    found = assign(dict.fromkeys("abc", wanted), places, before)
    assert len(found["c"]) == 3
    assert all(found[member_id] < before[member_id] for member_id in "ab")


class CountedIndex(int):
    """A partition index that counts its comparisons."""

    count = 0

    def __eq__(self, other: object) -> bool:
        CountedIndex.count += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        CountedIndex.count += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_a_second_member_takes_half_of_the_partitions_in_few_steps() -> None:
    places = [(TOPICS[0], CountedIndex(index)) for index in range(200)]
    before = {"a": frozenset(places)}
    CountedIndex.count = 0
    found = assign(dict.fromkeys("ab", frozenset(TOPICS[:1])), places, before)
    assert CountedIndex.count < 20 * len(places)
    assert found == {"a": frozenset(places[100:]), "b": frozenset(places[:100])}
