"""The topology of a Kafka Streams application, as its members describe it and the log stores it.

A subtopology reads source topics. A repartition topic connects two subtopologies: the sink of one, a source
of the other. A changelog topic stores the state of a subtopology. The coordinator creates repartition and
changelog topics. Source: Kafka's `StreamsTopology`, StreamsGroupTopologyValue.json.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.rows import INT16, INT32, PAIRS, STRING, Field, Writer, array, structure


class TopicInfo(NamedTuple):
    """An internal topic of the application; 0 partitions or replicas leave the number to the coordinator."""

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


# Limits of what a topology may hold, so that neither its heartbeats nor its records grow without bound.

MAX_SUBTOPOLOGIES: Final = 1_000
"""Subtopologies of a topology; a topology with more is refused."""
MAX_SUBTOPOLOGY_ID_BYTES: Final = 32
"""Longest id of a subtopology: members' records repeat the ids of all. Kafka Streams numbers them."""
MAX_NAMED_TOPICS: Final = 10_000
"""Topics that all subtopologies list, each as often as listed; a topology that lists more is refused."""
MAX_COPARTITIONED: Final = 10_000
"""Copartition groups and the topics that they list, of all subtopologies; a topology with more is refused."""
MAX_TASKS: Final = 10_000
"""Active tasks of a group; a group that would have more gets none."""
MAX_STANDBY_TASKS: Final = 20_000
"""Standby tasks of a group; each task gets fewer where `num.standby.replicas` asks for more."""


def refused(message: str) -> HeartbeatRefused:
    """Return the error for a topology that no topics could fit."""
    return HeartbeatRefused(ErrorCode.streams_invalid_topology, message)


def check_extent(topology: Topology) -> None:
    """Refuse a topology that holds more than the limits. Raises HeartbeatRefused."""
    found = topology.subtopologies
    for what, count, limit in (
        ("has {} subtopologies", len(found), MAX_SUBTOPOLOGIES),
        ("lists {} topics", sum(map(_named_topics, found)), MAX_NAMED_TOPICS),
        ("has {} copartition groups and topics in them", sum(map(_copartitioned, found)), MAX_COPARTITIONED),
    ):
        if count > limit:
            raise refused(f"The topology {what.format(count)}; at most {limit} are allowed.")
    for subtopology in found:
        if len(subtopology.subtopology_id.encode()) > MAX_SUBTOPOLOGY_ID_BYTES:
            raise refused(f"The id of a subtopology can't be longer than {MAX_SUBTOPOLOGY_ID_BYTES} bytes.")


def too_many_tasks(tasks: int) -> str | None:
    """Return why a group can't have so many active tasks; None when it can."""
    if tasks <= MAX_TASKS:
        return None
    return (
        f"The topology has {tasks} tasks; a streams group may have at most {MAX_TASKS}. Give the source "
        "topics fewer partitions, or split the application."
    )


def standby_replicas_within(asked: int, stateful_tasks: int) -> int:
    """Return the standby tasks of each stateful task: as many as asked for, or fewer within the limit."""
    return min(asked, MAX_STANDBY_TASKS // stateful_tasks) if stateful_tasks else asked


def _named_topics(subtopology: Subtopology) -> int:
    return (
        len(subtopology.source_topics)
        + len(subtopology.state_changelog_topics)
        + len(subtopology.repartition_sink_topics)
        + len(subtopology.repartition_source_topics)
    )


def _copartitioned(subtopology: Subtopology) -> int:
    groups = subtopology.copartition_groups
    return len(groups) + sum(map(len, chain.from_iterable(groups)))


_NAMES: Final = array(STRING)
_INDEXES: Final = array(INT16)
_TOPICS: Final = array(
    structure(
        TopicInfo,
        Field("name", STRING),
        Field("partitions", INT32),
        Field("replication_factor", INT16),
        Field("configs", PAIRS),
    )
)
_COPARTITION_GROUP: Final = structure(
    CopartitionGroup,
    Field("source_topics", _INDEXES),
    Field("source_topic_regex", _INDEXES),
    Field("repartition_source_topics", _INDEXES),
)
_SUBTOPOLOGY: Final = structure(
    Subtopology,
    Field("subtopology_id", STRING),
    Field("source_topics", _NAMES),
    Field("source_topic_regex", _NAMES),
    Field("state_changelog_topics", _TOPICS),
    Field("repartition_sink_topics", _NAMES),
    Field("repartition_source_topics", _TOPICS),
    Field("copartition_groups", array(_COPARTITION_GROUP)),
)
TOPOLOGY_TYPE: Final = structure(Topology, Field("epoch", INT32), Field("subtopologies", array(_SUBTOPOLOGY)))
"""A topology as the log stores it, in Kafka's format. Source: Kafka's StreamsGroupTopologyValue.json."""


def size_bytes_of(topology: Topology | None) -> int:
    """Return the bytes of a topology as the log stores it. Raises struct.error for too large a number."""
    if topology is None:
        return 0
    out = Writer(is_compact=True)
    TOPOLOGY_TYPE.write(out, topology)
    return len(out.written())
