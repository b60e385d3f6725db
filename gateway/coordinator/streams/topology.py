"""The topology of a Kafka Streams application, as its members describe it and the log stores it.

A subtopology reads source topics. A repartition topic connects two subtopologies: the sink of one, a source of the other. A
changelog topic stores the state of a subtopology. The coordinator creates repartition and changelog topics.

Source: Kafka's `StreamsTopology`, StreamsGroupTopologyValue.json.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicInfo(NamedTuple):
    """An internal topic as the application describes it; 0 partitions or replicas leave the number to the coordinator."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that must have equally many partitions, as indexes into the lists of their subtopology."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    """A connected part of the topology."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that the tasks of the subtopology read."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))

    def copartitioned(self, group: CopartitionGroup) -> frozenset[str]:
        """Return the names of the topics of a copartition group. Raises IndexError."""
        repartition = (
            self.repartition_source_topics[index].name for index in group.repartition_source_topics
        )
        return frozenset((*(self.source_topics[index] for index in group.source_topics), *repartition))


class Topology(NamedTuple):
    """All subtopologies; the application raises `epoch` when it changes them."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def by_id(self) -> dict[str, Subtopology]:
        """The subtopologies by id, in the order of their ids."""
        return {found.subtopology_id: found for found in sorted(self.subtopologies)}

    def is_same(self, other: Topology) -> bool:
        """Return whether the other topology has the same epoch and the same subtopologies, in any order."""
        return self.epoch == other.epoch and self.by_id == other.by_id

    @property
    def subtopology_of(self) -> dict[str, str]:
        """The id of the subtopology that reads a topic, by topic."""
        return {topic: found.subtopology_id for found in self.subtopologies for topic in found.sources}

    @property
    def required_topics(self) -> frozenset[str]:
        """The topics that must exist before there are tasks."""
        changelogs = (topic.name for found in self.subtopologies for topic in found.state_changelog_topics)
        return frozenset((*(topic for found in self.subtopologies for topic in found.sources), *changelogs))

    @property
    def named_topics(self) -> tuple[str, ...]:
        """All topics that the topology names, each once."""
        names = dict.fromkeys(
            name
            for found in self.subtopologies
            for name in (
                *found.source_topics,
                *found.repartition_sink_topics,
                *(topic.name for topic in found.repartition_source_topics),
                *(topic.name for topic in found.state_changelog_topics),
            )
        )
        return tuple(names)
