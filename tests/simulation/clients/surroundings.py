"""The things that all simulated clients of a run share: the addresses of gateways, the time, the topics,
groups and names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.error_codes import CLUSTER_FAULTS, FAULTS
from tests.simulation.history import History, TopicPartition, Unexpected

CLOCK_TOLERANCE_MS = 50


@dataclass
class Topic:
    """A created topic; `partitions` grows when the administrator adds some."""

    name: str
    topic_id: str
    partitions: int


@dataclass
class IdRequests:
    """The InitProducerId requests for one transactional id.

    Each request may fence the current producer; an unanswered one may do so at any time.
    """

    sent: int = 0
    answered: int = 0


@dataclass(frozen=True)
class ClusterOfGateways:
    """What clients of several gateways know from the start."""

    addresses: tuple[tuple[str, int], ...]
    """The bootstrap addresses. A gateway need not run there all the time."""
    clocks_differ: Callable[[], bool]
    """Whether two gateways show different times of day. A deadline may then pass when a coordinator moves."""
    drift: float
    """The share by which a gateway's clock may run too fast or too slow."""
    node_id_at: Callable[[tuple[str, int]], int | None]
    """The node id of the gateway that serves at an address."""
    reads_elsewhere: bool = False
    """Whether gateways serve uploaded records of partitions that others lead."""


@dataclass
class Surroundings:
    """The shared state of all clients.

    After `end_at` (loop time) clients begin nothing new. `wall_ms` is the gateway's wall clock, for
    timestamps.
    """

    host: str
    port: int
    history: History
    wall_ms: Callable[[], int]
    end_at: float
    zstd: bool = False
    """Whether producers use zstd; then consumers need Fetch v10 or later."""
    padding_bytes: tuple[int, ...] = (0,)
    """The choices for the zeros that producers add to the records of a batch."""
    flips: float = 0.0
    """The chance that a byte of the first batch of a producer epoch is flipped on its way."""
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    """All groups for which a client may commit offsets."""
    names: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """The producer names, and the partitions to which each writes."""
    _id_requests: dict[str, IdRequests] = field(default_factory=dict)
    moved_too: list[TopicPartition] = field(default_factory=list)
    """Partitions that clients neither read nor write themselves, and that may move between gateways, too."""
    others_are_done: bool = False
    """Whether all clients have come to rest but those of share groups, which take care of the last records."""
    cluster: ClusterOfGateways | None = None
    """The cluster, where several gateways serve; otherwise one gateway serves at `host` and `port`."""
    clock_jumps: int = 0
    """The number of clock jumps of the gateway; after a jump any deadline may have passed."""
    _clock_lead_ms: int | None = None
    _group_offsets: dict[str, int] = field(default_factory=dict)
    _numbers: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def faults(self) -> frozenset[ErrorCode]:
        """The errors that any valid request may get."""
        return FAULTS if self.cluster is None else CLUSTER_FAULTS

    def least_ms(self, timeout_ms: int) -> float:
        """Return the time after which a timeout may pass at the earliest."""
        return timeout_ms if self.cluster is None else timeout_ms * (1 - self.cluster.drift)

    @property
    def clocks_differ(self) -> bool:
        """Whether a deadline may pass because another gateway, with another time of day, looks at it."""
        return self.cluster is not None and self.cluster.clocks_differ()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def at_ms(self) -> int:
        """Return the loop's time in milliseconds, for events."""
        at_ms = round(self.now() * 1000)
        lead_ms = self.wall_ms() - at_ms
        if self._clock_lead_ms is None or abs(lead_ms - self._clock_lead_ms) > CLOCK_TOLERANCE_MS:
            self.clock_jumps += 1
            self._clock_lead_ms = lead_ms
        return at_ms

    def id_requests(self, transactional_id: str) -> IdRequests:
        return self._id_requests.setdefault(transactional_id, IdRequests())

    def note_group(self, group: str) -> None:
        if group not in self.groups:
            self.groups.append(group)

    def next_group_offset(self, group: str) -> int:
        """Return an offset that no client has committed for this group yet."""
        self._group_offsets[group] = self._group_offsets.get(group, -1) + 1
        return self._group_offsets[group]

    @property
    def ending(self) -> bool:
        return self.now() >= self.end_at

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that clients know of, in a fixed order."""
        return [
            TopicPartition(topic.name, partition)
            for topic in self.topics.values()
            for partition in range(topic.partitions)
        ]

    def number_of(self, place: TopicPartition) -> int:
        """Return a number for record names that is unique among the partitions of all topics."""
        return self._numbers.setdefault(place, len(self._numbers))

    def unexpected(self, client: str, sentence: str) -> None:
        self.history.add(Unexpected(self.at_ms(), client, sentence))

    async def pause(self, random: Random, mean_s: float) -> None:
        """Pause for a random time, at most ten times the mean."""
        await asyncio.sleep(min(random.expovariate(1 / mean_s), 10 * mean_s))
