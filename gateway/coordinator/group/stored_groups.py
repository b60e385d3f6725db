"""All groups and offsets that the records of one partition of `__consumer_offsets` describe.

Consumer, share and streams groups have one shape: members, each at a member epoch, and targets that were made
for a group epoch. `GroupsOfKind` serves all three; a `GroupKind` says how one of them differs. Source:
Kafka's `GroupMetadataManager`, `OffsetMetadataManager.replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Pending, TransactionEnd, Waiter
from seqgate.gateway.coordinator.group import consumer_heartbeat, share_heartbeat
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, Heartbeat, HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import (
    FIRST_EPOCH,
    JOINING,
    EpochMember,
    GroupRows,
    HeartbeatRefused,
)
from seqgate.gateway.coordinator.group.epoch_group import STATES as EPOCH_STATES
from seqgate.gateway.coordinator.group.events import Before, Effects
from seqgate.gateway.coordinator.group.member_bytes import (
    MEMBER_BYTES,
    MemberBytes,
    classic_bytes,
    consumer_bytes,
)
from seqgate.gateway.coordinator.group.offsets import GroupOffsets, OffsetRecord
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord, GroupRecord
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat
from seqgate.gateway.coordinator.places import NO_TOPICS, TopicPartition, Topics
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams import heartbeat as streams_heartbeat
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from seqgate.gateway.coordinator.streams.heartbeat import (
    TASK_OFFSET_BYTES,
    StreamsHeartbeat,
    StreamsLimits,
    StreamsReply,
    bytes_of_tags,
)
from seqgate.gateway.coordinator.streams.topology import size_bytes_of

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
"""A group of any protocol: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071). All have the
same properties for listing: `type`, `state_text`, `is_empty`, `generation` and `protocol`.
"""
STATES: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        (
            *(state.value for state in GroupState if state is not GroupState.DEAD),
            *("Empty", "Assigning", "Reconciling", "Stable"),
            *EPOCH_STATES,
        )
    )
)
"""The words for the states of a group that is not deleted; a share group is Empty or Stable."""
RecordKey = tuple[str, TopicPartition | None]
"""The key of a record: (group id, None) of a classic group, (group id, place) of an offset, and (group id,
(member id, minus the kind of key)) of another group.
"""


class StoredGroups:
    """All groups of one partition.

    `max_groups` limits classic, consumer and streams groups. `consumer_limits`, `share_limits` and
    `streams_limits` return the limits of one group. `topics` has the topics that members can be assigned.
    """

    def __init__(
        self,
        limits: GroupLimits,
        max_groups: int,
        consumer_limits: Callable[[str], ConsumerLimits] = lambda _: ConsumerLimits(),
        topics: Topics = NO_TOPICS,
        share_limits: Callable[[str], ShareGroupLimits] = lambda _: ShareGroupLimits(),
        streams_limits: Callable[[str], StreamsLimits] = lambda _: StreamsLimits(),
    ) -> None:
        self.limits = limits
        self.max_groups = max_groups
        self.member_bytes = MemberBytes(2**63 - 1, self._count_member_bytes)
        self.max_offsets = 2**63 - 1
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers: ConsumerGroups = GroupsOfKind(CONSUMER, consumer_limits)
        self.shares: ShareGroups = GroupsOfKind(SHARE, share_limits)
        self.streams: StreamsGroups = GroupsOfKind(STREAMS, streams_limits)
        """The streams groups; an id is in only one of `groups`, `consumers`, `shares` and `streams`."""
        self._kinds_of_rows = {row: kind for kind in self._kinds for row in kind.rows}
        self.begun = BegunPartitions(self.shares)
        self.offsets = GroupOffsets()
        self.topics = topics

    def clock_was_set(self, by_ms: int) -> None:
        """Move all deadlines by the change of the clock: members and rebalances keep their time left."""
        for group in self.groups.values():
            group.clock_was_set(by_ms)
        for kind in self._kinds:
            for epoch_group in kind.groups.values():
                epoch_group.clock_was_set(by_ms)

    @property
    def _kinds(self) -> tuple[ConsumerGroups, ShareGroups, StreamsGroups]:
        return self.consumers, self.shares, self.streams

    def kind_of(self, group_id: str) -> ConsumerGroups | ShareGroups | StreamsGroups | None:
        """Return the groups among which is this one; None for a classic group and an unknown one."""
        return next((kind for kind in self._kinds if group_id in kind.groups), None)

    def assigned(self, group_id: str) -> ConsumerGroup | StreamsGroup | None:
        """Return the consumer or streams group of this id."""
        return self.consumers.groups.get(group_id) or self.streams.groups.get(group_id)

    def topics_changed(self) -> None:
        """Note created, deleted or enlarged topics: each group compares its topics at its next heartbeat."""
        for consumers in self.consumers.groups.values():
            consumers.topics_changed = True
        for streams_group in self.streams.groups.values():
            streams_group.topics_changed = True

    # --- records

    def replay(self, record: GroupRecord | Pending | TransactionEnd, now_ms: int) -> None:
        """Replay a record while the log is loaded."""
        if isinstance(record, OffsetRecord):
            self.replay_offset(record, now_ms)
        elif isinstance(record, RowRecord):
            kind = self._kinds_of_rows[record.row]
            kind.replay(record, now_ms)
            if kind is not self.shares:
                self._settle_kind(record.group_id, is_known=record.group_id in kind.groups, now_ms=now_ms)
        elif record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = ClassicGroup.restored(record.group_id, record.value, now_ms)

    def _settle_kind(self, group_id: str, *, is_known: bool, now_ms: int) -> None:
        """Take a group that is of another kind now out of the classic groups. When such a group is deleted,
        keep its offsets as a classic group.
        """
        if is_known:
            self.groups.pop(group_id, None)
        elif not self.knows(group_id) and self.offsets.has_any(group_id):
            self.groups[group_id] = ClassicGroup(group_id, now_ms)

    def replay_offset(self, record: OffsetRecord, now_ms: int) -> None:
        """Replay a record about offsets; the first offset of an unknown group creates the group."""
        group_id = self.offsets.replay(record)
        if group_id is not None and group_id not in self.groups and not self.knows(group_id):
            self.groups[group_id] = ClassicGroup(group_id, now_ms)

    def stored_keys(self) -> Iterator[RecordKey]:
        """Yield the key of every record that the log must hold, so that older records can be deleted."""
        for group_id, group in self.groups.items():
            if not group.is_simple:
                yield group_id, None
        for kind in self._kinds:
            yield from kind.stored_keys()
        for group_id in self.offsets.groups():
            for place in self.offsets.places(group_id):
                yield group_id, place

    def records_of(self, key: RecordKey) -> Sequence[GroupRecord | Pending]:
        """Return the records of a key as they would be written now; none when the key no longer exists."""
        group_id, place = key
        if place is not None and place[1] < 0:
            found = (kind.record_of(group_id, -place[1], place[0]) for kind in self._kinds)
            return [record for record in found if record is not None]
        if place is not None:
            return self.offsets.records_at(group_id, place)
        group = self.groups.get(group_id)
        if group is None or group.is_simple:
            return []
        stored = group.metadata()
        if not group.is_stored:
            # between generations members are about to join again, so they are not stored
            stored = stored._replace(protocol_name=None, leader=None, members=())
        return [GroupMetadataRecord(group_id, stored)]

    def _count_member_bytes(self) -> int:
        """Count the bytes of the members; a share group has few members, and they are left out."""
        assignments = sum(
            len(member.assignment) for group in self.groups.values() for member in group.members.values()
        )
        members = sum(
            _member_bytes(member)
            for kind in (self.groups, self.consumers.groups, self.streams.groups)
            for group in kind.values()
            for member in group.members.values()
        )
        topologies = sum(
            size_bytes_of(group.topology) + len(group.description.data if group.description else b"")
            for group in self.streams.groups.values()
        )
        return assignments + members + topologies

    def held_bytes(self, group_id: str, member_id: str, instance_id: str | None) -> int:
        """Return what a member that joins again holds already, without its assignment; 0 for a new one."""
        group = self.groups.get(group_id) or self.assigned(group_id)
        if group is None:
            return 0
        members: Mapping[str, AnyMember] = group.members
        known = members.get(group.static_members.get(instance_id or "", member_id))
        return 0 if known is None else _member_bytes(known)

    @property
    def is_full(self) -> bool:
        """Whether no further classic, consumer or streams group may be created."""
        return len(self.groups) + len(self.consumers.groups) + len(self.streams.groups) >= self.max_groups

    def check_room(self, group_id: str) -> None:
        """Check that a new group has room beside the others. Raises HeartbeatRefused."""
        if self.is_full and not self.knows(group_id):
            text = f"This gateway holds {self.max_groups} groups, the most allowed."
            raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)

    def admit_member(self, size_bytes: int, now_ms: int, held_bytes: int) -> None:
        """Add the bytes of a member to the budget, in place of those it holds. Raises HeartbeatRefused."""
        budget = self.member_bytes
        if not budget.admit(size_bytes, now_ms, held_bytes):
            text = f"The members of this gateway's groups hold {budget.limit_bytes} bytes, the most allowed."
            raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)

    def is_read_alone(self, group_id: str) -> bool:
        """Return whether each partition has one reader in the group: it is not a share group."""
        return group_id in self.groups or group_id in self.consumers.groups or group_id in self.streams.groups

    def knows(self, group_id: str) -> bool:
        return self.is_read_alone(group_id) or group_id in self.shares.groups

    def group_ids(self) -> Iterator[str]:
        yield from self.groups
        for kind in self._kinds:
            yield from kind.groups

    def all_groups(self) -> Iterator[Group]:
        """Yield the groups of every kind, in no order."""
        yield from self.groups.values()
        for kind in self._kinds:
            yield from kind.groups.values()

    def find(self, group_id: str) -> Group | None:
        kind = self.kind_of(group_id)
        return self.groups.get(group_id) if kind is None else kind.groups[group_id]

    def waiters(self) -> Iterator[Waiter]:
        """Yield the waiting JoinGroup and SyncGroup requests of all groups."""
        for group in self.groups.values():
            for member in group.members.values():
                for waiter in (member.awaiting_join, member.awaiting_sync):
                    if waiter is not None:
                        yield waiter


G = TypeVar("G", bound=ConsumerGroup | ShareGroup | StreamsGroup)
H = TypeVar("H", bound=Heartbeat | ShareHeartbeat | StreamsHeartbeat)
L = TypeVar("L", bound=ConsumerLimits | ShareGroupLimits | StreamsLimits)
A = TypeVar("A", bound=HeartbeatReply | StreamsReply)


class GroupKind(msgspec.Struct, Generic[G, H, L, A], frozen=True):
    """How the groups of one kind differ from others: their rows, and how their members are served."""

    group_class: type[G]
    create: Callable[[str], G]
    """Returns a group for its first member."""
    heartbeat: Callable[[G, H, Topics, L, int], tuple[A, list[Any]]]
    leave: Callable[[G, H], tuple[A, list[Any]]]
    expire: Callable[[G, L, int], list[Any]] = lambda group, _, now_ms: group.remove_overdue(now_ms)
    when_created: Callable[[G, A], A] = lambda _, reply: reply
    """Takes the answer to the first member of a group, and returns the answer that it gets."""


class GroupsOfKind(Generic[G, H, L, A]):
    """The groups of one kind by id; `limits_of` returns the limits of a group."""

    def __init__(self, kind: GroupKind[G, H, L, A], limits_of: Callable[[str], L]) -> None:
        self._kind = kind
        self.limits_of = limits_of
        self.groups: dict[str, G] = {}
        self.rows: GroupRows = kind.group_class.rows

    def replay(self, record: RowRecord, now_ms: int) -> None:
        """Replay a record; it restarts its member's session."""
        group_id = record.group_id
        is_deletion = record.value is None
        if is_deletion and record.row is self.rows.group:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if is_deletion:
                return
            group = self.groups[group_id] = self._kind.group_class(group_id)
        group.replay(record, now_ms, self.limits_of(group_id).session_timeout_ms)

    def write(self, record: RowRecord, effects: Effects) -> None:
        """Replay a record, and append it to the log."""
        self.replay(record, effects.now_ms)
        effects.records.append(record)

    def stored_keys(self) -> Iterator[RecordKey]:
        """Yield the key of every record that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in self.rows.stored_keys(group):
                yield group_id, (member_id, -kind)

    def record_of(self, group_id: str, kind: int, member_id: str) -> GroupRecord | None:
        """Return the record of a key as it would be written now; None when its group or member no longer
        exists, or the key is one of another kind of group.
        """
        group = self.groups.get(group_id) if kind in self.rows.by_kind else None
        return None if group is None else group.record_of(kind, member_id)

    def leave_or_heartbeat(self, request: H, topics: Topics, effects: Effects) -> A:
        """Let a member leave, stay in or join its group, which is known, or is created for a member that
        joins. Raises HeartbeatRefused.
        """
        group_id, member_id = request.group_id, request.member_id
        known = self.groups.get(group_id)
        group = self._kind.create(group_id) if known is None else known
        before = Before(group, member_id, request.instance_id)
        if request.member_epoch < JOINING:
            leaving = group.members.get(member_id)
            reply, records = self._kind.leave(group, request)
            effects.events += before.leave_events([] if leaving is None else [leaving])
        else:
            reply, records = self._kind.heartbeat(
                group, request, topics, self.limits_of(group_id), effects.now_ms
            )
            if known is None:
                reply = self._kind.when_created(group, reply)
                self.groups[group_id] = group
            changed = any(record.row is self.rows.member for record in records)
            effects.events += before.heartbeat_events(subscription_changed=changed)
        effects.records += records
        return reply

    def delete(self, group_id: str, effects: Effects) -> None:
        effects.records += self.rows.deletion_records(self.groups.pop(group_id))

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end a delay of the group whose time is up."""
        group = self.groups[group_id]
        members: list[EpochMember] = [*group.members.values()]
        before = Before(group, "")
        effects.records += self._kind.expire(group, self.limits_of(group_id), effects.now_ms)
        effects.events += before.timeout_events(members, effects.now_ms)

    def next_deadline_ms(self, group_id: str) -> int:
        """Return the time at which `expire` should be called for a group."""
        return self.groups[group_id].next_deadline_ms()


CONSUMER: Final = GroupKind(
    ConsumerGroup,
    lambda group_id: ConsumerGroup(group_id, group_epoch=FIRST_EPOCH),
    consumer_heartbeat.heartbeat,
    consumer_heartbeat.leave,
)
SHARE: Final = GroupKind(ShareGroup, ShareGroup, share_heartbeat.heartbeat, share_heartbeat.leave)
STREAMS: Final = GroupKind(
    StreamsGroup,
    StreamsGroup,
    streams_heartbeat.heartbeat,
    streams_heartbeat.leave,
    streams_heartbeat.expire,
    streams_heartbeat.first_reply,
)
ConsumerGroups: TypeAlias = GroupsOfKind[ConsumerGroup, Heartbeat, ConsumerLimits, HeartbeatReply]
ShareGroups: TypeAlias = GroupsOfKind[ShareGroup, ShareHeartbeat, ShareGroupLimits, HeartbeatReply]
StreamsGroups: TypeAlias = GroupsOfKind[StreamsGroup, StreamsHeartbeat, StreamsLimits, StreamsReply]


AnyMember: TypeAlias = Member | ConsumerMember | StreamsMember


def _member_bytes(member: AnyMember) -> int:
    """Return the bytes of a member, without a classic assignment."""
    if isinstance(member, Member):
        return classic_bytes(member.protocols)
    if isinstance(member, ConsumerMember):
        classic = member.value.classic
        names_bytes = consumer_bytes(member.value.subscribed_names)
        return names_bytes if classic is None else max(names_bytes, classic_bytes(classic.protocols))
    offsets = len(member.task_offsets) + len(member.task_end_offsets)
    return MEMBER_BYTES + bytes_of_tags(member.value.client_tags) + TASK_OFFSET_BYTES * offsets


class BegunPartitions:
    """The partitions that share groups have begun to read, as the groups' records store them."""

    def __init__(self, shares: ShareGroups) -> None:
        self._shares = shares

    def forget_topic(self, group_id: str, topic_id: uuid.UUID, effects: Effects) -> None:
        """Delete the record that the group reads the topic: its delivery state was deleted."""
        group = self._shares.groups.get(group_id)
        if group is not None and topic_id in group.topic_names:
            kept = {place for place in group.begun if place[0] != topic_id}
            self._shares.write(group.begun_record(kept, {}), effects)

    def forget_gone_topics(self, topics: Topics, effects: Effects) -> None:
        """Forget the begun partitions of all topics that no longer exist."""
        for group_id, group in self._shares.groups.items():
            for topic_id, name in list(group.topic_names.items()):
                described = topics.describe(name)
                if described is None or described[0] != topic_id:
                    self.forget_topic(group_id, topic_id, effects)
