"""Who gets which partition in a consumer group: the assignors, the bytes of classic members, and the topics
that regular expressions match.

**Assignors** of the consumer protocol run here and decide which member gets which partition.

    uniform   every member gets the same number of partitions (±1), and as few partitions as possible move
    range     every subscriber of a topic gets a run of neighbouring partitions, in the order of the members

Source: Kafka's `UniformAssignor`, `RangeAssignor`, KIP-848.

**Bytes of classic members**, of protocol type `consumer`. Their assignment is in a SyncGroup:

    int16 version | topics: int32 count, each an int16 length and a name, int32 count, int32 partitions |
    user data: int32 length (-1: null) and bytes | …

Their subscription is the metadata of a JoinGroup:

    int16 version | topics: int32 count, each an int16 length and a name | user data: int32 length (-1: null)
    and bytes | v1: owned partitions: int32 count, each a topic and int32 partitions | v2: int32 generation_id
    | v3: rack_id?

Later versions append fields. Source: Kafka's ConsumerProtocolAssignment.json,
ConsumerProtocolSubscription.json.

**Regular expressions** (`RegexTopics`). The member whose request resolves an expression decides by its rights
which topics it matches: a topic that the member may not describe does not match. A new expression is resolved
by the member that brings it. The group forgets an expression with its last member. All expressions are
resolved again when topics change and when rights change. Source: Kafka's
`GroupMetadataManager.maybeUpdateRegularExpressions`, `refreshRegularExpressions`,
`maybeDeleteResolvedRegularExpressions`.
"""

from __future__ import annotations

import heapq
import struct
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.rows import (
    INT16,
    INT32,
    STRING,
    Field,
    FieldReader,
    Writer,
    array,
    several,
    structure,
)

Assignment = dict[str, frozenset[Place]]


class Subscriber(NamedTuple):
    """A member as the assignors see it; `order` sorts the members (instance id or member id)."""

    order: str
    topics: frozenset[uuid.UUID]
    current: frozenset[Place]
    is_static: bool = False


Assignor = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], Assignment]
"""A function of the members and the number of partitions of each topic."""


def assign_range(members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> Assignment:
    """Assign neighbouring partitions together; the first members get one more if there is a remainder. Static
    members come first.
    """
    found: dict[str, set[Place]] = {member_id: set() for member_id in members}
    ordered = sorted(members, key=lambda name: (not members[name].is_static, members[name].order))
    for topic_id, count in topics.items():
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + share + (number < extra)
            found[member_id].update((topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(places) for member_id, places in found.items()}


def assign_uniform(members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> Assignment:
    """Assign evenly: a member keeps its partitions unless other members would then get too few."""
    if not members:
        return {}
    balance = _Balance(members, topics)
    balance.keep_current()
    balance.hand_out()
    balance.even_out()
    return {member_id: frozenset(places) for member_id, places in balance.places.items()}


class _Balance:
    def __init__(self, members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> None:
        self._members = members
        self._topics = topics
        self._order = {
            member_id: number
            for number, member_id in enumerate(sorted(members, key=lambda name: members[name].order))
        }
        self._subscribers = {
            topic_id: [name for name, member in members.items() if topic_id in member.topics]
            for topic_id in topics
        }
        self.places: dict[str, set[Place]] = {member_id: set() for member_id in members}
        self._taken: set[Place] = set()

    def _load(self, member_id: str) -> tuple[int, int]:
        return len(self.places[member_id]), self._order[member_id]

    def keep_current(self) -> None:
        """Start with the partitions that members have and want; at most a fair share if all want alike."""
        alike = len({member.topics for member in self._members.values()}) == 1
        total = sum(self._topics[topic_id] for topic_id, names in self._subscribers.items() if names)
        share, extra = divmod(total, len(self._members))
        for member_id in self._order:
            member = self._members[member_id]
            kept = sorted(
                place
                for place in member.current
                if place[0] in member.topics
                and place[1] < self._topics.get(place[0], 0)
                and place not in self._taken
            )
            if alike:
                wanted = share
                if extra and len(kept) > share:
                    wanted, extra = share + 1, extra - 1
                kept = kept[:wanted]
            self.places[member_id].update(kept)
            self._taken.update(kept)

    def hand_out(self) -> None:
        """Give each free partition to its subscriber with the fewest; topics of few subscribers first."""
        for topic_id in sorted(self._topics, key=lambda topic: (len(self._subscribers[topic]), topic)):
            free = [
                (topic_id, partition)
                for partition in range(self._topics[topic_id])
                if (topic_id, partition) not in self._taken
            ]
            heap = [(*self._load(name), name) for name in self._subscribers[topic_id]]
            heapq.heapify(heap)
            for place in free if heap else ():
                load, order, member_id = heap[0]
                self.places[member_id].add(place)
                self._taken.add(place)
                heapq.heapreplace(heap, (load + 1, order, member_id))

    def even_out(self) -> None:
        """Move single partitions to a member with at least two fewer, until there is no such pair."""
        takers: dict[uuid.UUID, str] = {}
        moved = True
        while moved:
            moved, fewest = False, min(map(len, self.places.values()))
            for giver in sorted(self.places, key=self._load, reverse=True):
                if len(self.places[giver]) - fewest < 2:
                    break
                if self._give(giver, takers):
                    moved, fewest = True, min(map(len, self.places.values()))

    def _give(self, giver: str, takers: dict[uuid.UUID, str]) -> bool:
        """Move partitions of a member to members with at least two fewer; return whether any moved. `takers`
        has the least loaded subscribers of topics until a partition moves.
        """
        moved = False
        for place in sorted(self.places[giver]):
            taker = takers.get(place[0])
            if taker is None:
                taker = takers[place[0]] = min(self._subscribers[place[0]], key=self._load)
            if len(self.places[giver]) - len(self.places[taker]) >= 2:
                self.places[giver].discard(place)
                self.places[taker].add(place)
                takers.clear()
                moved = True
        return moved


CONSUMER_PROTOCOL: Final = "consumer"
FIRST_WITH_OWNED: Final = 1
FIRST_WITH_GENERATION: Final = 2
FIRST_WITH_RACK: Final = 3
_LAST_KNOWN: Final = 3
_NULL: Final = -1
_NAMES: Final = array(STRING)
_TOPICS: Final = array(structure(several, Field(0, STRING), Field(1, array(INT32))))


def _after_version(data: bytes) -> FieldReader:
    """Return a reader of the fields behind the version, which may be a later one than is known. Raises
    struct.error, ValueError.
    """
    reader = FieldReader(data)
    reader.begin(newest=2**15 - 1, first_compact=2**15)
    return reader


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions by topic, both in the assignment's order; None when bytes are malformed."""
    assigned: dict[str, list[int]] = {}
    try:
        reader = _after_version(assignment)
        for name, partitions in _TOPICS.read(reader):
            if min(partitions, default=0) < 0:
                return None
            assigned.setdefault(name, []).extend(partitions)
        user_data_bytes = INT32.read(reader)
        if user_data_bytes != _NULL:
            reader.cut(user_data_bytes)
    except (struct.error, ValueError):
        return None
    return assigned


def encode_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode an assignment without user data, as a leader does for a subscription of this version."""
    out = Writer(is_compact=False)
    INT16.write(out, max(0, min(version, _LAST_KNOWN)))
    _TOPICS.write(out, [(topic, sorted(indexes)) for topic, indexes in sorted(partitions.items())])
    INT32.write(out, _NULL)
    return out.written()


class MemberSubscription(NamedTuple):
    """A whole subscription; `owned` has the (topic, partition) that the member has not revoked."""

    version: int
    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topic names, or None when the bytes are malformed."""
    try:
        return frozenset(_NAMES.read(_after_version(metadata)))
    except (struct.error, ValueError):
        return None


def read_subscription(metadata: bytes) -> MemberSubscription | None:
    """Return the whole subscription, or None when the bytes are malformed."""
    try:
        reader = _after_version(metadata)
        version, topics = reader.version, frozenset(_NAMES.read(reader))
        reader.cut(max(INT32.read(reader), 0))
        owned = _TOPICS.read(reader) if version >= FIRST_WITH_OWNED else ()
        if version >= FIRST_WITH_GENERATION:
            INT32.read(reader)
        rack_bytes = INT16.read(reader) if version >= FIRST_WITH_RACK else _NULL
        rack_id = None if rack_bytes < 0 else str(reader.cut(rack_bytes), "utf-8")
    except (struct.error, ValueError):
        return None
    places = frozenset((topic, index) for topic, indexes in owned for index in indexes)
    return MemberSubscription(version, topics, places, rack_id)


REFRESH_INTERVAL_MS: Final = 10_000
"""Shortest time (ms) between resolutions because of changed rights; further changes wait until then."""


class Sight(NamedTuple):
    """The topics that the sender of a request may describe."""

    generation: int
    """A number that changes with every change of rights."""
    may_describe: Callable[[str], bool] | None
    """Returns whether the sender may describe the topic of this name; None if it may describe every topic."""

    def visible(self, names: Collection[str]) -> Collection[str]:
        may_describe = self.may_describe
        return names if may_describe is None else [name for name in names if may_describe(name)]


EVERYTHING: Final = Sight(0, None)
"""The sight of every client where there is no authorizer."""


class RegexTopics(msgspec.Struct):
    """The expressions of one group, and the names that each matched when they were last resolved."""

    _matching: dict[str, Collection[str]] = msgspec.field(default_factory=dict)
    _generation: int = 0
    _resolved_at_ms: int = 0

    def is_outdated(self, sight: Sight, now_ms: int) -> bool:
        """Return whether rights have changed since the last resolution, and the interval is over."""
        return (
            sight.generation != self._generation
            and bool(self._matching)
            and not 0 <= now_ms - self._resolved_at_ms < REFRESH_INTERVAL_MS
        )

    def keep(self, regexes: Container[str | None]) -> None:
        """Forget all expressions except these. A member that brings a forgotten one again resolves it."""
        self._matching = {regex: names for regex, names in self._matching.items() if regex in regexes}

    def resolve(
        self,
        regexes: Collection[str],
        match: Callable[[str], Collection[str]],
        sight: Sight,
        now_ms: int,
        *,
        afresh: bool,
    ) -> Mapping[str, Collection[str]]:
        """Return the names that each expression matches; resolve all `afresh`, otherwise the new ones.
        `match` returns the names of the existing topics that match an expression.
        """
        known = {} if afresh else self._matching
        if not known:
            self._generation, self._resolved_at_ms = sight.generation, now_ms
        if afresh or known.keys() != set(regexes):
            self._matching = {
                regex: known[regex] if regex in known else sight.visible(match(regex)) for regex in regexes
            }
        return self._matching


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"
