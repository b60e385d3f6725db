"""One share group (KIP-932): its members and their partitions; a partition may have several readers.

    group epoch        rises with every change of members, subscriptions or partitions
    assignment epoch   the group epoch for which the present targets were made
    member epoch       the assignment epoch whose target was last sent to the member

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
topic.
Source: Kafka's `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`,
`SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.coordinator.rows import (
    GROUP_KEY,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    PLACES,
    STRING,
    UUID,
    Field,
    GroupRows,
    Row,
    Tag,
    array,
    several,
    structure,
)


class ShareMemberValue(NamedTuple):
    """A member as it describes itself: its rack, client and subscribed topics."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]


class ShareMemberRecord(NamedTuple):
    """A member's description from this record on; None deletes the member."""

    group_id: str
    member_id: str
    value: ShareMemberValue | None


class ShareGroupEpochRecord(NamedTuple):
    """The group's epoch from this record on; None deletes the group."""

    group_id: str
    group_epoch: int | None


class ShareAssignmentEpochRecord(NamedTuple):
    """The group epoch for which the targets were made, and the time; None deletes the assignment epoch.

    The time is 0 in a record of an earlier release.
    """

    group_id: str
    assignment_epoch: int | None
    assigned_at_ms: int = 0


class ShareTargetRecord(NamedTuple):
    """The target of a member: the partitions that it shall read; None deletes the target."""

    group_id: str
    member_id: str
    places: frozenset[Place] | None


class ShareCurrentValue(NamedTuple):
    """The epoch and partitions last sent to a member."""

    member_epoch: int
    previous_member_epoch: int
    assigned: frozenset[Place]


class ShareCurrentRecord(NamedTuple):
    """The epoch and partitions of a member from this record on; None deletes epoch and partitions."""

    group_id: str
    member_id: str
    value: ShareCurrentValue | None


class BegunTopic(NamedTuple):
    """A topic with its begun partitions, in order."""

    topic_id: uuid.UUID
    name: str
    partitions: tuple[int, ...]


class ShareBegunRecord(NamedTuple):
    """All partitions that the group was ever assigned; None deletes the record when the group is deleted."""

    group_id: str
    topics: tuple[BegunTopic, ...] | None


ShareGroupRecord = (
    ShareMemberRecord
    | ShareGroupEpochRecord
    | ShareAssignmentEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | ShareBegunRecord
)


MEMBER, GROUP_EPOCH, ASSIGNMENT_EPOCH, TARGET, CURRENT, BEGUN = 10, 11, 12, 13, 14, 15
_STABLE: Final = 0
_NAMED: Final = array(structure(several, Field("topic_id", UUID), Field("name", STRING)))
_BEGUN: Final = array(
    structure(BegunTopic, Field("topic_id", UUID), Field("name", STRING), Field("partitions", array(INT32)))
)
ROWS: Final = GroupRows(
    of_group=(
        # instead of a hash of the topics, the assigned partitions show whether topics changed
        Row(
            GROUP_EPOCH,
            ShareGroupEpochRecord,
            [Field("group_epoch", INT32), Field("", INT64, 0)],
            key=GROUP_KEY,
        ),
        # Kafka also lists partitions that it is about to begin, and topics that it is about to forget
        Row(
            BEGUN,
            ShareBegunRecord,
            [Field("", _BEGUN, ()), Field("topics", _BEGUN), Field("", _NAMED, ())],
            key=GROUP_KEY,
        ),
        Row(
            ASSIGNMENT_EPOCH,
            ShareAssignmentEpochRecord,
            [Field("assignment_epoch", INT32), Tag(0, "assigned_at_ms", INT64, absent=0)],
            key=GROUP_KEY,
        ),
    ),
    of_members=(
        Row(
            MEMBER,
            ShareMemberRecord,
            structure(
                ShareMemberValue,
                Field("rack_id", NULLABLE_STRING),
                Field("client_id", STRING),
                Field("client_host", STRING),
                Field("subscribed_names", array(STRING)),
            ),
        ),
        Row(TARGET, ShareTargetRecord, [Field("places", PLACES)]),
        Row(
            CURRENT,
            ShareCurrentRecord,
            structure(
                ShareCurrentValue,
                Field("member_epoch", INT32),
                Field("previous_member_epoch", INT32),
                Field("", INT8, _STABLE),
                Field("assigned", PLACES),
            ),
        ),
    ),
)
"""The records of the group in `__consumer_offsets`, in Kafka's formats; all values have version 0."""


FIRST_EPOCH: Final = 1
"""The epoch of a group before its first member."""
NOWHERE: Final[frozenset[Place]] = frozenset()
NOBODY: Final = ShareMemberValue(None, "", "", ())
ASSIGNOR: Final = "simple"
"""Kafka's name of the one assignor of share groups."""


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member, its own description, and the partitions last sent to it."""

    member_id: str
    value: ShareMemberValue = NOBODY
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: frozenset[Place] = NOWHERE
    session_deadline_ms: int = NEVER

    def clock_was_set(self, by_ms: int) -> None:
        """Move the deadline by the change of the clock, so that the member keeps the time that it had left."""
        self.session_deadline_ms = moved(self.session_deadline_ms, by_ms)


@dataclass(slots=True)
class ShareGroup:
    """Members and epochs of a share group.

    Records change them, live and at replay; only session deadlines are not stored.
    """

    type: ClassVar = "share"
    """The word of ListGroups for a group of this protocol."""

    group_id: str
    group_epoch: int = FIRST_EPOCH
    assignment_epoch: int = FIRST_EPOCH
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    begun: frozenset[Place] = NOWHERE
    """The partitions that were ever assigned."""
    topic_names: dict[uuid.UUID, str] = field(default_factory=dict)
    """The names of the begun partitions' topics, as they were when the partitions were begun."""
    places_seen: frozenset[Place] | None = None
    """All partitions of the subscribed topics when the targets were made; None after a restart."""
    assigned_at_ms: int = 0
    """The time at which the targets were made; 0 when it is not known."""

    @property
    def state_text(self) -> str:
        """The word of ListGroups and ShareGroupDescribe for the state."""
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def generation(self) -> int:
        """The group epoch."""
        return self.group_epoch

    @property
    def protocol(self) -> tuple[str, str | None]:
        """The type of the members' protocol, and the assignor, None without members."""
        return self.type, ASSIGNOR if self.members else None

    def has_assigned(self, places: frozenset[Place]) -> bool:
        """Return whether `places` are the partitions that the coordinator saw last.

        If it has seen none since the replay, the targets show them, because each partition is in the target
        of some member.
        """
        if self.places_seen is None:
            self.places_seen = NOWHERE.union(*self.targets.values())
        return self.places_seen == places

    # --- records

    def replay(self, record: ShareGroupRecord, now_ms: int, session_timeout_ms: int) -> None:
        """Replay a record; it restarts its member's session."""
        if isinstance(record, ShareGroupEpochRecord):
            self.group_epoch = record.group_epoch or 0
        elif isinstance(record, ShareAssignmentEpochRecord):
            self.assignment_epoch = record.assignment_epoch or 0
            self.assigned_at_ms = record.assigned_at_ms
        elif isinstance(record, ShareBegunRecord):
            topics = record.topics or ()
            self.begun = frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
            self.topic_names = {topic.topic_id: topic.name for topic in topics}
        elif isinstance(record, ShareTargetRecord):
            if record.places is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.places
        elif record.value is None:
            if isinstance(record, ShareMemberRecord):
                self.members.pop(record.member_id, None)
        else:
            self._replay_member(record, now_ms + session_timeout_ms)

    def _replay_member(self, record: ShareMemberRecord | ShareCurrentRecord, deadline_ms: int) -> None:
        member = self.members.get(record.member_id)
        if member is None:
            member = self.members[record.member_id] = ShareMember(record.member_id)
        member.session_deadline_ms = deadline_ms
        value = record.value
        if isinstance(value, ShareMemberValue):
            member.value = value
        elif value is not None:
            member.member_epoch, member.previous_member_epoch, member.assigned = value

    def begun_record(self, places: Iterable[Place], names: dict[uuid.UUID, str]) -> ShareBegunRecord:
        """Return the record that these partitions, and no others, are begun; `names` has the names of new
        topics.
        """
        known = {**self.topic_names, **names}
        topics = (
            BegunTopic(topic_id, known[topic_id], tuple(partitions))
            for topic_id, partitions in by_topic(places).items()
        )
        return ShareBegunRecord(self.group_id, tuple(topics))

    def record_of(self, kind: int, member_id: str) -> ShareGroupRecord | None:
        """Return the record of a key as it would be written now; None when its member no longer exists."""
        if kind == GROUP_EPOCH:
            return ShareGroupEpochRecord(self.group_id, self.group_epoch)
        if kind == ASSIGNMENT_EPOCH:
            return ShareAssignmentEpochRecord(self.group_id, self.assignment_epoch, self.assigned_at_ms)
        if kind == BEGUN:
            return self.begun_record(self.begun, {})
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind == MEMBER:
            return ShareMemberRecord(self.group_id, member_id, member.value)
        if kind == TARGET:
            return ShareTargetRecord(self.group_id, member_id, self.targets.get(member_id, NOWHERE))
        current = ShareCurrentValue(member.member_epoch, member.previous_member_epoch, member.assigned)
        return ShareCurrentRecord(self.group_id, member_id, current)


Targets = dict[str, frozenset[Place]]


def assign(
    subscriptions: Mapping[str, frozenset[uuid.UUID]], places: Iterable[Place], current: Targets
) -> Targets:
    """Return the partitions of each member, from the topics that it subscribes to and the partitions that it
    has.
    """
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
            kept = {reader: current.get(reader, frozenset()) & set(wanted) for reader in readers}
            for reader, read in _share(readers, wanted, kept).items():
                found[reader] |= read
    return {member_id: frozenset(read) for member_id, read in found.items()}


def _share(
    readers: list[str], wanted: list[Place], kept: Mapping[str, Iterable[Place]]
) -> dict[str, set[Place]]:
    sharing = -(-len(readers) // len(wanted))
    read = {reader: set(kept[reader]) for reader in readers}

    def load(reader: str) -> int:
        return len(read[reader])

    for place in wanted:
        have = [reader for reader in readers if place in read[reader]]
        for reader in sorted(have, key=load)[sharing:]:
            read[reader].discard(place)
        lacking = [reader for reader in readers if place not in read[reader]]
        for reader in sorted(lacking, key=load)[: max(0, sharing - len(have))]:
            read[reader].add(place)
    while True:
        least, most = min(readers, key=load), max(readers, key=load)
        if load(most) - load(least) <= 1:
            return read
        moved = min(read[most] - read[least], key=wanted.index)
        read[most].discard(moved)
        read[least].add(moved)
