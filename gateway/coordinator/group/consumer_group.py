"""One group of the consumer protocol (KIP-848): the coordinator assigns, each member gets there by its heartbeats.

    group epoch        rises with every change of members or subscriptions
    assignment epoch   the group epoch that the present target assignment was made for
    member epoch       the assignment epoch whose target the member has begun to have

    group state   when
    Empty         no members
    Assigning     the target assignment is older than the group epoch
    Reconciling   some member does not have its target yet
    Stable        every member has its target

A partition is given to a member only after the one who had it confirmed that it gave it back.
Source: Kafka's `ConsumerGroup`, `ConsumerGroupMember`, `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.coordinator.deadlines import NEVER, moved
from gateway.coordinator.group.consumer_assignors import DEFAULT_ASSIGNOR
from gateway.coordinator.group.consumer_records import (
    ASSIGNMENT_EPOCH,
    CURRENT,
    GROUP_EPOCH,
    MEMBER,
    TARGET,
    AssignmentEpochRecord,
    ClassicMember,
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    TargetRecord,
)
from gateway.coordinator.places import Place

NOWHERE: Final[frozenset[Place]] = frozenset()
FIRST_GROUP_EPOCH: Final = 1
"""That of a group before its first member."""
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that is away and may come back."""


class ConsumerGroupState(enum.Enum):
    """The names are those that ListGroups and ConsumerGroupDescribe tell."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member, what it subscribes to and what it has. Timeouts and deadlines in ms."""

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
    classic: ClassicMember | None = None
    """Set while it speaks the classic protocol; see `classic_members`."""
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER
    join_deadline_ms: int = NEVER
    """Until when a classic member has to join again."""
    sync_deadline_ms: int = NEVER
    """Until when a classic member that joined has to sync."""

    @property
    def holds(self) -> frozenset[Place]:
        """What nobody else may have yet."""
        return self.assigned | self.pending_revocation

    @property
    def deadline_ms(self) -> int:
        """When it is given up unless it does what it has to."""
        return min(
            self.session_deadline_ms,
            self.revocation_deadline_ms,
            self.join_deadline_ms,
            self.sync_deadline_ms,
        )

    def clock_was_set(self, by_ms: int) -> None:
        """It has as much time left as before."""
        self.session_deadline_ms = moved(self.session_deadline_ms, by_ms)
        self.revocation_deadline_ms = moved(self.revocation_deadline_ms, by_ms)
        self.join_deadline_ms = moved(self.join_deadline_ms, by_ms)
        self.sync_deadline_ms = moved(self.sync_deadline_ms, by_ms)

    def value(self) -> MemberValue:
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
        """A member that has to give partitions back has its rebalance timeout to do so from now on."""
        has_to = self.state is MemberState.UNREVOKED_PARTITIONS and self.classic is None
        self.revocation_deadline_ms = now_ms + max(0, self.rebalance_timeout_ms) if has_to else NEVER

    def current(self) -> CurrentValue:
        return CurrentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            self.assigned,
            self.pending_revocation,
        )


@dataclass(slots=True)
class ConsumerGroup:
    """Members and epochs. Changes come from `consumer_heartbeat`, or record by record from the log."""

    group_id: str
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    topics_seen: dict[str, tuple[uuid.UUID, int]] | None = None
    """The subscribed topics as the last target took them: name to (topic id, partitions); None after a restart."""
    topics_changed: bool = True
    """Whether topics were created, deleted or enlarged since."""

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_reconciled(member) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Whether a member has all of its target and nothing else."""
        return member.state is MemberState.STABLE and member.member_epoch == self.assignment_epoch

    def held_by_others(self, member: ConsumerMember) -> frozenset[Place]:
        """What the other members have or have not given back."""
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
        """Whether any member does; what regular expressions match is known since the last look at the topics."""
        members = self.members.values()
        if any(topic in member.subscribed_names for member in members):
            return True
        is_seen = self.topics_seen is not None and topic in self.topics_seen
        return is_seen and any(member.subscribed_regex is not None for member in members)

    def has_assigned(self, topics: Mapping[str, tuple[uuid.UUID, int]]) -> bool:
        """Whether the target assignment was made for just these topics: name to (topic id, partitions)."""
        if self.topics_seen is not None:
            return self.topics_seen == topics
        places = {(topic_id, partition) for topic_id, count in topics.values() for partition in range(count)}
        return NOWHERE.union(*self.targets.values()) == places

    # Records.

    def replay(self, record: ConsumerRecord, now_ms: int, session_timeout_ms: int) -> None:
        """Fold in a record of the log; what members have to do in time they have the whole time for again."""
        if isinstance(record, GroupEpochRecord):
            self.group_epoch = record.group_epoch or 0
        elif isinstance(record, AssignmentEpochRecord):
            self.assignment_epoch = record.assignment_epoch or 0
        elif record.group_id != self.group_id:
            raise ValueError(f"a record of {record.group_id} for {self.group_id}")
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
        """Note which instance a member is; it is one at most."""
        before = member.instance_id
        if before is not None and self.static_members.get(before) == member.member_id:
            del self.static_members[before]
        member.instance_id = instance_id
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id

    def forget(self, member_id: str) -> None:
        """A member is gone, with what it had and was to have."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member is not None:
            self.name_instance(member, None)

    def removal_records(self, member_id: str) -> list[ConsumerRecord]:
        """What makes a member gone in the log."""
        return [
            CurrentRecord(self.group_id, member_id, None),
            TargetRecord(self.group_id, member_id, None),
            MemberRecord(self.group_id, member_id, None),
        ]

    def deletion_records(self) -> list[ConsumerRecord]:
        """What makes the group, its members and its target gone in the log."""
        records: list[ConsumerRecord] = []
        for member_id in self.members:
            records += self.removal_records(member_id)
        return [
            *records,
            AssignmentEpochRecord(self.group_id, None),
            GroupEpochRecord(self.group_id, None),
        ]

    def stored_keys(self) -> list[tuple[int, str]]:
        """(kind of key, member id) of everything that the log must hold of the group."""
        members = [(kind, member_id) for member_id in self.members for kind in (MEMBER, TARGET, CURRENT)]
        return [(GROUP_EPOCH, ""), *members, (ASSIGNMENT_EPOCH, "")]

    def record_of(self, kind: int, member_id: str) -> ConsumerRecord | None:
        """A record as it would be written now; None when its member is gone."""
        if kind == GROUP_EPOCH:
            return GroupEpochRecord(self.group_id, self.group_epoch)
        if kind == ASSIGNMENT_EPOCH:
            return AssignmentEpochRecord(self.group_id, self.assignment_epoch)
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind == MEMBER:
            return MemberRecord(self.group_id, member_id, member.value())
        if kind == TARGET:
            return TargetRecord(self.group_id, member_id, self.targets.get(member_id, NOWHERE))
        return CurrentRecord(self.group_id, member_id, member.current())
