"""Topologies and topics for the tests of streams groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from seqgate.gateway.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology


class FakeTopics:
    """Topics with a number of partitions each, which a test may change."""

    def __init__(self, **partitions: int) -> None:
        self.counts = partitions

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        count = self.counts.get(name)
        return None if count is None else (uuid.uuid5(uuid.NAMESPACE_DNS, name), count)

    def names(self) -> list[str]:
        return list(self.counts)

    def create(self, topics: Iterable[TopicInfo]) -> None:
        self.counts.update((topic.name, topic.partitions) for topic in topics)


def repartition(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name, partitions, 0, (("cleanup.policy", "delete"),))


def changelog(name: str) -> TopicInfo:
    return TopicInfo(name, 0, 0, (("cleanup.policy", "compact"),))


def subtopology(
    subtopology_id: str,
    *sources: str,
    sinks: Sequence[str] = (),
    repartitions: Sequence[TopicInfo] = (),
    changelogs: Sequence[TopicInfo] = (),
    copartitioned: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (),
) -> Subtopology:
    groups = tuple(CopartitionGroup(external, (), internal) for external, internal in copartitioned)
    return Subtopology(
        subtopology_id, sources, (), tuple(changelogs), tuple(sinks), tuple(repartitions), groups
    )


PIPE = Topology(0, (subtopology("0", "lines"),))
"""A topology without state and without internal topics."""
COUNT = Topology(
    0,
    (
        subtopology("0", "lines", sinks=["words"]),
        subtopology("1", repartitions=[repartition("words")], changelogs=[changelog("counts")]),
    ),
)
"""Counts words: a repartition topic between two subtopologies, and a changelog."""
