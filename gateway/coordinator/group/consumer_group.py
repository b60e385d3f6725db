"""One group of the consumer protocol (KIP-848): the coordinator assigns, each member follows by its
heartbeats.

A partition is assigned to a member only after its last owner has confirmed that it revoked the partition.
Source: Kafka's `ConsumerGroup`, `ConsumerGroupMember`, `CurrentAssignmentBuilder`.

`ROWS` are the group's records in `__consumer_offsets`, in Kafka's formats. A null value deletes. Source:
Kafka's ConsumerGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    DEFAULT_ASSIGNOR,
    RegexTopics,
    encode_assignment,
    read_subscription,
)
from seqgate.gateway.coordinator.group.epoch_group import (
    ASSIGNMENT_EPOCH,
    AssignmentEpoch,
    EpochGroup,
    EpochMember,
    GroupRows,
)
from seqgate.gateway.coordinator.places import Place, TopicPartition, Topics
from seqgate.gateway.coordinator.rows import (
    BYTES,
    INT8,
    INT32,
    NULLABLE_STRING,
    PLACES,
    PLACES_WITH_EPOCHS,
    STRING,
    Field,
    Row,
    RowRecord,
    Tag,
    array,
    itself,
    nullable,
    several,
    structure,
)


class ClassicMember(NamedTuple):
    """The data of a member that speaks the classic protocol; `protocols` are (name, metadata)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    """A member's own description. `rebalance_timeout_ms` is -1 when the member never sent one."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None
    """The member's data of the classic protocol while it speaks that protocol; else None."""


class MemberState(enum.IntEnum):
    """The step of a member towards its target; the numbers are Kafka's."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it gets others."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked."""


NOWHERE: Final[frozenset[Place]] = frozenset()


class CurrentValue(NamedTuple):
    """The partitions that a member has, and those that it must revoke."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: frozenset[Place] = NOWHERE
    pending_revocation: frozenset[Place] = NOWHERE
    assignment_epochs: Mapping[Place, int] = MappingProxyType({})
    """The group epoch at which the member was assigned each of these partitions (KIP-1251; see `may_commit`).
    """

    def epochs_of(self, places: frozenset[Place]) -> dict[Place, int]:
        return {place: self.assignment_epochs[place] for place in places}


def _current(
    member_epoch: int,
    previous_member_epoch: int,
    state: int,
    assigned: Mapping[Place, int | None],
    pending_revocation: Mapping[Place, int | None],
) -> CurrentValue:
    """Return a decoded value. A partition without assignment epoch (older release) has the member epoch."""
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


GROUP_EPOCH: Final = Row(3, structure(itself, Field(itself, INT32)), "group_epoch")
MEMBER: Final = Row(
    5,
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
    "value",
    names=2,
)
ASSIGNMENT: Final = Row(6, ASSIGNMENT_EPOCH, "assignment", empty=AssignmentEpoch(0))
TARGET: Final = Row(7, structure(itself, Field(itself, PLACES)), names=2)
CURRENT: Final = Row(
    8,
    structure(
        _current,
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        Field(lambda value: value.epochs_of(value.assigned), PLACES_WITH_EPOCHS),
        Field(lambda value: value.epochs_of(value.pending_revocation), PLACES_WITH_EPOCHS),
    ),
    "current",
    names=2,
)
ROWS: Final = GroupRows((GROUP_EPOCH, ASSIGNMENT), MEMBER, TARGET, CURRENT)
"""The records of the group in `__consumer_offsets`, in Kafka's formats; all values have version 0."""


@dataclass(slots=True, eq=False)
class ConsumerMember(EpochMember):
    """A member, its own description, and its partitions. Deadlines in ms."""

    member_id: str
    value: MemberValue = field(default_factory=MemberValue)
    current: CurrentValue = field(default_factory=CurrentValue)
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER
    join_deadline_ms: int = NEVER
    """The deadline for a classic member to join again."""
    sync_deadline_ms: int = NEVER
    """The deadline for a classic member that joined to sync."""

    @property
    def holds(self) -> frozenset[Place]:
        """The partitions that no other member may have yet."""
        return self.current.assigned | self.current.pending_revocation

    def may_commit(self, member_epoch: int, places: Iterable[Place | None]) -> bool:
        """Return whether an offset commit at a member epoch may be stored for all these partitions
        (KIP-1251).

        The member's own epoch may commit any partition. An older one, which the member sent before it learned
        of the new one, may commit partitions that the member has held since that epoch or earlier. None
        stands for a partition of a topic that no longer exists.
        """
        if member_epoch >= self.member_epoch:
            return member_epoch == self.member_epoch
        epochs = self.current.assignment_epochs
        return all(
            place is not None and place in epochs and epochs[place] <= member_epoch for place in places
        )

    @property
    def is_classic(self) -> bool:
        return self.value.classic is not None

    def encoded(self, places: Iterable[Place], metadata: bytes, topics: Topics) -> bytes:
        """Encode the places for a classic member, in the version of its subscription `metadata`."""
        names = {
            topic[0]: name
            for name in self.value.subscribed_names
            if (topic := topics.describe(name)) is not None
        }
        partitions: dict[str, list[int]] = {}
        for topic_id, partition in places:
            if topic_id in names:
                partitions.setdefault(names[topic_id], []).append(partition)
        subscription = read_subscription(metadata)
        return encode_assignment(0 if subscription is None else subscription.version, partitions)

    @property
    def deadline_ms(self) -> int:
        """The time at which a member without a heartbeat, or a due revocation, join or sync, is removed."""
        return min(
            self.session_deadline_ms,
            self.revocation_deadline_ms,
            self.join_deadline_ms,
            self.sync_deadline_ms,
        )

    def clock_was_set(self, by_ms: int) -> None:
        """Move every deadline by the change of the clock, so that the member keeps the time it had left."""
        EpochMember.clock_was_set(self, by_ms)
        self.join_deadline_ms = moved(self.join_deadline_ms, by_ms)
        self.sync_deadline_ms = moved(self.sync_deadline_ms, by_ms)

    @property
    def must_revoke(self) -> bool:
        """Whether the member must revoke partitions in its rebalance timeout."""
        return self.current.state is MemberState.UNREVOKED_PARTITIONS and not self.is_classic

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has all of its target of this epoch and nothing else."""
        return self.current.state is MemberState.STABLE and self.member_epoch == assignment_epoch


@dataclass(slots=True)
class ConsumerGroup(EpochGroup[ConsumerMember, frozenset[Place]]):
    """A group's members and epochs. `consumer_heartbeat` changes them live, `replay` from records."""

    type: ClassVar = CONSUMER_PROTOCOL
    rows: ClassVar = ROWS
    new_member: ClassVar = ConsumerMember
    no_target: ClassVar = NOWHERE

    group_id: str
    group_epoch: int = 0
    assignment: AssignmentEpoch = ASSIGNMENT.empty
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    topics_seen: dict[str, tuple[uuid.UUID, int]] | None = None
    """The subscribed topics of the last target: name to (topic id, partitions); None after a restart."""
    regexes: RegexTopics = field(default_factory=RegexTopics)
    topics_changed: bool = True
    """Whether topics were created, deleted or enlarged since the last target was made."""

    def held_by_others(self, member: ConsumerMember) -> frozenset[Place]:
        """Return the partitions that other members have or have not revoked yet."""
        return frozenset().union(*(other.holds for other in self.members.values() if other is not member))

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if (name := member.value.server_assignor) is not None:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else DEFAULT_ASSIGNOR

    def subscription_test(self) -> Callable[[str], bool]:
        """Return a function that returns whether a member subscribes to a topic, as the members are now. A
        regular expression counts for the topics that the last target was made for; for every topic while
        these are not known, after a restart.
        """
        described = [member.value for member in self.members.values()]
        names = set[str]().union(*(value.subscribed_names for value in described))
        if any(value.subscribed_regex is not None for value in described):
            if self.topics_seen is None:
                return lambda _: True
            names.update(self.topics_seen)
        return names.__contains__

    def may_commit(
        self, member_id: str, member_epoch: int, places: Iterable[TopicPartition], topics: Topics
    ) -> bool:
        """Return whether a commit of a member at an epoch may be stored for all these partitions."""
        return self.members[member_id].may_commit(
            member_epoch, (_place_of(place, topics) for place in places)
        )

    def remove(self, member_ids: Collection[str]) -> list[RowRecord]:
        records = EpochGroup.remove(self, member_ids)
        self.regexes.keep({member.value.subscribed_regex for member in self.members.values()})
        return records

    def has_assigned(self, topics: Mapping[str, tuple[uuid.UUID, int]]) -> bool:
        """Return whether the target was made for just these topics: name to (topic id, partitions)."""
        if self.topics_seen is not None:
            return self.topics_seen == topics
        places = {(topic_id, partition) for topic_id, count in topics.values() for partition in range(count)}
        return NOWHERE.union(*self.targets.values()) == places


def _place_of(place: TopicPartition, topics: Topics) -> Place | None:
    topic = topics.describe(place[0])
    return None if topic is None else (topic[0], place[1])
