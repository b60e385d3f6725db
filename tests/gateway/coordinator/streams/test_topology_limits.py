"""Limits of a topology: how much it may hold, how many tasks it may have, and that its work grows with its
size only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.streams.internal_topics import StreamsGroupStatus, configure
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT
from seqgate.gateway.coordinator.streams.topology import CopartitionGroup, Subtopology, Topology
from tests.gateway.coordinator.streams.applications import (
    PIPE,
    FakeTopics,
    changelog,
    repartition,
    subtopology,
)
from tests.gateway.coordinator.streams.group_scene import AT_ONCE, Scene, active, joining, statuses
from tests.support.steps import steps_of

MOST_TASKS = 10_000
MOST_STANDBY_TASKS = 20_000


def chain(length: int) -> Topology:
    """Return subtopologies that each read what the next one writes; the last one reads a topic that exists."""
    links = [
        subtopology(f"{place:04}", repartitions=[repartition(f"t{place}")], sinks=[f"t{place - 1}"])
        for place in range(1, length)
    ]
    first = subtopology("0000", repartitions=[repartition("t0")])
    return Topology(0, (first, *links, subtopology("last", "lines", sinks=[f"t{length - 1}"])))


def copartitioned(count: int) -> Topology:
    """Return as many copartition groups as repartition topics with a number of partitions of their own."""
    topics = [repartition(f"t{place}", 2) for place in range(count)]
    return Topology(
        0,
        (
            subtopology("0", "lines", sinks=[topic.name for topic in topics]),
            subtopology("1", repartitions=topics, copartitioned=[((), (place,)) for place in range(count)]),
        ),
    )


@pytest.mark.parametrize("topology_of", [chain, copartitioned])
def test_the_work_grows_no_faster_than_the_topology(topology_of: Callable[[int], Topology]) -> None:
    topics = FakeTopics(lines=2)
    small, large = topology_of(50), topology_of(200)
    assert configure(large, topics).missing
    assert steps_of(lambda: configure(large, topics)) < 5 * steps_of(lambda: configure(small, topics))


NAMES = "abcdef"


@st.composite
def drawn_topologies(draw: st.DrawFn) -> Topology:
    """Draw subtopologies that pass records on by repartition topics, some with a number of partitions of
    their own.
    """
    counts = draw(st.fixed_dictionaries({name: st.sampled_from([0, 0, 0, 7]) for name in NAMES}))
    some = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
    external = st.lists(st.sampled_from(["small", "large"]), max_size=1)
    return Topology(
        0,
        tuple(
            subtopology(
                str(place),
                *draw(external),
                repartitions=[repartition(name, counts[name]) for name in draw(some)],
                sinks=draw(some),
            )
            for place in range(draw(st.integers(1, 6)))
        ),
    )


def by_rounds(topology: Topology, topics: FakeTopics) -> dict[str, int] | None:
    """Return the partitions of the repartition topics as Kafka's rounds find them; None when they can't be
    decided.
    """
    every = topology.by_id.values()
    read = [topic for found in every for topic in found.repartition_source_topics]
    known = {topic.name: topic.partitions for topic in read if topic.partitions}
    while True:
        before = len(known)
        for found in every:
            counts = [topics.counts[name] for name in found.source_topics]
            counts += [known[topic.name] for topic in found.repartition_source_topics if topic.name in known]
            for sink in found.repartition_sink_topics if counts else ():
                known.setdefault(sink, max(counts))
        if len(known) == before:
            break
    sinks = {sink for found in every for sink in found.repartition_sink_topics}
    is_decided = (sinks | {topic.name for topic in read}) <= known.keys() and all(
        found.sources for found in every
    )
    return {topic.name: known[topic.name] for topic in read} if is_decided else None


@given(drawn_topologies())
def test_partitions_are_passed_on_as_by_kafkas_rounds(topology: Topology) -> None:
    topics = FakeTopics(small=2, large=5)
    try:
        found = {topic.name: topic.partitions for topic in configure(topology, topics).missing}
    except HeartbeatRefused:
        assert by_rounds(topology, topics) is None
    else:
        assert found == by_rounds(topology, topics)


class TestExtent:
    @pytest.mark.parametrize(
        ("subtopologies", "text"),
        [
            (
                [subtopology(str(place), "lines") for place in range(1_001)],
                "The topology has 1001 subtopologies; at most 1000 are allowed.",
            ),
            (
                [subtopology("0", *["lines"] * 9_998, sinks=["x"], changelogs=[changelog("c")] * 2)],
                "The topology lists 10001 topics; at most 10000 are allowed.",
            ),
            (
                [
                    PIPE.subtopologies[0]._replace(
                        copartition_groups=(CopartitionGroup((0,), (), ()),) * 5_001
                    )
                ],
                "The topology has 10002 copartition groups and topics in them; at most 10000 are allowed.",
            ),
            ([subtopology("i" * 33, "lines")], "The id of a subtopology can't be longer than 32 bytes."),
        ],
        ids=["subtopologies", "topics", "copartition groups", "an id"],
    )
    def test_a_topology_that_holds_too_much_is_refused(
        self, subtopologies: list[Subtopology], text: str
    ) -> None:
        scene = Scene(FakeTopics(lines=1))
        refusal = scene.refusal(joining("a", Topology(0, tuple(subtopologies))))
        assert refusal == (ErrorCode.streams_invalid_topology, text)

    def test_a_topology_at_the_limits_is_accepted(self) -> None:
        scene = Scene(FakeTopics(lines=1))
        many = Topology(0, tuple(subtopology(str(place), *["lines"] * 10) for place in range(1_000)))
        reply = scene.join("a", many)
        assert reply.tasks is not None
        assert len(reply.tasks.active) == 1_000


class TestTasks:
    def test_a_topology_with_too_many_tasks_is_refused(self) -> None:
        scene = Scene(FakeTopics(lines=101))
        many = Topology(0, tuple(subtopology(str(place), "lines") for place in range(100)))
        assert scene.refusal(joining("a", many)) == (
            ErrorCode.streams_invalid_topology,
            (
                "The topology has 10100 tasks; a streams group may have at most 10000. Give the source "
                "topics fewer partitions, or split the application."
            ),
        )

    def test_a_repartition_topic_can_not_ask_for_too_many_tasks(self) -> None:
        scene = Scene(FakeTopics(lines=1))
        huge = Topology(
            0,
            (
                subtopology("0", "lines", sinks=["words"]),
                subtopology("1", repartitions=[repartition("words", 2**31 - 1)]),
            ),
        )
        error, _ = scene.refusal(joining("a", huge))
        assert error is ErrorCode.streams_invalid_topology

    def test_a_group_that_outgrows_the_limit_loses_its_tasks_and_stays(self) -> None:
        scene = Scene(FakeTopics(lines=MOST_TASKS))
        reply = scene.join("a")
        assert reply.tasks is not None
        assert len(reply.tasks.active) == MOST_TASKS
        scene.topics_changed(lines=MOST_TASKS + 1)
        reply = scene.stay("a", tells=False)
        assert statuses(reply) == [StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS]
        assert reply.notes[0].detail.startswith("The topology has 10001 tasks;")
        assert reply.tasks == NO_ASSIGNMENT
        assert scene.group.state_text == "NotReady"
        scene.restart()
        assert statuses(scene.join("b")) == [StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS]
        assert set(scene.group.members) == {"a", "b"}

    def test_a_group_works_again_with_fewer_partitions(self) -> None:
        scene = Scene(FakeTopics(lines=4))
        scene.join("a")
        scene.topics_changed(lines=MOST_TASKS + 1)
        scene.stay("a")
        scene.topics_changed(lines=2)
        scene.settle("a")
        assert scene.tasks["a"] == active(0, 1)

    def test_internal_topics_of_too_many_tasks_are_not_created(self) -> None:
        scene = Scene(FakeTopics())
        scene.join("a", Topology(0, (subtopology("0", "lines", changelogs=[changelog("counts")]),)))
        scene.topics_changed(lines=MOST_TASKS + 1)
        assert not scene.stay("a").missing

    def test_standby_tasks_stay_within_their_limit(self) -> None:
        stateful = Topology(0, (subtopology("0", "lines", changelogs=[changelog("counts")]),))
        many = MOST_STANDBY_TASKS // 3
        scene = Scene(FakeTopics(lines=many, counts=many), replace(AT_ONCE, standby_replicas=9))
        for name in "abcde":
            scene.join(name, stateful)
        standby = sum(len(target.standby) for target in scene.group.targets.values())
        assert standby == 3 * many
