"""Encodes and decodes a topology, the value of a record of kind 23, in Kafka's format.

    int32 epoch | subtopologies[ id | source_topics[] | source_topic_regex[] | changelogs[topic] | repartition_sinks[] |
                                 repartition_sources[topic] | copartition_groups[ int16[] | int16[] | int16[] ] ]
    topic: name | int32 partitions | int16 replication_factor | configs[key, value]

Source: Kafka's StreamsGroupTopologyValue.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from gateway.coordinator.group.record import NO_TAGS, CompactReader, compact_strings
from gateway.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from gateway.protocol.primitives import compact_string, unsigned_varint

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITIONS_AND_REPLICAS: Final = Struct(">ih")


def encode_topology(topology: Topology) -> bytes:
    """Encode a topology. Raises struct.error for a number that is too large."""
    head = _INT32.pack(topology.epoch)
    return head + _list(map(_subtopology, topology.subtopologies)) + NO_TAGS


def pairs(texts: Iterable[tuple[str, str]]) -> bytes:
    """Encode a list of keys and values."""
    return _list(compact_string(key) + compact_string(value) + NO_TAGS for key, value in texts)


def _list(items: Iterable[bytes]) -> bytes:
    pieces = list(items)
    return unsigned_varint(len(pieces) + 1) + b"".join(pieces)


def _subtopology(subtopology: Subtopology) -> bytes:
    return b"".join(
        (
            compact_string(subtopology.subtopology_id),
            compact_strings(subtopology.source_topics),
            compact_strings(subtopology.source_topic_regex),
            _list(map(_topic, subtopology.state_changelog_topics)),
            compact_strings(subtopology.repartition_sink_topics),
            _list(map(_topic, subtopology.repartition_source_topics)),
            _list(map(_copartition_group, subtopology.copartition_groups)),
            NO_TAGS,
        )
    )


def _topic(topic: TopicInfo) -> bytes:
    numbers = _PARTITIONS_AND_REPLICAS.pack(topic.partitions, topic.replication_factor)
    return compact_string(topic.name) + numbers + pairs(topic.configs) + NO_TAGS


def _copartition_group(group: CopartitionGroup) -> bytes:
    return b"".join((*(_list(map(_INT16.pack, indexes)) for indexes in group), NO_TAGS))


def read_topology(reader: CompactReader) -> Topology:
    """Decode a topology. Raises struct.error, MalformedRequest, ValueError."""
    epoch = reader.int32()
    return Topology(epoch, tuple(_read_subtopology(reader) for _ in range(reader.count())))


def read_pairs(reader: CompactReader) -> tuple[tuple[str, str], ...]:
    """Decode a list of keys and values. Raises struct.error, MalformedRequest, ValueError."""
    found = []
    for _ in range(reader.count()):
        found.append((reader.string(), reader.string()))
        reader.skip_tags()
    return tuple(found)


def _read_subtopology(reader: CompactReader) -> Subtopology:
    subtopology = Subtopology(
        reader.string(),
        reader.strings(),
        reader.strings(),
        _read_topics(reader),
        reader.strings(),
        _read_topics(reader),
        tuple(_read_copartition_group(reader) for _ in range(reader.count())),
    )
    reader.skip_tags()
    return subtopology


def _read_topics(reader: CompactReader) -> tuple[TopicInfo, ...]:
    found = []
    for _ in range(reader.count()):
        found.append(TopicInfo(reader.string(), reader.int32(), reader.int16(), read_pairs(reader)))
        reader.skip_tags()
    return tuple(found)


def _read_copartition_group(reader: CompactReader) -> CopartitionGroup:
    group = CopartitionGroup(_read_int16s(reader), _read_int16s(reader), _read_int16s(reader))
    reader.skip_tags()
    return group


def _read_int16s(reader: CompactReader) -> tuple[int, ...]:
    return tuple(reader.int16() for _ in range(reader.count()))
