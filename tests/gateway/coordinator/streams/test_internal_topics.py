"""The partitions of a topology's internal topics, as Kafka decides them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.streams.internal_topics import (
    ConfiguredTopology,
    StreamsGroupStatus,
    configure,
)
from seqgate.gateway.coordinator.streams.task_assignor import SubtopologyTasks
from seqgate.gateway.coordinator.streams.topology import Subtopology, Topology
from tests.gateway.coordinator.streams.applications import (
    COUNT,
    PIPE,
    FakeTopics,
    changelog,
    repartition,
    subtopology,
)


def configured(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    return configure(Topology(0, subtopologies), FakeTopics(**topics))


def missing(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def problem(found: ConfiguredTopology) -> tuple[StreamsGroupStatus, str]:
    assert found.problem is not None
    return found.problem.status, found.problem.detail


def test_a_topology_without_internal_topics_is_ready() -> None:
    found = configure(PIPE, FakeTopics(lines=3))
    assert found.is_ready
    assert found.tasks == {"0": SubtopologyTasks(3, is_stateful=False)}


def test_a_missing_source_topic_is_reported() -> None:
    found = configured(subtopology("0", "d", "b", "c", "a"))
    assert problem(found) == (
        StreamsGroupStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )
    assert found.subtopologies is None
    assert not found.tasks


def test_internal_topics_have_the_partitions_of_the_sources() -> None:
    found = configure(COUNT, FakeTopics(lines=4))
    assert missing(found) == {"words": 4, "counts": 4}
    assert problem(found) == (
        StreamsGroupStatus.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: counts, words",
    )
    assert not found.tasks, "no tasks before the topics exist"


def test_tasks_begin_when_the_internal_topics_exist() -> None:
    found = configure(COUNT, FakeTopics(lines=4, words=4, counts=4))
    assert found.is_ready
    assert found.tasks == {
        "0": SubtopologyTasks(4, is_stateful=False),
        "1": SubtopologyTasks(4, is_stateful=True),
    }


def test_an_application_may_ask_for_a_number_of_partitions() -> None:
    found = configured(
        subtopology("0", "lines", sinks=["words"]),
        subtopology("1", repartitions=[repartition("words", 7)], changelogs=[changelog("counts")]),
        lines=4,
    )
    assert missing(found) == {"words": 7, "counts": 7}


def test_partitions_are_passed_on_through_several_subtopologies() -> None:
    found = configured(
        subtopology("0", repartitions=[repartition("b")], sinks=["c"]),
        subtopology("1", repartitions=[repartition("a")], sinks=["b"]),
        subtopology("2", "small", "large", sinks=["a"]),
        subtopology("3", repartitions=[repartition("c")]),
        small=2,
        large=5,
    )
    assert missing(found) == {"a": 5, "b": 5, "c": 5}


def test_a_subtopology_has_the_tasks_of_its_largest_source() -> None:
    found = configured(subtopology("0", "small", "large"), small=2, large=5)
    assert found.tasks["0"].partitions == 5


@pytest.mark.parametrize("name", ["words", "counts"])
def test_an_internal_topic_with_other_partitions_is_reported(name: str) -> None:
    found = configure(COUNT, FakeTopics(**{"lines": 4, "words": 4, "counts": 4, name: 6}))
    status, detail = problem(found)
    assert status is StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS
    if name == "counts":
        assert detail == "Existing topic counts has different number of partitions: expected 4, found 6"
    else:
        # the existing repartition topic sets the number of tasks, so the changelog is the wrong one for it
        assert detail == "Existing topic counts has different number of partitions: expected 6, found 4"


def test_copartitioned_sources_must_be_equally_large() -> None:
    found = configured(subtopology("0", "a", "b", copartitioned=[((0, 1), ())]), a=2, b=3)
    assert problem(found) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=3}]",
    )


def test_a_repartition_topic_gets_the_partitions_of_its_copartitioned_source() -> None:
    found = configured(
        subtopology("0", "lines", sinks=["words"]),
        subtopology("1", "table", repartitions=[repartition("words")], copartitioned=[((0,), (0,))]),
        lines=2,
        table=6,
    )
    assert missing(found) == {"words": 6}


def test_copartitioned_repartition_topics_get_the_largest_number() -> None:
    found = configured(
        subtopology("0", "a", sinks=["x"]),
        subtopology("1", "b", sinks=["y"]),
        subtopology("2", repartitions=[repartition("x"), repartition("y")], copartitioned=[((), (0, 1))]),
        a=2,
        b=6,
    )
    assert missing(found) == {"x": 6, "y": 6}


def test_a_number_asked_for_counts_for_copartitioned_repartition_topics() -> None:
    found = configured(
        subtopology("0", "a", sinks=["x", "y"]),
        subtopology("2", repartitions=[repartition("x", 3), repartition("y")], copartitioned=[((), (0, 1))]),
        a=8,
    )
    assert missing(found) == {"x": 3, "y": 3}


def test_numbers_asked_for_must_fit_each_other() -> None:
    found = configured(
        subtopology("0", "a", sinks=["x", "y"]),
        subtopology(
            "2", repartitions=[repartition("x", 3), repartition("y", 4)], copartitioned=[((), (0, 1))]
        ),
        a=8,
    )
    assert problem(found) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{x=3, y=4}]",
    )


def test_a_number_asked_for_must_fit_a_copartitioned_source() -> None:
    found = configured(
        subtopology("0", "a", sinks=["x"]),
        subtopology("1", "table", repartitions=[repartition("x", 3)], copartitioned=[((0,), (0,))]),
        a=8,
        table=5,
    )
    assert problem(found) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        (
            "Number of partitions [3] of repartition topic [x] doesn't match number of partitions [5] of the "
            "source topic."
        ),
    )


@pytest.mark.parametrize(
    "subtopologies",
    [
        [subtopology("0", repartitions=[repartition("x")], sinks=["x"])],
        [subtopology("0", "a"), subtopology("1", repartitions=[repartition("x")])],
        [subtopology("0")],
    ],
    ids=["a loop", "a source without a sink", "no source"],
)
def test_an_impossible_topology_is_refused(subtopologies: list[Subtopology]) -> None:
    with pytest.raises(HeartbeatRefused) as refusal:
        configured(*subtopologies, a=1)
    assert refusal.value.error_code is ErrorCode.streams_invalid_topology
