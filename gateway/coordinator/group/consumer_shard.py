"""The groups of the consumer protocol in one shard of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kio.schema.errors import ErrorCode

from gateway.coordinator.group import consumer_heartbeat as protocol
from gateway.coordinator.group.committer import Committer
from gateway.coordinator.group.consumer_group import FIRST_GROUP_EPOCH, ConsumerGroup, ConsumerMember
from gateway.coordinator.group.consumer_records import (
    AssignmentEpochRecord,
    ConsumerRecord,
    GroupEpochRecord,
    MemberRecord,
)
from gateway.coordinator.group.consumer_request import (
    ConsumerLimits,
    Heartbeat,
    HeartbeatRefused,
    HeartbeatReply,
    Topics,
)
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.epoch_events import Before
from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.places import Place


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
        """Return the record of a key as it would be written now; none when its group or member no longer exists."""
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
        """Note that topics were created, deleted or enlarged: each group compares its topics at its next heartbeat."""
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
