"""The groups of each kind in one partition of `__consumer_offsets`.

Consumer, share and streams groups have one shape: members, each at a member epoch, and targets that were made
for a group epoch. `GroupsOfKind` serves all three; a `GroupKind` says how one of them differs. Source:
Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from seqgate.gateway.coordinator.group import consumer_heartbeat, share_heartbeat
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, Heartbeat, HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import FIRST_EPOCH, JOINING, EpochMember, GroupRows
from seqgate.gateway.coordinator.group.epoch_group import STATES as EPOCH_STATES
from seqgate.gateway.coordinator.group.events import Before, Effects
from seqgate.gateway.coordinator.group.records import GroupRecord
from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareHeartbeat
from seqgate.gateway.coordinator.places import TopicPartition, Topics
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams import heartbeat as streams_heartbeat
from seqgate.gateway.coordinator.streams.group import StreamsGroup
from seqgate.gateway.coordinator.streams.heartbeat import StreamsHeartbeat, StreamsLimits, StreamsReply

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
            effects.events += before.heartbeat_events(records)
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
