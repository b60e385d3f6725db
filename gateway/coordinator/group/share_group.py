"""One share group (KIP-932): its members and their partitions; a partition may have several readers.

`seqgate.gateway.coordinator.share` has the other half: which records of a partition are acquired and done.
Source: Kafka's `ShareGroup`, `ShareGroupMember`.

`ROWS` are the group's records in `__consumer_offsets`, in Kafka's formats. A null value deletes. A member's
state is always stable, and partitions are begun at once. Source: Kafka's ShareGroup*Key.json and *Value.json.

Assigns the partitions of a share group, where a partition may have several readers (the `simple` assignor,
KIP-932).

    sharing    every partition has as many readers, no more than are needed for each member to have one
    balance    no member has two partitions more than another
    keeping    a member keeps its partitions as far as the other two rules allow

When all members have one subscription, the rules hold over all topics together; otherwise they hold for each
topic. Source: Kafka's `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`,
`SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.epoch_group import (
    ASSIGNMENT_EPOCH,
    EMPTY,
    FIRST_EPOCH,
    NEVER_ASSIGNED,
    STABLE,
    AssignmentEpoch,
    EpochGroup,
    EpochMember,
    GroupRows,
)
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.coordinator.rows import (
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    PLACES,
    STRING,
    UUID,
    Field,
    Row,
    RowRecord,
    array,
    itself,
    several,
    structure,
)

NOWHERE: Final[frozenset[Place]] = frozenset()


class ShareMemberValue(NamedTuple):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]


class ShareCurrentValue(NamedTuple):
    """The epoch and partitions last sent to a member."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: frozenset[Place] = NOWHERE


class BegunTopic(NamedTuple):
    """A topic with its begun partitions, in order."""

    topic_id: uuid.UUID
    name: str
    partitions: tuple[int, ...]


_STABLE: Final = 0
_NAMED: Final = array(structure(several, Field("topic_id", UUID), Field("name", STRING)))
_BEGUN: Final = array(
    structure(BegunTopic, Field("topic_id", UUID), Field("name", STRING), Field("partitions", array(INT32)))
)
# instead of a hash of the topics, the assigned partitions show whether topics changed
GROUP_EPOCH: Final = Row(
    11, structure(itself, Field(itself, INT32), Field("", INT64, 0)), "group_epoch", empty=0
)
# Kafka also lists partitions that it is about to begin, and topics that it is about to forget
BEGUN: Final = Row(
    15, structure(itself, Field("", _BEGUN, ()), Field(itself, _BEGUN), Field("", _NAMED, ())), empty=()
)
ASSIGNMENT: Final = Row(12, ASSIGNMENT_EPOCH, "assignment", empty=AssignmentEpoch(0))
MEMBER: Final = Row(
    10,
    structure(
        ShareMemberValue,
        Field("rack_id", NULLABLE_STRING),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("subscribed_names", array(STRING)),
    ),
    "value",
    names=2,
)
TARGET: Final = Row(13, structure(itself, Field(itself, PLACES)), names=2)
CURRENT: Final = Row(
    14,
    structure(
        ShareCurrentValue,
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("", INT8, _STABLE),
        Field("assigned", PLACES),
    ),
    "current",
    names=2,
)
ROWS: Final = GroupRows((GROUP_EPOCH, BEGUN, ASSIGNMENT), MEMBER, TARGET, CURRENT)
"""The records of the group in `__consumer_offsets`, in Kafka's formats; all values have version 0."""


NOBODY: Final = ShareMemberValue(None, "", "", ())
NOTHING_SENT: Final = ShareCurrentValue()
ASSIGNOR: Final = "simple"
"""Kafka's name of the one assignor of share groups."""


@dataclass(slots=True, eq=False)
class ShareMember(EpochMember):
    """A member, its own description, and the partitions last sent to it."""

    member_id: str
    value: ShareMemberValue = NOBODY
    current: ShareCurrentValue = NOTHING_SENT
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER


@dataclass(slots=True)
class ShareGroup(EpochGroup[ShareMember, frozenset[Place]]):
    """A share group: records change it, live and at replay; only session deadlines are not stored."""

    type: ClassVar = "share"
    rows: ClassVar = ROWS
    new_member: ClassVar = ShareMember
    no_target: ClassVar = NOWHERE
    assignor: ClassVar = ASSIGNOR

    group_id: str
    group_epoch: int = FIRST_EPOCH
    assignment: AssignmentEpoch = NEVER_ASSIGNED
    members: dict[str, ShareMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    begun: frozenset[Place] = NOWHERE
    """The partitions that were ever assigned."""
    topic_names: dict[uuid.UUID, str] = field(default_factory=dict)
    """The names of the begun partitions' topics, as they were when the partitions were begun."""
    places_seen: frozenset[Place] | None = None
    """All partitions of the subscribed topics when the targets were made; None after a restart."""

    @property
    def state_text(self) -> str:
        """The word of ListGroups and ShareGroupDescribe for the state."""
        return STABLE if self.members else EMPTY

    def has_assigned(self, places: frozenset[Place]) -> bool:
        """Return whether `places` are the partitions that the coordinator saw last. If it has seen none since
        the replay, the targets show them, because each partition is in the target of some member.
        """
        if self.places_seen is None:
            self.places_seen = NOWHERE.union(*self.targets.values())
        return self.places_seen == places

    # --- records

    def take(self, row: Row, value: Any) -> None:
        if row is not BEGUN:
            EpochGroup.take(self, row, value)
            return
        self.begun = frozenset((topic.topic_id, index) for topic in value for index in topic.partitions)
        self.topic_names = {topic.topic_id: topic.name for topic in value}

    def stored(self, row: Row) -> Any:
        """Return the value of a record of the group as it would be written now."""
        return self._begun_topics(self.begun, {}) if row is BEGUN else EpochGroup.stored(self, row)

    def begun_record(self, places: Iterable[Place], names: Mapping[uuid.UUID, str]) -> RowRecord:
        """Return the record that just these partitions are begun; `names` has the names of new topics."""
        return BEGUN.of(self.group_id, self._begun_topics(places, names))

    def _begun_topics(
        self, places: Iterable[Place], names: Mapping[uuid.UUID, str]
    ) -> tuple[BegunTopic, ...]:
        known = {**self.topic_names, **names}
        topics = by_topic(places).items()
        return tuple(BegunTopic(topic_id, known[topic_id], tuple(some)) for topic_id, some in topics)


Targets = dict[str, frozenset[Place]]


def assign(
    subscriptions: Mapping[str, frozenset[uuid.UUID]], places: Iterable[Place], current: Targets
) -> Targets:
    """Return each member's partitions, from its subscribed topics and the partitions that it has."""
    found: dict[str, set[Place]] = {member_id: set() for member_id in subscriptions}
    pools: dict[uuid.UUID | None, list[Place]] = {}
    all_alike = len(set(subscriptions.values())) <= 1
    for place in sorted(places, key=lambda place: (place[0].bytes, place[1])):
        pools.setdefault(None if all_alike else place[0], []).append(place)
    for pool in pools.values():
        topics = {topic_id for topic_id, _ in pool}
        readers = sorted(member_id for member_id, asked in subscriptions.items() if asked & topics)
        wanted = [place for place in pool if readers and place[0] in subscriptions[readers[0]]]
        if wanted:
            known = set(wanted)
            kept = [current.get(reader, NOWHERE) & known for reader in readers]
            for reader, read in zip(readers, _share(wanted, kept), strict=True):
                found[reader] |= read
    return {member_id: frozenset(read) for member_id, read in found.items()}


def _share(wanted: list[Place], kept: list[frozenset[Place]]) -> list[set[Place]]:
    """Return the partitions of each reader, from those that each reader keeps; readers are numbers here."""
    sharing = -(-len(kept) // len(wanted))
    read = [set(places) for places in kept]
    holders: dict[Place, list[int]] = {place: [] for place in wanted}
    for reader, places in enumerate(kept):
        for place in places:
            holders[place].append(reader)
    loads = [(len(places), reader) for reader, places in enumerate(read)]
    heapq.heapify(loads)
    for place in wanted:
        have = holders[place]
        if len(have) > sharing:
            for reader in sorted(have, key=lambda reader: len(read[reader]))[sharing:]:
                read[reader].discard(place)
                heapq.heappush(loads, (len(read[reader]), reader))
        elif len(have) < sharing:
            _give(place, sharing - len(have), read, loads)
    _even_out(wanted, read)
    return read


def _give(place: Place, times: int, read: list[set[Place]], loads: list[tuple[int, int]]) -> None:
    """Give a partition to the least loaded readers without it. The heap has an entry (load, reader) for each
    reader, and outdated ones.
    """
    passed = []
    while times:
        load, reader = heapq.heappop(loads)
        if load != len(read[reader]):
            continue
        if place not in read[reader]:
            read[reader].add(place)
            times -= 1
        passed.append((len(read[reader]), reader))
    for entry in passed:
        heapq.heappush(loads, entry)


def _even_out(wanted: list[Place], read: list[set[Place]]) -> None:
    """Move partitions, the first ones first, until no reader has two more than another.

    A reader that gives never takes, and one that takes never gives: its load stays within one of the highest
    or the lowest. So each heap needs new loads only of its own side.
    """
    number = {place: at for at, place in enumerate(wanted)}
    least = [(len(places), reader) for reader, places in enumerate(read)]
    most = [(-load, reader) for load, reader in least]
    heapq.heapify(least)
    heapq.heapify(most)
    ordered: dict[int, list[Place]] = {}
    while -most[0][0] - least[0][0] > 1:
        (high, giver), (low, taker) = most[0], least[0]
        if giver not in ordered:
            ordered[giver] = sorted(read[giver], key=number.__getitem__)
        at = next(at for at, place in enumerate(ordered[giver]) if place not in read[taker])
        moved = ordered[giver].pop(at)
        read[giver].discard(moved)
        read[taker].add(moved)
        heapq.heapreplace(most, (high + 1, giver))
        heapq.heapreplace(least, (low + 1, taker))
