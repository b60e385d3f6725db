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

`ROWS` are the group's records in `__consumer_offsets`, in Kafka's formats. A null value deletes. Source:
Kafka's ConsumerGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    DEFAULT_ASSIGNOR,
    RegexTopics,
)
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.rows import (
    BYTES,
    GROUP_KEY,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    PLACES,
    PLACES_WITH_EPOCHS,
    STRING,
    Field,
    GroupRows,
    Row,
    Tag,
    array,
    nullable,
    several,
    structure,
)


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


def _epochs(value: CurrentValue, places: frozenset[Place]) -> dict[Place, int]:
    return {place: value.assignment_epochs[place] for place in places}


def _current(
    member_epoch: int,
    previous_member_epoch: int,
    state: int,
    assigned: Mapping[Place, int | None],
    pending_revocation: Mapping[Place, int | None],
) -> CurrentValue:
    """Return a decoded value. Partitions without an assignment epoch, as an earlier release stored them, have
    the member epoch.
    """
    epochs = {
        place: max(member_epoch, 0) if epoch is None else epoch
        for place, epoch in (*assigned.items(), *pending_revocation.items())
    }
    return CurrentValue(
        member_epoch,
        previous_member_epoch,
        MemberState(state),
        frozenset(assigned),
        frozenset(pending_revocation),
        epochs,
    )


GROUP_EPOCH, MEMBER, ASSIGNMENT_EPOCH, TARGET, CURRENT = 3, 5, 6, 7, 8
ROWS: Final = GroupRows(
    of_group=(
        Row(GROUP_EPOCH, GroupEpochRecord, [Field("group_epoch", INT32)], key=GROUP_KEY),
        Row(
            ASSIGNMENT_EPOCH,
            AssignmentEpochRecord,
            [Field("assignment_epoch", INT32), Tag(0, "assigned_at_ms", INT64, absent=0)],
            key=GROUP_KEY,
        ),
    ),
    of_members=(
        Row(
            MEMBER,
            MemberRecord,
            structure(
                MemberValue,
                Field("instance_id", NULLABLE_STRING),
                Field("rack_id", NULLABLE_STRING),
                Field("client_id", STRING),
                Field("client_host", STRING),
                Field("subscribed_names", array(STRING)),
                Field("subscribed_regex", NULLABLE_STRING),
                Field("rebalance_timeout_ms", INT32),
                Field("server_assignor", NULLABLE_STRING),
                Tag(
                    0,
                    "classic",
                    nullable(
                        structure(
                            ClassicMember,
                            Field("session_timeout_ms", INT32),
                            Field("protocols", array(structure(several, Field(0, STRING), Field(1, BYTES)))),
                        )
                    ),
                ),
            ),
        ),
        Row(TARGET, TargetRecord, [Field("places", PLACES)]),
        Row(
            CURRENT,
            CurrentRecord,
            structure(
                _current,
                Field("member_epoch", INT32),
                Field("previous_member_epoch", INT32),
                Field("state", INT8),
                Field(lambda value: _epochs(value, value.assigned), PLACES_WITH_EPOCHS),
                Field(lambda value: _epochs(value, value.pending_revocation), PLACES_WITH_EPOCHS),
            ),
        ),
    ),
)
"""The records of the group in `__consumer_offsets`, in Kafka's formats; all values have version 0."""


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
    def wrong_epoch(self) -> ErrorCode:
        """The error for a request of the member at another epoch."""
        return ErrorCode.stale_member_epoch if self.classic is None else ErrorCode.illegal_generation

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

    def check_fetch(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Return whether a member may fetch offsets: an error code, `none` when it may.

        Source: Kafka's ConsumerGroup.validateOffsetFetch.
        """
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if member.member_epoch == member_epoch else member.wrong_epoch

    def check_commit(
        self, member_id: str, member_epoch: int, places: Iterable[Place | None], *, has_member_epoch: bool
    ) -> ErrorCode:
        """Return whether a member may commit offsets of these partitions: an error code, `none` when it may.

        `has_member_epoch` is False for a request of the classic protocol. One partition that the member may
        not commit refuses the whole commit. Source: Kafka's ConsumerGroup.validateOffsetCommit.
        """
        if member_epoch < 0 and not self.members:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if member.classic is None and not has_member_epoch:
            return ErrorCode.unsupported_version
        return ErrorCode.none if member.may_commit(member_epoch, places) else member.wrong_epoch

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
