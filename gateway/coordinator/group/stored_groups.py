"""All groups and offsets that the records of one partition of `__consumer_offsets` describe.

Source: Kafka's `GroupMetadataManager.replay`, `OffsetMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.coordinator.change import Waiter
from gateway.coordinator.deadlines import moved
from gateway.coordinator.group.classic_group import ClassicGroup
from gateway.coordinator.group.classic_rebalance import GroupLimits
from gateway.coordinator.group.consumer_records import ConsumerRecord
from gateway.coordinator.group.consumer_request import (
    NO_TOPICS,
    ConsumerLimits,
    Topics,
)
from gateway.coordinator.group.consumer_shard import ConsumerGroups
from gateway.coordinator.group.member_bytes import MEMBER_BYTES, MemberBytes
from gateway.coordinator.group.offsets import GroupOffsets, OffsetRecord
from gateway.coordinator.group.records import (
    GroupMetadataRecord,
    GroupRecord,
)
from gateway.coordinator.group.share_heartbeat import ShareGroupLimits
from gateway.coordinator.group.share_records import KINDS as SHARE_KINDS
from gateway.coordinator.group.share_records import ShareGroupRecord
from gateway.coordinator.group.share_shard import ShareGroups
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.streams.records import KINDS as STREAMS_KINDS
from gateway.coordinator.streams.records import StreamsRecord
from gateway.coordinator.streams.request import StreamsLimits
from gateway.coordinator.streams.shard import StreamsGroups
from gateway.coordinator.transactional import Pending, TransactionEnd

RecordKey = tuple[str, TopicPartition | None]
"""The key of a record: (group id, None) of a classic group, (group id, place) of an offset.

A record of another group has (group id, (member id, minus the kind of key)).
"""


class StoredGroups:
    """All groups of one partition.

    `max_groups` limits classic, consumer and streams groups. `consumer_limits`, `share_limits` and `streams_limits`
    return the limits of one group. `topics` has the topics that members can be assigned.
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
        """Note that topics were created, deleted or enlarged: each group compares its topics at its next heartbeat."""
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
            if kind in STREAMS_KINDS:
                return self.streams.records_of(group_id, kind, place[0])
            groups = self.shares if kind in SHARE_KINDS else self.consumers
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
        """Return whether each partition has one reader in the group: it is a classic, consumer or streams group."""
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
