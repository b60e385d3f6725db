"""One share group (KIP-932): its members and their partitions; a partition may have several readers.

    group epoch        rises with every change of members, subscriptions or partitions
    assignment epoch   the group epoch for which the present targets were made
    member epoch       the assignment epoch whose target was last sent to the member

`gateway.coordinator.share` has the other half: which records of a partition are acquired and done.
Source: Kafka's `ShareGroup`, `ShareGroupMember`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.group.share_records import (
    ASSIGNMENT_EPOCH,
    BEGUN,
    CURRENT,
    GROUP_EPOCH,
    MEMBER,
    TARGET,
    BegunTopic,
    ShareAssignmentEpochRecord,
    ShareBegunRecord,
    ShareCurrentRecord,
    ShareCurrentValue,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
    ShareMemberValue,
    ShareTargetRecord,
)
from gateway.coordinator.places import Place, by_topic

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

        If it has seen none since the replay, the targets show them, because each partition is in the target of some member.
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
        """Return the record that these partitions, and no others, are begun; `names` has the names of new topics."""
        known = {**self.topic_names, **names}
        topics = (
            BegunTopic(topic_id, known[topic_id], tuple(partitions))
            for topic_id, partitions in by_topic(places).items()
        )
        return ShareBegunRecord(self.group_id, tuple(topics))

    def removal_records(self, member_id: str) -> list[ShareGroupRecord]:
        """Return the records that delete a member from the log."""
        return [
            ShareCurrentRecord(self.group_id, member_id, None),
            ShareTargetRecord(self.group_id, member_id, None),
            ShareMemberRecord(self.group_id, member_id, None),
        ]

    def deletion_records(self) -> list[ShareGroupRecord]:
        """Return the records that delete the group, its members and its targets from the log."""
        records = [record for member_id in self.members for record in self.removal_records(member_id)]
        return [
            *records,
            ShareBegunRecord(self.group_id, None),
            ShareAssignmentEpochRecord(self.group_id, None),
            ShareGroupEpochRecord(self.group_id, None),
        ]

    def stored_keys(self) -> list[tuple[int, str]]:
        """Return (kind of key, member id) of every record of the group that the log must hold."""
        members = [(kind, member_id) for member_id in self.members for kind in (MEMBER, TARGET, CURRENT)]
        return [(GROUP_EPOCH, ""), (BEGUN, ""), *members, (ASSIGNMENT_EPOCH, "")]

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
