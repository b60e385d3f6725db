"""The groups and offsets that the records of one partition of `__consumer_offsets` describe, and the
operations on whole groups.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager.replay`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Pending, TransactionEnd, Waiter
from seqgate.gateway.coordinator.group import classic_protocol
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.coordinator.group.classic_protocol import ClassicRequests, GroupLimits
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.member_bytes import (
    MEMBER_BYTES,
    MemberBytes,
    classic_bytes,
    consumer_bytes,
)
from seqgate.gateway.coordinator.group.offsets import GroupOffsets, OffsetCommits, OffsetRecord
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord, GroupRecord
from seqgate.gateway.coordinator.group.share_heartbeat import ShareGroupLimits
from seqgate.gateway.coordinator.group.stored_groups import (
    CONSUMER,
    SHARE,
    STREAMS,
    ConsumerGroups,
    Group,
    GroupsOfKind,
    RecordKey,
    ShareGroups,
    StreamsGroups,
)
from seqgate.gateway.coordinator.places import NO_TOPICS, Topics
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from seqgate.gateway.coordinator.streams.heartbeat import TASK_OFFSET_BYTES, StreamsLimits, bytes_of_tags
from seqgate.gateway.coordinator.streams.topology import size_bytes_of


class GroupShard:
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
        self.classic = ClassicRequests(self)
        """Handles the requests of the classic protocol."""
        self.commits = OffsetCommits(self)
        self.groups: dict[str, ClassicGroup] = {}
        """The classic groups."""
        self.consumers: ConsumerGroups = GroupsOfKind(CONSUMER, consumer_limits)
        self.shares: ShareGroups = GroupsOfKind(SHARE, share_limits)
        self.streams: StreamsGroups = GroupsOfKind(STREAMS, streams_limits)
        """The streams groups; an id is in only one of `groups`, `consumers`, `shares` and `streams`."""
        self._kinds_of_rows = {row: kind for kind in self._kinds for row in kind.rows}
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

    # --- whole groups

    def delete_assigned(self, group_id: str, effects: Effects) -> None:
        """Delete a consumer or streams group, but not its offsets."""
        kind = self.consumers if group_id in self.consumers.groups else self.streams
        kind.delete(group_id, effects)

    def delete_share_group(self, group_id: str, effects: Effects) -> ErrorCode:
        """Delete a share group without members; return an error code."""
        group = self.shares.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.members:
            return ErrorCode.non_empty_group
        self.shares.delete(group_id, effects)
        return ErrorCode.none

    def share_offsets_error(self, group_id: str) -> tuple[ErrorCode, str | None]:
        """Return why the offsets of a share group can't be changed, as (error code, message); (none, None) if
        they can. Those of a missing group can be changed, too.
        """
        if self.is_read_alone(group_id):
            return ErrorCode.group_id_not_found, f"Group {group_id} is not a share group."
        group = self.shares.groups.get(group_id)
        if group is not None and group.members:
            return ErrorCode.non_empty_group, f"Group {group_id} has members."
        return ErrorCode.none, None

    def forget_topics(self, group_id: str, topic_ids: AbstractSet[uuid.UUID], effects: Effects) -> None:
        """Write that a share group does not read these topics: their delivery state was deleted."""
        group = self.shares.groups.get(group_id)
        if group is not None and not topic_ids.isdisjoint(group.topic_names):
            kept = {place for place in group.begun if place[0] not in topic_ids}
            self.shares.write(group.begun_record(kept, {}), effects)

    def forget_gone_topics(self, effects: Effects) -> None:
        """Delete the offsets of topics that no longer exist; drop those topics from share groups' records."""
        for group_id, group in self.shares.groups.items():
            gone = {
                topic_id
                for topic_id, name in group.topic_names.items()
                if (described := self.topics.describe(name)) is None or described[0] != topic_id
            }
            self.forget_topics(group_id, gone, effects)
        self.commits.commit(self.offsets.of_gone_topics(self.topics), effects)

    def clean_up(self, retention_ms: int, effects: Effects) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        for group in list(self.groups.values()):
            expired = self.offsets.expired(group, effects.now_ms, retention_ms)
            self.commits.forget(group.group_id, expired, effects)
            is_bare = group.state is GroupState.EMPTY and not group.pending_members
            if is_bare and not self.offsets.has_any(group.group_id):
                self.delete_classic(group, effects)
        kinds: list[ConsumerGroup | StreamsGroup] = [*self.consumers.groups.values()]
        kinds += self.streams.groups.values()
        for assigned in kinds:
            group_id = assigned.group_id
            expired = self.offsets.expired_unless(
                group_id, assigned.subscription_test(), effects.now_ms, retention_ms
            )
            self.commits.forget(group_id, expired, effects)
            if assigned.is_empty and not self.offsets.has_any(group_id):
                self.delete_assigned(group_id, effects)

    def delete_classic(self, group: ClassicGroup, effects: Effects) -> None:
        """Delete a classic group, but not its offsets."""
        group.become(GroupState.DEAD, effects.now_ms)
        del self.groups[group.group_id]
        effects.records.append(GroupMetadataRecord(group.group_id, None))

    # --- the start, and timeouts

    def loaded(self, effects: Effects) -> None:
        """Finish loading: a group that now has more members than allowed rebalances, and some of them can't
        join again. A rebalance that was in progress is lost: members either send a heartbeat or time out.
        Source: Kafka's GroupMetadataManager.onLoaded.
        """
        limits = self.limits
        for group in self.groups.values():
            if len(group.members) > limits.max_size:
                reason = "it has more members than group.max.size"
                classic_protocol.prepare_rebalance(group, limits, effects, reason)

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end its phases whose time is up."""
        kind = self.kind_of(group_id)
        if kind is not None:
            members = list(kind.groups[group_id].members)
            kind.expire(group_id, effects)
            left = kind.groups[group_id].members
            gone = [member_id for member_id in members if member_id not in left]
            if kind is self.shares:
                effects.gone_sharers += [(group_id, member_id) for member_id in gone]
            elif kind is self.consumers and gone:
                self.classic.downgrade_and_rebalance(self.consumers.groups[group_id], effects)
            return
        group = self.groups.get(group_id)
        if group is not None:
            classic_protocol.expire(group, self.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time at which `expire` should be called for a group; None for a group that is gone."""
        kind = self.kind_of(group_id)
        if kind is not None:
            return kind.next_deadline_ms(group_id)
        group = self.groups.get(group_id)
        return None if group is None else classic_protocol.next_deadline_ms(group)


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
