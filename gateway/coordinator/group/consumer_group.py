"""One group of the consumer protocol (KIP-848): the coordinator assigns, each member follows by its
heartbeats.

    group epoch        rises with every change of members or subscriptions
    assignment epoch   the group epoch for which the present target assignment was made
    member epoch       the assignment epoch whose target the member has begun to follow

    group state   when
    Empty         no members
    Assigning     the target assignment is older than the group epoch
    Reconciling   some member does not have its target yet
    Stable        every member has its target

A partition is assigned to a member only after its last owner has confirmed that it revoked the partition.
Source: Kafka's `ConsumerGroup`, `ConsumerGroupMember`, `CurrentAssignmentBuilder`.

The records of groups of the consumer protocol (KIP-848) in `__consumer_offsets`, in Kafka's formats.

    key (int16 kind, then int16-length strings)     value (int16 version 0, compact fields, tags)
    3 | group                                       int32 group_epoch
    5 | group | member                              instance_id? | rack_id? | client_id | client_host |
                                                    names[] | regex? | int32 rebalance_timeout | assignor? |
                                                    tag 0: int8 1, int32 session_timeout, protocols[name,
                                                    metadata]
    6 | group                                       int32 assignment_epoch | tag 0: int64 assigned_at_ms
    7 | group | member                              target: topics[topic_id, int32 partitions[]]
    8 | group | member                              int32 member_epoch | int32 previous_epoch | int8 state |
                                                    assigned topics[] | topics[] to be revoked, each with
                                                    tag 0: int32 assignment_epochs[], one for each partition

A null value deletes. Source: Kafka's ConsumerGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    DEFAULT_ASSIGNOR,
    RegexTopics,
)
from seqgate.gateway.coordinator.group.record import (
    NO_TAGS,
    VERSION_0,
    CompactReader,
    assigned_at_tag,
    compact_int32s,
    compact_places,
    compact_strings,
    key_of,
    nullable_compact_string,
)
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.protocol.primitives import compact_string, unsigned_varint

_INT8: Final = Struct(">b")
_INT32: Final = Struct(">i")
_ONLY_VERSION: Final = 0
_CLASSIC_TAG: Final = 0
_ASSIGNMENT_EPOCHS_TAG: Final = 0
_PRESENT: Final = b"\1"
GROUP_EPOCH, MEMBER, ASSIGNMENT_EPOCH, TARGET, CURRENT = 3, 5, 6, 7, 8
KINDS: Final = frozenset((GROUP_EPOCH, MEMBER, ASSIGNMENT_EPOCH, TARGET, CURRENT))


class GroupEpochRecord(NamedTuple):
    """The group's epoch from this record on; None deletes the group."""

    group_id: str
    group_epoch: int | None


class ClassicMember(NamedTuple):
    """The data of a member that speaks the classic protocol; `protocols` are (name, metadata)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    """A member's own description. `rebalance_timeout_ms` is -1 when the member never sent one."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None = None


class MemberRecord(NamedTuple):
    """A member's description from this record on; None deletes the member."""

    group_id: str
    member_id: str
    value: MemberValue | None


class AssignmentEpochRecord(NamedTuple):
    """The group epoch for which the target assignment was made, and the time; None deletes the assignment
    epoch.

    The time is 0 in a record of an earlier release.
    """

    group_id: str
    assignment_epoch: int | None
    assigned_at_ms: int = 0


class TargetRecord(NamedTuple):
    """The target of a member: the partitions that it shall have; None deletes the target."""

    group_id: str
    member_id: str
    places: frozenset[Place] | None


class MemberState(enum.IntEnum):
    """The step of a member towards its target; the numbers are Kafka's."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it gets others."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked."""


class CurrentValue(NamedTuple):
    """The partitions that a member has, and those that it must revoke."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: frozenset[Place]
    pending_revocation: frozenset[Place]
    assignment_epochs: Mapping[Place, int]
    """The group epoch at which the member was assigned each of these partitions (KIP-1251)."""


class CurrentRecord(NamedTuple):
    """The epoch and partitions of a member from this record on; None deletes epoch and partitions."""

    group_id: str
    member_id: str
    value: CurrentValue | None


ConsumerRecord = GroupEpochRecord | MemberRecord | AssignmentEpochRecord | TargetRecord | CurrentRecord


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError if a string of the record is too long."""
    try:
        if isinstance(record, GroupEpochRecord):
            return key_of(GROUP_EPOCH, record.group_id), _epoch_value(record.group_epoch)
        if isinstance(record, AssignmentEpochRecord):
            epoch = record.assignment_epoch
            value = None if epoch is None else _assignment_value(epoch, record.assigned_at_ms)
            return key_of(ASSIGNMENT_EPOCH, record.group_id), value
        if isinstance(record, MemberRecord):
            member = None if record.value is None else _member_value(record.value)
            return key_of(MEMBER, record.group_id, record.member_id), member
        if isinstance(record, TargetRecord):
            target = None if record.places is None else VERSION_0 + compact_places(record.places) + NO_TAGS
            return key_of(TARGET, record.group_id, record.member_id), target
        current = None if record.value is None else _current_value(record.value)
        return key_of(CURRENT, record.group_id, record.member_id), current
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error


def decode(kind: int, names: tuple[str, ...], value: bytes | None) -> ConsumerRecord:
    """Return the record of one kind of key with its group and member. Raises ValueError."""
    reader = None if value is None else CompactReader(value)
    try:
        if reader is not None:
            reader.version(_ONLY_VERSION)
        if kind == GROUP_EPOCH:
            return GroupEpochRecord(names[0], None if reader is None else reader.int32())
        if kind == ASSIGNMENT_EPOCH:
            if reader is None:
                return AssignmentEpochRecord(names[0], None)
            return AssignmentEpochRecord(names[0], reader.int32(), reader.assigned_at_ms())
        group_id, member_id = names
        if kind == MEMBER:
            return MemberRecord(group_id, member_id, None if reader is None else _read_member(reader))
        if kind == TARGET:
            return TargetRecord(group_id, member_id, None if reader is None else reader.places())
        return CurrentRecord(group_id, member_id, None if reader is None else _read_current(reader))
    except (struct.error, MalformedRequest, ValueError) as error:
        raise ValueError(f"a record of kind {kind} can't be read: {error}") from error


def _epoch_value(epoch: int | None) -> bytes | None:
    return None if epoch is None else VERSION_0 + _INT32.pack(epoch) + NO_TAGS


def _assignment_value(epoch: int, assigned_at_ms: int) -> bytes:
    return VERSION_0 + _INT32.pack(epoch) + assigned_at_tag(assigned_at_ms)


def _member_value(value: MemberValue) -> bytes:
    return b"".join(
        (
            VERSION_0,
            nullable_compact_string(value.instance_id),
            nullable_compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_strings(value.subscribed_names),
            nullable_compact_string(value.subscribed_regex),
            _INT32.pack(value.rebalance_timeout_ms),
            nullable_compact_string(value.server_assignor),
            NO_TAGS if value.classic is None else _classic_member(value.classic),
        )
    )


def _compact_bytes(raw: bytes) -> bytes:
    return unsigned_varint(len(raw) + 1) + raw


def _classic_member(classic: ClassicMember) -> bytes:
    """Encode the one tagged field of a member."""
    pieces = [_PRESENT, _INT32.pack(classic.session_timeout_ms), unsigned_varint(len(classic.protocols) + 1)]
    for name, metadata in classic.protocols:
        pieces += (compact_string(name), _compact_bytes(metadata), NO_TAGS)
    raw = b"".join(pieces) + NO_TAGS
    return unsigned_varint(1) + unsigned_varint(_CLASSIC_TAG) + unsigned_varint(len(raw)) + raw


def _current_value(value: CurrentValue) -> bytes:
    head = _INT32.pack(value.member_epoch) + _INT32.pack(value.previous_member_epoch)
    epochs = value.assignment_epochs
    places = _places_with_epochs(value.assigned, epochs) + _places_with_epochs(
        value.pending_revocation, epochs
    )
    return VERSION_0 + head + _INT8.pack(value.state) + places + NO_TAGS


def _places_with_epochs(places: Iterable[Place], epochs: Mapping[Place, int]) -> bytes:
    """Encode a list of topic ids, each with its partitions, and in a tag with their assignment epochs."""
    topics = by_topic(places)
    pieces = [unsigned_varint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        raw = compact_int32s(epochs[topic_id, partition] for partition in partitions)
        tag = unsigned_varint(1) + unsigned_varint(_ASSIGNMENT_EPOCHS_TAG) + unsigned_varint(len(raw))
        pieces += (topic_id.bytes, compact_int32s(partitions), tag, raw)
    return b"".join(pieces)


def _read_member(reader: CompactReader) -> MemberValue:
    return MemberValue(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.strings(),
        reader.nullable_string(),
        reader.int32(),
        reader.nullable_string(),
        _read_classic_member(reader),
    )


def _read_classic_member(reader: CompactReader) -> ClassicMember | None:
    raw = reader.tagged_field(_CLASSIC_TAG)
    if raw is None or raw.int8() < 0:
        return None
    session_timeout_ms = raw.int32()
    protocols = []
    for _ in range(raw.count()):
        protocols.append((raw.string(), raw.octets()))
        raw.skip_tags()
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_current(reader: CompactReader) -> CurrentValue:
    member_epoch, previous_member_epoch, state = reader.int32(), reader.int32(), MemberState(reader.int8())
    epochs: dict[Place, int] = {}
    assigned = _read_places(reader, member_epoch, epochs)
    pending_revocation = _read_places(reader, member_epoch, epochs)
    return CurrentValue(member_epoch, previous_member_epoch, state, assigned, pending_revocation, epochs)


def _read_places(reader: CompactReader, member_epoch: int, epochs: dict[Place, int]) -> frozenset[Place]:
    """Read partitions, and note their assignment epochs.

    A record of an earlier release, or one whose numbers don't match, has the member epoch for all partitions.
    """
    found: set[Place] = set()
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        places = [(topic_id, partition) for partition in reader.int32s()]
        tag = reader.tagged_field(_ASSIGNMENT_EPOCHS_TAG)
        stored = None if tag is None else tag.nullable_int32s()
        if stored is None or len(stored) != len(places):
            stored = [max(member_epoch, 0)] * len(places)
        found.update(places)
        epochs.update(zip(places, stored, strict=True))
    return frozenset(found)


NOWHERE: Final[frozenset[Place]] = frozenset()
FIRST_GROUP_EPOCH: Final = 1
"""The epoch of a group before its first member."""
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that is away and may return."""


class ConsumerGroupState(enum.Enum):
    """The states of a consumer group; the values are the names that ListGroups and ConsumerGroupDescribe
    report.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member, its subscription and its partitions. Timeouts and deadlines in ms."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: frozenset[Place] = NOWHERE
    pending_revocation: frozenset[Place] = NOWHERE
    assignment_epochs: Mapping[Place, int] = field(default_factory=dict)
    """The group epoch at which the member was assigned each partition that it holds (see `may_commit`)."""
    classic: ClassicMember | None = None
    """The member's classic protocol data while it speaks the classic protocol (see `classic_members`); else
    None.
    """
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER
    join_deadline_ms: int = NEVER
    """The deadline for a classic member to join again."""
    sync_deadline_ms: int = NEVER
    """The deadline for a classic member that joined to sync."""

    @property
    def holds(self) -> frozenset[Place]:
        """The partitions that no other member may have yet."""
        return self.assigned | self.pending_revocation

    def may_commit(self, member_epoch: int, places: Iterable[Place | None]) -> bool:
        """Return whether an offset commit at a member epoch may be stored for all these partitions
        (KIP-1251).

        The member's own epoch may commit any partition. An older one, which the member sent before it learned
        of the new one, may commit partitions that the member has held since that epoch or earlier. None
        stands for a partition of a topic that no longer exists.
        """
        if member_epoch >= self.member_epoch:
            return member_epoch == self.member_epoch
        epochs = self.assignment_epochs
        return all(
            place is not None and place in epochs and epochs[place] <= member_epoch for place in places
        )

    @property
    def deadline_ms(self) -> int:
        """The time at which the member is removed, unless before it sends a heartbeat, revokes partitions,
        joins or syncs.
        """
        return min(
            self.session_deadline_ms,
            self.revocation_deadline_ms,
            self.join_deadline_ms,
            self.sync_deadline_ms,
        )

    def clock_was_set(self, by_ms: int) -> None:
        """Move every deadline by the change of the clock, so that the member keeps the time that it had left."""
        self.session_deadline_ms = moved(self.session_deadline_ms, by_ms)
        self.revocation_deadline_ms = moved(self.revocation_deadline_ms, by_ms)
        self.join_deadline_ms = moved(self.join_deadline_ms, by_ms)
        self.sync_deadline_ms = moved(self.sync_deadline_ms, by_ms)

    def value(self) -> MemberValue:
        """Return the member's description as its record stores it."""
        return MemberValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.subscribed_names,
            self.subscribed_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def set_revocation_deadline(self, now_ms: int) -> None:
        """Give a member that must revoke partitions its rebalance timeout from now on.

        A member that need not revoke any has no deadline.
        """
        has_to = self.state is MemberState.UNREVOKED_PARTITIONS and self.classic is None
        self.revocation_deadline_ms = now_ms + max(0, self.rebalance_timeout_ms) if has_to else NEVER

    def current(self) -> CurrentValue:
        """Return the member's epoch and partitions as its record stores them."""
        return CurrentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
            self.assignment_epochs,
        )


@dataclass(slots=True)
class ConsumerGroup:
    """Members and epochs of a group. `consumer_heartbeat` changes them live, `replay` from the log's records."""

    type: ClassVar = "consumer"
    """The word of ListGroups for a group of this protocol."""

    group_id: str
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    topics_seen: dict[str, tuple[uuid.UUID, int]] | None = None
    """The subscribed topics of the last target: name to (topic id, partitions); None after a restart."""
    regexes: RegexTopics = field(default_factory=RegexTopics)
    topics_changed: bool = True
    """Whether topics were created, deleted or enlarged since the last target was made."""
    assigned_at_ms: int = 0
    """The time at which the target assignment was made; 0 when it is not known."""

    @property
    def state(self) -> ConsumerGroupState:
        """The state by the table above."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.is_behind:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_reconciled(member) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_text(self) -> str:
        """The word of ListGroups for the state."""
        return self.state.value

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
        """The type of the members' protocol, and the assignor that most members prefer, None without members."""
        return CONSUMER_PROTOCOL, self.preferred_assignor if self.members else None

    @property
    def is_behind(self) -> bool:
        """Whether the target assignment is older than the group epoch."""
        return self.group_epoch > self.assignment_epoch

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Return whether a member has all of its target and nothing else."""
        return member.state is MemberState.STABLE and member.member_epoch == self.assignment_epoch

    def held_by_others(self, member: ConsumerMember) -> frozenset[Place]:
        """Return the partitions that other members have or have not revoked yet."""
        return frozenset().union(*(other.holds for other in self.members.values() if other is not member))

    @property
    def preferred_assignor(self) -> str:
        """The assignor that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else DEFAULT_ASSIGNOR

    def subscribes_to(self, topic: str) -> bool:
        """Return whether any member subscribes to a topic.

        A regular expression counts only for topics that the last target was made for.
        """
        members = self.members.values()
        if any(topic in member.subscribed_names for member in members):
            return True
        is_seen = self.topics_seen is not None and topic in self.topics_seen
        return is_seen and any(member.subscribed_regex is not None for member in members)

    def has_assigned(self, topics: Mapping[str, tuple[uuid.UUID, int]]) -> bool:
        """Return whether the target assignment was made for just these topics: name to (topic id,
        partitions).
        """
        if self.topics_seen is not None:
            return self.topics_seen == topics
        places = {(topic_id, partition) for topic_id, count in topics.values() for partition in range(count)}
        return NOWHERE.union(*self.targets.values()) == places

    # --- records

    def replay(self, record: ConsumerRecord, now_ms: int, session_timeout_ms: int) -> None:
        """Replay a record; it restarts its member's session and rebalance timeouts."""
        if isinstance(record, GroupEpochRecord):
            self.group_epoch = record.group_epoch or 0
        elif isinstance(record, AssignmentEpochRecord):
            self.assignment_epoch = record.assignment_epoch or 0
            self.assigned_at_ms = record.assigned_at_ms
        elif record.group_id != self.group_id:
            raise ValueError(f"a record of group {record.group_id} was replayed into group {self.group_id}")
        elif isinstance(record, TargetRecord):
            if record.places is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.places
        elif record.value is None:
            if isinstance(record, MemberRecord):
                self.forget(record.member_id)
        else:
            member = self.members.get(record.member_id)
            if member is None:
                member = self.members[record.member_id] = ConsumerMember(record.member_id)
            member.session_deadline_ms = now_ms + session_timeout_ms
            if isinstance(record, MemberRecord):
                self._take(member, record.value)
            else:
                value = record.value
                assert isinstance(value, CurrentValue)
                member.member_epoch = value.member_epoch
                member.previous_member_epoch = value.previous_member_epoch
                member.state = value.state
                member.assigned, member.pending_revocation = value.assigned, value.pending_revocation
                member.assignment_epochs = value.assignment_epochs
            member.set_revocation_deadline(now_ms)

    def _take(self, member: ConsumerMember, value: object) -> None:
        assert isinstance(value, MemberValue)
        self.name_instance(member, value.instance_id)
        member.rack_id = value.rack_id
        member.client_id, member.client_host = value.client_id, value.client_host
        member.subscribed_names, member.subscribed_regex = value.subscribed_names, value.subscribed_regex
        member.rebalance_timeout_ms = value.rebalance_timeout_ms
        member.server_assignor = value.server_assignor
        member.classic = value.classic

    def name_instance(self, member: ConsumerMember, instance_id: str | None) -> None:
        """Set the instance id of a member. From then on the group finds the member by the new instance id
        only.
        """
        before = member.instance_id
        if before is not None and self.static_members.get(before) == member.member_id:
            del self.static_members[before]
        member.instance_id = instance_id
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id

    def forget(self, member_id: str) -> None:
        """Remove a member, its partitions and its target."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member is not None:
            self.name_instance(member, None)

    def removal_records(self, member_id: str) -> list[ConsumerRecord]:
        """Return the records that delete a member from the log."""
        return [
            CurrentRecord(self.group_id, member_id, None),
            TargetRecord(self.group_id, member_id, None),
            MemberRecord(self.group_id, member_id, None),
        ]

    def deletion_records(self) -> list[ConsumerRecord]:
        """Return the records that delete the group, its members and its target from the log."""
        records: list[ConsumerRecord] = []
        for member_id in self.members:
            records += self.removal_records(member_id)
        return [
            *records,
            AssignmentEpochRecord(self.group_id, None),
            GroupEpochRecord(self.group_id, None),
        ]

    def stored_keys(self) -> list[tuple[int, str]]:
        """Return (kind of key, member id) of every record of the group that the log must hold."""
        members = [(kind, member_id) for member_id in self.members for kind in (MEMBER, TARGET, CURRENT)]
        return [(GROUP_EPOCH, ""), *members, (ASSIGNMENT_EPOCH, "")]

    def record_of(self, kind: int, member_id: str) -> ConsumerRecord | None:
        """Return the record of a key as it would be written now; None when its member no longer exists."""
        if kind == GROUP_EPOCH:
            return GroupEpochRecord(self.group_id, self.group_epoch)
        if kind == ASSIGNMENT_EPOCH:
            return AssignmentEpochRecord(self.group_id, self.assignment_epoch, self.assigned_at_ms)
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind == MEMBER:
            return MemberRecord(self.group_id, member_id, member.value())
        if kind == TARGET:
            return TargetRecord(self.group_id, member_id, self.targets.get(member_id, NOWHERE))
        return CurrentRecord(self.group_id, member_id, member.current())
