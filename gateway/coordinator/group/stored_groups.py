"""All groups and offsets that the records of one partition of `__consumer_offsets` describe.

Source: Kafka's `GroupMetadataManager.replay`, `OffsetMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.deadlines import moved
from seqgate.gateway.coordinator.group import consumer_heartbeat as protocol
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup
from seqgate.gateway.coordinator.group.classic_rebalance import GroupLimits
from seqgate.gateway.coordinator.group.consumer_group import (
    FIRST_GROUP_EPOCH,
    AssignmentEpochRecord,
    ConsumerGroup,
    ConsumerMember,
    ConsumerRecord,
    GroupEpochRecord,
    MemberRecord,
)
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    NO_TOPICS,
    ConsumerLimits,
    Heartbeat,
    HeartbeatRefused,
    HeartbeatReply,
    Topics,
)
from seqgate.gateway.coordinator.group.events import Before, Effects
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES, MemberBytes
from seqgate.gateway.coordinator.group.offsets import Committer, GroupOffsets, OffsetRecord
from seqgate.gateway.coordinator.group.records import (
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
)
from seqgate.gateway.coordinator.group.share_group import ROWS as SHARE_ROWS
from seqgate.gateway.coordinator.group.share_group import ShareGroupRecord
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits, ShareGroups
from seqgate.gateway.coordinator.places import Place, TopicPartition
from seqgate.gateway.coordinator.streams.records import ROWS as STREAMS_ROWS
from seqgate.gateway.coordinator.streams.records import StreamsRecord
from seqgate.gateway.coordinator.streams.request import StreamsLimits
from seqgate.gateway.coordinator.streams.shard import StreamsGroups
from seqgate.gateway.coordinator.transactional import Pending, TransactionEnd

_SHARE_KINDS: Final = frozenset(row.kind for row in SHARE_ROWS)
_STREAMS_KINDS: Final = frozenset(row.kind for row in STREAMS_ROWS)
RecordKey = tuple[str, TopicPartition | None]
"""The key of a record: (group id, None) of a classic group, (group id, place) of an offset.

A record of another group has (group id, (member id, minus the kind of key)).
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
        self.consumers = ConsumerGroups(consumer_limits)
        """The groups of the consumer protocol."""
        self.shares = ShareGroups(share_limits)
        """The share groups."""
        self.streams = StreamsGroups(streams_limits)
        """The streams groups; an id is in only one of `groups`, `consumers`, `shares` and `streams`."""
        self.offsets = GroupOffsets()
        self.topics = topics

    def clock_was_set(self, by_ms: int) -> None:
        """Move all deadlines by the change of the clock, so that every member and rebalance keeps the time
        that it had left.
        """
        for group in self.groups.values():
            group.clock_was_set(by_ms)
        for consumer_group in self.consumers.groups.values():
            for member in consumer_group.members.values():
                member.clock_was_set(by_ms)
        for share_group in self.shares.groups.values():
            for sharer in share_group.members.values():
                sharer.session_deadline_ms = moved(sharer.session_deadline_ms, by_ms)
        self.streams.clock_was_set(by_ms)

    def topics_changed(self) -> None:
        """Note that topics were created, deleted or enlarged: each group compares its topics at its next
        heartbeat.
        """
        self.consumers.topics_changed()
        self.streams.topics_changed()

    # --- records

    def replay(self, record: GroupRecord | Pending | TransactionEnd, now_ms: int) -> None:
        """Replay a record while the log is loaded."""
        if isinstance(record, OffsetRecord):
            self.replay_offset(record, now_ms)
        elif isinstance(record, ConsumerRecord):
            self.consumers.replay(record, now_ms)
            self._settle_kind(
                record.group_id, is_known=record.group_id in self.consumers.groups, now_ms=now_ms
            )
        elif isinstance(record, StreamsRecord):
            self.streams.replay(record, now_ms)
            self._settle_kind(record.group_id, is_known=record.group_id in self.streams.groups, now_ms=now_ms)
        elif isinstance(record, ShareGroupRecord):
            self.shares.replay(record, now_ms)
        elif record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = ClassicGroup.restored(record.group_id, record.value, now_ms)

    def _settle_kind(self, group_id: str, *, is_known: bool, now_ms: int) -> None:
        """Take a group that is of another kind now out of the classic groups.

        When such a group is deleted, keep its offsets as a classic group.
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
        for groups in (self.consumers, self.shares, self.streams):
            for group_id, kind, member_id in groups.stored_keys():
                yield group_id, (member_id, -kind)
        for group_id in self.offsets.groups():
            for place in self.offsets.places(group_id):
                yield group_id, place

    def records_of(self, key: RecordKey) -> Sequence[GroupRecord | Pending]:
        """Return the records of a key as they would be written now; none when the key no longer exists."""
        group_id, place = key
        if place is not None and place[1] < 0:
            kind = -place[1]
            if kind in _STREAMS_KINDS:
                return self.streams.records_of(group_id, kind, place[0])
            groups = self.shares if kind in _SHARE_KINDS else self.consumers
            return groups.records_of(group_id, kind, place[0])
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
        classic = sum(
            MEMBER_BYTES
            + len(member.assignment)
            + sum(len(name) + len(data) for name, data in member.protocols)
            for group in self.groups.values()
            for member in group.members.values()
        )
        consumers = sum(
            MEMBER_BYTES + sum(map(len, member.subscribed_names))
            for group in self.consumers.groups.values()
            for member in group.members.values()
        )
        return classic + consumers + self.streams.count_member_bytes()

    @property
    def is_full(self) -> bool:
        """Whether no further classic, consumer or streams group may be created."""
        return len(self.groups) + len(self.consumers.groups) + len(self.streams.groups) >= self.max_groups

    def is_read_alone(self, group_id: str) -> bool:
        """Return whether each partition has one reader in the group: it is a classic, consumer or streams
        group.
        """
        return group_id in self.groups or group_id in self.consumers.groups or group_id in self.streams.groups

    def knows(self, group_id: str) -> bool:
        """Return whether there is a group of this id, of any kind."""
        return self.is_read_alone(group_id) or group_id in self.shares.groups

    def group_ids(self) -> Iterator[str]:
        """Yield the ids of all groups, of all kinds."""
        yield from self.groups
        yield from self.consumers.groups
        yield from self.shares.groups
        yield from self.streams.groups

    def waiters(self) -> Iterator[Waiter]:
        """Yield the waiting JoinGroup and SyncGroup requests of all groups."""
        for group in self.groups.values():
            for member in group.members.values():
                for waiter in (member.awaiting_join, member.awaiting_sync):
                    if waiter is not None:
                        yield waiter


# The groups of the consumer protocol in one shard of `__consumer_offsets`.


class ConsumerGroups:
    """The consumer groups by id; `limits_of` returns the limits of a group."""

    def __init__(self, limits_of: Callable[[str], ConsumerLimits]) -> None:
        self.limits_of = limits_of
        self.groups: dict[str, ConsumerGroup] = {}

    def replay(self, record: ConsumerRecord, now_ms: int) -> None:
        """Replay a record; it restarts its member's session."""
        group_id = record.group_id
        if isinstance(record, GroupEpochRecord) and record.group_epoch is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if _deletes(record):
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.replay(record, now_ms, self.limits_of(group_id).session_timeout_ms)

    def stored_keys(self) -> Iterator[tuple[str, int, str]]:
        """Yield (group id, kind of key, member id) of every record that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in group.stored_keys():
                yield group_id, kind, member_id

    def records_of(self, group_id: str, kind: int, member_id: str) -> list[ConsumerRecord]:
        """Return the record of a key as it would be written now; none when its group or member no longer
        exists.
        """
        group = self.groups.get(group_id)
        found = None if group is None else group.record_of(kind, member_id)
        return [] if found is None else [found]

    def heartbeat(self, request: Heartbeat, topics: Topics, effects: Effects) -> HeartbeatReply:
        """Handle a valid ConsumerGroupHeartbeat. Raises HeartbeatRefused."""
        group = self.groups.get(request.group_id)
        if request.member_epoch < 0:
            if group is None:
                raise HeartbeatRefused(ErrorCode.group_id_not_found, _not_found(request.group_id))
            before = Before(group, request.member_id)
            leaving = group.members.get(request.member_id)
            reply, records = protocol.leave(group, request)
            if leaving is not None:
                effects.events += before.leave_events([leaving])
        else:
            if group is None:
                if request.member_epoch != 0:
                    raise HeartbeatRefused(ErrorCode.group_id_not_found, _not_found(request.group_id))
                group = ConsumerGroup(request.group_id, group_epoch=FIRST_GROUP_EPOCH)
            limits = self.limits_of(request.group_id)
            before = Before(group, request.member_id, request.instance_id)
            reply, records = protocol.heartbeat(group, request, topics, limits, effects.now_ms)
            self.groups[request.group_id] = group
            changed = any(isinstance(record, MemberRecord) for record in records)
            effects.events += before.heartbeat_events(subscription_changed=changed)
        effects.records += records
        return reply

    def delete(self, group_id: str, effects: Effects) -> None:
        """Delete a group without members."""
        effects.records += self.groups.pop(group_id).deletion_records()

    def check_fetch(self, group_id: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Return whether a member may fetch offsets: an error code, `none` when it may.

        Source: Kafka's ConsumerGroup.validateOffsetFetch.
        """
        member = self.groups[group_id].members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if member.member_epoch == member_epoch else _wrong_epoch(member)

    def check_commit(
        self, committer: Committer, records: Iterable[OffsetCommitRecord], topics: Topics
    ) -> ErrorCode:
        """Return whether a member may commit these offsets: an error code, `none` when it may.

        One partition that the member may not commit refuses the whole commit.
        Source: Kafka's ConsumerGroup.validateOffsetCommit.
        """
        group = self.groups[committer.group_id]
        if committer.generation_id < 0 and not group.members:
            return ErrorCode.none
        member = group.members.get(committer.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if member.classic is None and not committer.has_member_epoch:
            return ErrorCode.unsupported_version
        places = (_place_of(record, topics) for record in records)
        return ErrorCode.none if member.may_commit(committer.generation_id, places) else _wrong_epoch(member)

    def topics_changed(self) -> None:
        """Note that topics were created, deleted or enlarged: each group compares its topics at its next
        heartbeat.
        """
        for group in self.groups.values():
            group.topics_changed = True

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up."""
        group = self.groups[group_id]
        before, members = Before(group, ""), list(group.members.values())
        effects.records += protocol.expire(group, effects.now_ms)
        effects.events += before.timeout_events(members, effects.now_ms)

    def next_deadline_ms(self, group_id: str) -> int:
        """Return the time at which `expire` should be called for a group."""
        return protocol.next_deadline_ms(self.groups[group_id])


def _deletes(record: ConsumerRecord) -> bool:
    if isinstance(record, AssignmentEpochRecord):
        return record.assignment_epoch is None
    return record[-1] is None


def _wrong_epoch(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation


def _place_of(record: OffsetCommitRecord, topics: Topics) -> Place | None:
    topic = topics.describe(record.topic)
    return None if topic is None else (topic[0], record.partition)


def _not_found(group_id: str) -> str:
    return f"Group {group_id} not found."
