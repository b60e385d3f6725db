"""Decides the partitions of a topology's internal topics, and which of the topics are missing.

    repartition topic   as many partitions as the application asks for, or else the most that a source of the
                        writing subtopologies has; copartitioned topics get equally many
    changelog topic     as many partitions as its subtopology has tasks
    tasks               as many as the largest source topic of the subtopology has partitions

Source: Kafka's `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer`, `ChangelogTopics`.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.places import Topics
from seqgate.gateway.coordinator.streams.task_assignor import SubtopologyTasks, TasksOfTopology
from seqgate.gateway.coordinator.streams.topology import (
    Subtopology,
    TopicInfo,
    Topology,
    refused,
    too_many_tasks,
)

_SHOWN: Final = 3


class StreamsGroupStatus(enum.IntEnum):
    """A condition of the group that an answer reports; the numbers are Kafka's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class StatusNote(NamedTuple):
    """A condition with its explanation."""

    status: StreamsGroupStatus
    detail: str


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with its internal topics' partitions decided; topics in the order of their names."""

    number_of_tasks: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    state_changelog_topics: tuple[TopicInfo, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that the tasks of the subtopology read, each once."""
        names = (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))
        return tuple(dict.fromkeys(names))


class ConfiguredTopology(NamedTuple):
    """A topology compared with the topics; `subtopologies` is None while partitions can't be decided."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: tuple[TopicInfo, ...] = ()
    """The internal topics that do not exist yet."""
    problem: StatusNote | None = None
    has_too_many_tasks: bool = False
    """Whether the problem is that the topics have more partitions than a group may have tasks."""

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist, so that tasks can be assigned."""
        return self.problem is None

    @property
    def tasks(self) -> TasksOfTopology:
        """The tasks of each subtopology; none before the topology is ready."""
        found = self.subtopologies if self.is_ready and self.subtopologies is not None else {}
        return {
            name: SubtopologyTasks(subtopology.number_of_tasks, bool(subtopology.state_changelog_topics))
            for name, subtopology in found.items()
        }


class _Unusable(Exception):
    """The topics that exist do not fit the topology."""

    def __init__(self, status: StreamsGroupStatus, detail: str) -> None:
        super().__init__(detail)
        self.note = StatusNote(status, detail)


def configure(topology: Topology, topics: Topics) -> ConfiguredTopology:
    """Return the topology with internal topics decided. Raises HeartbeatRefused for an impossible one."""
    try:
        _check_sources(topology, topics)
        decided = _Counts(topology, topics).decide()
        subtopologies = {
            name: _configured(subtopology, decided) for name, subtopology in topology.by_id.items()
        }
        excess = too_many_tasks(sum(found.number_of_tasks for found in subtopologies.values()))
        if excess is not None:
            note = StatusNote(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, excess)
            return ConfiguredTopology(topology.epoch, None, problem=note, has_too_many_tasks=True)
        missing = _missing(subtopologies.values(), topics)
    except _Unusable as error:
        return ConfiguredTopology(topology.epoch, None, problem=error.note)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_shown([topic.name for topic in missing])}"
        problem = StatusNote(StreamsGroupStatus.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _check_sources(topology: Topology, topics: Topics) -> None:
    missing = {
        topic
        for subtopology in topology.subtopologies
        for topic in subtopology.source_topics
        if topics.describe(topic) is None
    }
    if missing:
        detail = f"Source topics {_shown(sorted(missing))} are missing."
        raise _Unusable(StreamsGroupStatus.MISSING_SOURCE_TOPICS, detail)


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} additional topics" if more > 0 else "")


class _Counts:
    """The number of partitions of each topic; an existing topic's number comes before a decided one."""

    def __init__(self, topology: Topology, topics: Topics) -> None:
        self._subtopologies = list(topology.by_id.values())
        self._topics = topics
        self._decided: dict[str, int] = {}
        self._repartition = [
            topic for found in self._subtopologies for topic in found.repartition_source_topics
        ]
        self._fixed = {topic.name for topic in self._repartition if topic.partitions}
        self._names = {topic.name for topic in self._repartition}

    def decide(self) -> _Counts:
        """Decide all internal topics. Raises _Unusable, HeartbeatRefused."""
        self._decide_repartition()
        fixed = frozenset(map(self.of, self._fixed))
        for subtopology in self._subtopologies:
            for group in subtopology.copartition_groups:
                self._equalize(subtopology.copartitioned(group), fixed)
        for subtopology in self._subtopologies:
            tasks = self.largest_source(subtopology)
            self._decided.update(
                dict.fromkeys((topic.name for topic in subtopology.state_changelog_topics), tasks)
            )
        return self

    def _existing(self, topic: str) -> int | None:
        described = self._topics.describe(topic)
        return None if described is None else described[1]

    def of(self, topic: str) -> int:
        """Return the partitions of a topic that exists or was decided."""
        existing = self._existing(topic)
        return self._decided[topic] if existing is None else existing

    def of_internal(self, topic: TopicInfo) -> int:
        """Return the partitions that an internal topic must have."""
        return topic.partitions or self._decided[topic.name]

    def largest_source(self, subtopology: Subtopology) -> int:
        """Return the partitions of the largest source topic. Raises HeartbeatRefused."""
        if not subtopology.sources:
            raise refused(f"No source topics found for subtopology {subtopology.subtopology_id}")
        return max(map(self.of, subtopology.sources))

    def _decide_repartition(self) -> None:
        found = {topic.name: topic.partitions for topic in self._repartition if topic.partitions}
        self._pass_on(found)
        sinks = (sink for subtopology in self._subtopologies for sink in subtopology.repartition_sink_topics)
        if any(sink not in found for sink in sinks):
            raise refused(
                "Failed to compute number of partitions for all repartition topics. There may be loops in "
                "the topology that cannot be resolved."
            )
        if any(topic.name not in found for topic in self._repartition):
            raise refused(
                "Failed to compute number of partitions for all repartition topics, because a repartition "
                "source topic is never used as a sink topic."
            )
        self._decided.update(found)

    def _pass_on(self, found: dict[str, int]) -> None:
        """Give each sink the most partitions of a source of its subtopology, and do so along the topology.

        Kafka visits all subtopologies in rounds. A subtopology passes on what it knows at the first visit at
        which the number of one source is known. `visits` holds only these first visits, as (round, place of
        the subtopology).
        """
        readers: dict[str, list[int]] = {}
        for place, subtopology in enumerate(self._subtopologies):
            for topic in subtopology.repartition_source_topics:
                readers.setdefault(topic.name, []).append(place)
        first = map(self._source_partitions, self._subtopologies, repeat(found))
        visits = [(0, place) for place, count in enumerate(first) if count is not None]
        planned = {place for _, place in visits}
        while visits:
            turn, place = heapq.heappop(visits)
            subtopology = self._subtopologies[place]
            count = self._source_partitions(subtopology, found)
            for sink in subtopology.repartition_sink_topics:
                if count is None or sink in found:
                    continue
                found[sink] = count
                for reader in readers.get(sink, ()):
                    if reader not in planned:
                        planned.add(reader)
                        heapq.heappush(visits, (turn if reader > place else turn + 1, reader))

    def _source_partitions(self, subtopology: Subtopology, found: Mapping[str, int]) -> int | None:
        """Return the most partitions of a source topic that are known; None when none are."""
        counts = [found.get(topic.name) for topic in subtopology.repartition_source_topics]
        counts += [self._existing(topic) for topic in subtopology.source_topics]
        return max((count for count in counts if count is not None), default=None)

    def _equalize(self, group: frozenset[str], fixed: frozenset[int]) -> None:
        """Give the repartition topics of a copartition group equally many partitions. Raises _Unusable.
        `fixed` are the different numbers of partitions of all fixed topics; no copartition group changes
        them.
        """
        if not group:
            return
        repartition = {name: self.of(name) for name in sorted(group & self._names)}
        others = {name: self.of(name) for name in sorted(group - repartition.keys())}
        if others:
            if len(set(others.values())) > 1:
                raise _differing(others)
            count = next(iter(others.values()))
        elif fixed:
            # as Kafka does, also for fixed topics outside the group
            if len(fixed) > 1:
                raise _differing(repartition)
            count = next(iter(fixed))
        else:
            count = max(repartition.values())
        for name, wanted in repartition.items():
            if name in self._fixed and wanted != count:
                detail = (
                    f"Number of partitions [{wanted}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic."
                )
                raise _Unusable(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
            self._decided[name] = count


def _differing(counts: Mapping[str, int]) -> _Unusable:
    text = ", ".join(f"{name}={count}" for name, count in counts.items())
    detail = f"Following topics do not have the same number of partitions: [{{{text}}}]"
    return _Unusable(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    def decided(topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
        return tuple(topic._replace(partitions=counts.of_internal(topic)) for topic in sorted(topics))

    return ConfiguredSubtopology(
        counts.largest_source(subtopology),
        tuple(sorted(set(subtopology.source_topics))),
        tuple(sorted(set(subtopology.repartition_sink_topics))),
        decided(subtopology.repartition_source_topics),
        decided(subtopology.state_changelog_topics),
    )


def _missing(subtopologies: Iterable[ConfiguredSubtopology], topics: Topics) -> tuple[TopicInfo, ...]:
    """Return the missing internal topics. Raises _Unusable when one exists with other partitions."""
    wanted = {
        topic.name: topic
        for found in subtopologies
        for topic in (*found.repartition_source_topics, *found.state_changelog_topics)
    }
    missing = []
    for name, topic in sorted(wanted.items()):
        described = topics.describe(name)
        if described is None:
            missing.append(topic)
        elif described[1] != topic.partitions:
            detail = (
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, "
                f"found {described[1]}"
            )
            raise _Unusable(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return tuple(missing)
