"""The groups and offsets that one partition of `__consumer_offsets` holds.

Committed offsets and stored groups change by replaying records only, live and at start. What a rebalance
has under way lives in memory: after a restart members are heard of again or given up.
Source: Kafka's `GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from gateway.coordinator.group import classic_rebalance as rebalance
from gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState
from gateway.coordinator.group.classic_rebalance import GroupLimits, Join
from gateway.coordinator.group.effects import Effects, JoinReply, SyncReply, Waiter
from gateway.coordinator.group.offsets import GroupOffsets, TopicPartition
from gateway.coordinator.group.records import (
    CommittedOffset,
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
)

RecordKey = tuple[str, TopicPartition | None]
"""A group, or its offset in a partition."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits or asks; a consumer outside any group has generation -1 and no member id."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class GroupShard:
    """All groups of one partition. `max_groups` bounds them."""

    def __init__(self, limits: GroupLimits, max_groups: int) -> None:
        self.limits = limits
        self.max_groups = max_groups
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = GroupOffsets()

    # Records.

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Fold in a record of the log as it is loaded."""
        if isinstance(record, OffsetCommitRecord):
            self.replay_offset(record, now_ms)
        elif record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = ClassicGroup.restored(record.group_id, record.value, now_ms)

    def replay_offset(self, record: OffsetCommitRecord, now_ms: int) -> None:
        """Fold in an offset; the first of a group that never had members makes it known."""
        self.offsets.replay(record)
        if record.value is not None and record.group_id not in self.groups:
            self.groups[record.group_id] = ClassicGroup(record.group_id, now_ms)

    def keys(self) -> Iterator[RecordKey]:
        """What the log must hold a record of, so that what was written before can go."""
        for group_id, group in self.groups.items():
            if not group.is_simple:
                yield group_id, None
        for group_id in self.offsets.groups():
            for place in self.offsets.of(group_id):
                yield group_id, place

    def record_of(self, key: RecordKey) -> GroupRecord | None:
        """The record for a key as it would be written now; None when it is gone."""
        group_id, place = key
        if place is not None:
            value = self.offsets.of(group_id).get(place)
            return None if value is None else OffsetCommitRecord(group_id, *place, value)
        group = self.groups.get(group_id)
        if group is None or group.is_simple:
            return None
        stored = group.metadata()
        # between generations the members are about to join again
        return GroupMetadataRecord(group_id, stored if group.is_stored else stored._replace(members=()))

    # Membership.

    def join(self, group_id: str, request: Join, waiter: Waiter, effects: Effects) -> None:
        """JoinGroup: answered now or when the rebalance has everyone."""
        limits = self.limits
        if not group_id:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_group_id))
            return
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_session_timeout))
            return
        group = self.groups.get(group_id)
        if group is None:
            if request.member_id:
                effects.reply(waiter, _refused(request, ErrorCode.unknown_member_id))
                return
            if len(self.groups) >= self.max_groups:
                effects.reply(waiter, _refused(request, ErrorCode.group_max_size_reached))
                return
            group = self.groups[group_id] = ClassicGroup(group_id, effects.now_ms)
        rebalance.join(group, request, waiter, limits, effects)

    def sync(
        self,
        committer: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        waiter: Waiter,
        effects: Effects,
    ) -> None:
        """SyncGroup: answered when the leader has assigned."""
        group = self._find(committer.group_id)
        if isinstance(group, ErrorCode):
            effects.reply(waiter, SyncReply(error_code=group))
            return
        rebalance.sync(
            group,
            committer.member_id,
            committer.group_instance_id,
            committer.generation_id,
            protocol,
            assignments,
            waiter,
            effects,
        )

    def heartbeat(self, member: Committer, now_ms: int) -> ErrorCode:
        """Heartbeat."""
        group = self._find(member.group_id)
        if isinstance(group, ErrorCode):
            return group
        try:
            return rebalance.heartbeat(
                group, member.member_id, member.group_instance_id, member.generation_id, now_ms
            )
        except GroupError as error:
            return error.error_code

    def leave(
        self, group_id: str, leaving: Sequence[tuple[str, str | None]], effects: Effects
    ) -> ErrorCode | list[ErrorCode]:
        """LeaveGroup: an error for the whole request, or one for each (member_id, group_instance_id)."""
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        return rebalance.leave(group, leaving, self.limits, effects)

    def _find(self, group_id: str) -> ClassicGroup | ErrorCode:
        if not group_id:
            return ErrorCode.invalid_group_id
        return self.groups.get(group_id) or ErrorCode.unknown_member_id

    # Offsets.

    def check_commit(self, committer: Committer, now_ms: int) -> ErrorCode:
        """Whether the offsets of a request may be committed; a member that commits is heard of."""
        group = self.groups.get(committer.group_id)
        if group is None:
            if committer.generation_id >= 0:
                return ErrorCode.illegal_generation
            if len(self.groups) >= self.max_groups:
                return ErrorCode.group_max_size_reached
            return ErrorCode.none
        try:
            _check_commit(group, committer, now_ms)
        except GroupError as error:
            return error.error_code
        return ErrorCode.none

    def commit(self, records: Iterable[OffsetCommitRecord], effects: Effects) -> None:
        """Commit what was checked."""
        for record in records:
            self.replay_offset(record, effects.now_ms)
            effects.records.append(record)

    def fetch_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """All committed offsets of a group; none of a group that is not known."""
        return self.offsets.of(group_id)

    def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition], effects: Effects
    ) -> ErrorCode | list[ErrorCode]:
        """OffsetDelete: an error for the whole request, or one for each partition."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.state is not GroupState.EMPTY and group.subscribed_topics is None:
            return ErrorCode.non_empty_group
        subscribed = group.subscribed_topics or frozenset()
        committed = self.offsets.of(group_id)
        errors = []
        for topic, partition in places:
            if group.state is not GroupState.EMPTY and topic in subscribed:
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if (topic, partition) in committed:
                self.commit([OffsetCommitRecord(group_id, topic, partition, None)], effects)
        return errors

    # Whole groups.

    def delete_group(self, group_id: str, effects: Effects) -> ErrorCode:
        """DeleteGroups: an empty group with all its offsets."""
        group = self.groups.get(group_id)
        if not group_id:
            return ErrorCode.invalid_group_id
        if group is None:
            return ErrorCode.group_id_not_found
        if group.state is not GroupState.EMPTY:
            return ErrorCode.non_empty_group
        self._delete_offsets(group_id, list(self.offsets.of(group_id)), effects)
        self._forget(group, effects)
        return ErrorCode.none

    def forget_topics_but(self, topics: Container[str], effects: Effects) -> None:
        """Offsets of a topic that is gone mean nothing."""
        self.commit(self.offsets.of_topics_but(topics), effects)

    def clean_up(self, retention_ms: int, effects: Effects) -> None:
        """Give up offsets kept long enough, and groups that have neither members nor offsets."""
        for group in list(self.groups.values()):
            expired = self.offsets.expired(group, effects.now_ms, retention_ms)
            self._delete_offsets(group.group_id, expired, effects)
            is_bare = group.state is GroupState.EMPTY and not group.pending_members
            if is_bare and not self.offsets.of(group.group_id):
                self._forget(group, effects)

    def _delete_offsets(self, group_id: str, places: Sequence[TopicPartition], effects: Effects) -> None:
        self.commit((OffsetCommitRecord(group_id, *place, None) for place in places), effects)

    def _forget(self, group: ClassicGroup, effects: Effects) -> None:
        group.become(GroupState.DEAD, effects.now_ms)
        del self.groups[group.group_id]
        effects.records.append(GroupMetadataRecord(group.group_id, None))

    # Time.

    def expire(self, group_id: str, effects: Effects) -> None:
        """Do what is due in one group."""
        group = self.groups.get(group_id)
        if group is not None:
            rebalance.expire(group, self.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """When `expire` should be called for a group; None for one that is gone."""
        group = self.groups.get(group_id)
        return None if group is None else rebalance.next_deadline_ms(group)

    def unload(self, answer: Callable[[Waiter], None]) -> None:
        """Stop serving: `answer` refuses every request that waits."""
        for group in self.groups.values():
            for member in group.members.values():
                for waiter in (member.awaiting_join, member.awaiting_sync):
                    if waiter is not None:
                        answer(waiter)


def _refused(request: Join, error: ErrorCode) -> JoinReply:
    return JoinReply(error_code=error, member_id=request.member_id)


def _check_commit(group: ClassicGroup, committer: Committer, now_ms: int) -> None:
    """Raises GroupError. Source: Kafka's ClassicGroup.validateOffsetCommit."""
    if committer.generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if committer.generation_id < 0 and not committer.member_id and committer.group_instance_id is None:
        raise GroupError(ErrorCode.unknown_member_id)
    member = group.check_member(committer.member_id, committer.group_instance_id)
    if committer.generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise GroupError(ErrorCode.rebalance_in_progress)
    member.heard_of(now_ms)
