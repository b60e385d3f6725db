"""The assignors: everything is assigned once and evenly, and no partition moves without need."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.consumer_assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)
from seqgate.gateway.coordinator.places import Place

T, U, V = (uuid.UUID(int=number) for number in (1, 2, 3))
TOPICS = (T, U, V)
Members = Mapping[str, Subscriber]
Topics = Mapping[uuid.UUID, int]

topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
names = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)
places = st.frozensets(st.tuples(st.sampled_from([*TOPICS, uuid.UUID(int=9)]), st.integers(0, 11)))
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def members(draw: st.DrawFn, *, alike: bool = False) -> dict[str, Subscriber]:
    """Draw members with arbitrary former assignments: too many partitions, missing topics, the same partition
    twice.
    """
    common = draw(subscriptions)
    return {
        name: Subscriber(name, common if alike else draw(subscriptions), draw(places)) for name in draw(names)
    }


def everything(of: Members, counts: Topics) -> set[Place]:
    wanted: set[uuid.UUID] = set()
    for member in of.values():
        wanted |= member.topics
    return {(topic, index) for topic, count in counts.items() if topic in wanted for index in range(count)}


def again(of: Members, assignment: Assignment) -> dict[str, Subscriber]:
    """Return the members after they have adopted their assignments."""
    return {name: member._replace(current=assignment[name]) for name, member in of.items()}


def loads(assignment: Assignment) -> list[int]:
    return sorted(len(assigned) for assigned in assignment.values())


@pytest.mark.parametrize("name", ASSIGNORS)
class TestEach:
    @given(of=members(), counts=topics)
    def test_every_partition_goes_to_one_subscriber_of_its_topic(
        self, name: str, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        assignment = ASSIGNORS[name](of, counts)
        assert assignment.keys() == of.keys()
        assigned = [place for places in assignment.values() for place in places]
        assert len(assigned) == len(set(assigned))
        assert set(assigned) == everything(of, counts)
        for member_id, places_of_one in assignment.items():
            assert {topic for topic, _ in places_of_one} <= of[member_id].topics

    @given(of=members(), counts=topics)
    def test_the_order_of_members_and_topics_does_not_matter(
        self, name: str, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        settled = again(of, ASSIGNORS[name](of, counts))
        expected = ASSIGNORS[name](settled, counts)
        turned = dict(reversed(settled.items()))
        assert ASSIGNORS[name](turned, dict(reversed(counts.items()))) == expected

    @given(of=members(), counts=topics)
    def test_a_second_time_nothing_moves(
        self, name: str, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        first = ASSIGNORS[name](of, counts)
        assert ASSIGNORS[name](again(of, first), counts) == first

    def test_no_members(self, name: str) -> None:
        assert ASSIGNORS[name]({}, {T: 3}) == {}


class TestUniform:
    @given(of=members(alike=True), counts=topics)
    def test_equal_subscriptions_have_equal_shares(
        self, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        sizes = loads(assign_uniform(of, counts))
        assert sizes[-1] - sizes[0] <= 1

    @given(of=members(), counts=topics)
    def test_no_member_has_two_more_than_another_subscriber(
        self, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        assignment = assign_uniform(of, counts)
        for giver, given_places in assignment.items():
            for taker, taken in assignment.items():
                shared = any(topic in of[taker].topics for topic, _ in given_places)
                assert not shared or len(given_places) - len(taken) < 2, (giver, taker)

    @given(
        who=names,
        count=st.integers(0, 30),
        joins=st.booleans(),
        leaves=st.booleans(),
        grows=st.integers(0, 5),
    )
    def test_no_more_partitions_move_than_necessary(
        self, who: list[str], count: int, joins: bool, leaves: bool, grows: int
    ) -> None:
        """Check that remaining members lose only partitions above their share, and only to new members."""
        of = {name: Subscriber(name, frozenset([T]), frozenset[Place]()) for name in who}
        before = assign_uniform(of, {T: count})
        after_members = again(of, before)
        if leaves and len(after_members) > 1:
            del after_members[who[0]]
        if joins:
            after_members["new"] = Subscriber("new", frozenset([T]), frozenset())
        after = assign_uniform(after_members, {T: count + grows})
        share, extra = divmod(count + grows, len(after_members))
        staying = [name for name in after_members if name != "new"]
        kept = sum(len(before[name] & after[name]) for name in staying)
        most = 0
        for size in sorted((len(before[name]) for name in staying), reverse=True):
            room = share + (extra > 0 and size > share)
            extra -= room > share
            most += min(size, room)
        assert kept == most

    def test_a_new_member_takes_a_few_partitions_from_each(self) -> None:
        of = {name: Subscriber(name, frozenset([T]), frozenset[Place]()) for name in "abc"}
        settled = again(of, assign_uniform(of, {T: 12}))
        settled["d"] = Subscriber("d", frozenset([T]), frozenset())
        after = assign_uniform(settled, {T: 12})
        assert loads(after) == [3, 3, 3, 3]
        assert all(after[name] < settled[name].current for name in "abc")

    def test_topics_with_fewer_subscribers_are_assigned_first(self) -> None:
        of = {
            "a": Subscriber("a", frozenset([T, U]), frozenset[Place]()),
            "b": Subscriber("b", frozenset([T]), frozenset[Place]()),
        }
        after = assign_uniform(of, {T: 4, U: 4})
        assert after["b"] == {(T, index) for index in range(4)}


class TestRange:
    @given(of=members(), counts=topics)
    def test_neighbours_in_the_order_of_the_members(
        self, of: dict[str, Subscriber], counts: dict[uuid.UUID, int]
    ) -> None:
        assignment = assign_range(of, counts)
        for topic, count in counts.items():
            runs = [
                sorted(index for found, index in assignment[name] if found == topic)
                for name in sorted(of)
                if topic in of[name].topics
            ]
            if runs:
                assert [index for run in runs for index in run] == list(range(count))
                sizes = [len(run) for run in runs]
                assert sizes == sorted(sizes, reverse=True)
                assert sizes[0] - sizes[-1] <= 1

    def test_the_same_partitions_of_like_topics_come_together(self) -> None:
        of = {name: Subscriber(name, frozenset([T, U]), frozenset[Place]()) for name in "ab"}
        after = assign_range(of, {T: 3, U: 3})
        assert {index for topic, index in after["a"] if topic == T} == {0, 1}
        assert {index for topic, index in after["a"] if topic == U} == {0, 1}

    def test_static_members_come_first(self) -> None:
        of = {name: Subscriber(name, frozenset([T]), frozenset[Place]()) for name in "ab"}
        of["c"] = Subscriber("z", frozenset([T]), frozenset(), is_static=True)
        assert assign_range(of, {T: 2}) == {"c": {(T, 0)}, "a": {(T, 1)}, "b": frozenset()}


class CountedName(str):
    """A member id that counts how often a dictionary is asked about it."""

    __slots__ = ()
    count: ClassVar[int] = 0

    def __hash__(self) -> int:
        CountedName.count += 1
        return str.__hash__(self)

    __eq__ = str.__eq__


def test_the_least_loaded_subscriber_is_found_once_while_nothing_moves() -> None:
    of = {
        CountedName(f"m{number}"): Subscriber(f"m{number}", frozenset({T}), frozenset())
        for number in range(50)
    }
    of[CountedName("idle")] = Subscriber("idle", frozenset({U}), frozenset())
    CountedName.count = 0
    assert loads(assign_uniform(of, {T: 500})) == [0, *[10] * 50]
    assert CountedName.count < 10 * (len(of) + 500)
