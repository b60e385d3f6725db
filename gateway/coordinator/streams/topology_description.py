"""The description of an application's topology: its nodes, their topics and stores, and what follows what
(KIP-1331).

A member pushes the description after a heartbeat has asked for it, and the log stores the description with
the topology epoch that it describes. A heartbeat asks while there is none for the group's topology epoch, at
first every 30 s, then each time after twice as long, at most an hour. It does not ask again for a description
that was refused. Source: Kafka's `StreamsGroupTopologyDescriptionManager`, `…Backoff` and `…Converter`.

Kafka hands descriptions to a plugin, which keeps them wherever it likes, and the group's record says which
one the plugin has. Here a record of Seqgate's own has the description, in the format of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from seqgate.gateway.coordinator.deadlines import moved
from seqgate.gateway.coordinator.rows import (
    BYTES,
    INT8,
    INT32,
    NULLABLE_STRING,
    STRING,
    Field,
    FieldReader,
    Row,
    Writer,
    array,
    structure,
)

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.streams.group import StreamsGroup

SOURCE: Final = 1
PROCESSOR: Final = 2
SINK: Final = 3
NO_EPOCH: Final = -1
"""The epoch of a description in a group that has none."""
FIRST_DELAY_MS: Final = 30_000
MAX_DELAY_MS: Final = 3_600_000


class Node(NamedTuple):
    """A node of the graph. Only a source has `source_topics`, a sink `sink_topic`, a processor `stores`."""

    name: str
    node_type: int
    source_topics: tuple[str, ...]
    """The topics that a source reads; none if they are found at run time."""
    sink_topic: str | None
    """The topic that a sink writes; None if each record chooses its topic."""
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class DescribedSubtopology(NamedTuple):
    subtopology_id: str
    nodes: tuple[Node, ...]


class GlobalStore(NamedTuple):
    """A store that every instance fills with the whole topic of the source."""

    source: Node
    processor: Node


class TopologyDescription(NamedTuple):
    subtopologies: tuple[DescribedSubtopology, ...]
    global_stores: tuple[GlobalStore, ...]

    @property
    def node_count(self) -> int:
        nodes = sum(len(found.nodes) for found in self.subtopologies)
        return nodes + 2 * len(self.global_stores)

    def encoded(self) -> bytes:
        out = Writer(is_compact=True)
        _DESCRIPTION.write(out, self)
        return out.written()


_NAMES: Final = array(STRING)
_NODE: Final = structure(
    Node,
    Field("name", STRING),
    Field("node_type", INT8),
    Field("source_topics", _NAMES),
    Field("sink_topic", NULLABLE_STRING),
    Field("stores", _NAMES),
    Field("successors", _NAMES),
)
_DESCRIPTION: Final = structure(
    TopologyDescription,
    Field(
        "subtopologies",
        array(structure(DescribedSubtopology, Field("subtopology_id", STRING), Field("nodes", array(_NODE)))),
    ),
    Field("global_stores", array(structure(GlobalStore, Field("source", _NODE), Field("processor", _NODE)))),
)


class StoredDescription(NamedTuple):
    """A description as the log and the memory hold it: in bytes, which take a tenth of the objects."""

    topology_epoch: int
    data: bytes

    def decoded(self) -> TopologyDescription:
        """Return the nodes. Raises struct.error, ValueError for data of another format."""
        found: TopologyDescription = _DESCRIPTION.read(FieldReader(self.data, is_compact=True))
        return found


DESCRIPTION: Final = Row(
    20_093, structure(StoredDescription, Field("topology_epoch", INT32), Field("data", BYTES)), "description"
)
"""A kind of record that Kafka does not have; Kafka skips a kind that it does not know."""


class Asking(msgspec.Struct):
    """When the coordinator asks for the description of a topology epoch again; not stored."""

    topology_epoch: int = NO_EPOCH
    delay_ms: int = 0
    again_ms: int = 0

    def ask(self, topology_epoch: int, now_ms: int) -> bool:
        """Return whether it is time to ask; if so, begin the time until the coordinator asks again."""
        if topology_epoch == self.topology_epoch and now_ms < self.again_ms:
            return False
        self.wait_longer(topology_epoch, now_ms)
        return True

    def wait_longer(self, topology_epoch: int, now_ms: int) -> None:
        """Wait twice as long from now, or the first delay for another topology epoch."""
        is_same = topology_epoch == self.topology_epoch
        self.delay_ms = min(2 * self.delay_ms, MAX_DELAY_MS) if is_same else FIRST_DELAY_MS
        self.topology_epoch, self.again_ms = topology_epoch, now_ms + self.delay_ms

    def clock_was_set(self, by_ms: int) -> None:
        self.again_ms = moved(self.again_ms, by_ms)


def current_description(group: StreamsGroup) -> TopologyDescription | None:
    """Return the description of the group's topology; None if there is none of this topology epoch."""
    stored, topology = group.description, group.topology
    if stored is None or topology is None or stored.topology_epoch != topology.epoch:
        return None
    return stored.decoded()


def is_wanted(group: StreamsGroup) -> bool:
    """Return whether the group lacks the description of its topology, and none was refused."""
    if group.topology is None:
        return False
    described = NO_EPOCH if group.description is None else group.description.topology_epoch
    return group.topology.epoch not in {described, group.value.failed_description_epoch}
