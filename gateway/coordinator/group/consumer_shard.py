"""The groups of the consumer protocol in one shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kio.schema.errors import ErrorCode

from gateway.coordinator.group import consumer_heartbeat as protocol
from gateway.coordinator.group.consumer_group import FIRST_GROUP_EPOCH, ConsumerGroup
from gateway.coordinator.group.consumer_records import ConsumerRecord, GroupEpochRecord
from gateway.coordinator.group.consumer_request import (
    ConsumerLimits,
    Heartbeat,
    HeartbeatRefused,
    HeartbeatReply,
    Topics,
)
from gateway.coordinator.group.effects import Effects


class ConsumerGroups:
    """Looks groups up, begins and ends them; `limits_of` tells what a group is limited to."""

    def __init__(self, limits_of: Callable[[str], ConsumerLimits]) -> None:
        self.limits_of = limits_of
        self.groups: dict[str, ConsumerGroup] = {}

    def replay(self, record: ConsumerRecord, now_ms: int) -> None:
        """Fold in a record of the log; members have a session's time to be heard of."""
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
        """(group id, kind of key, member id) of everything that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in group.stored_keys():
                yield group_id, kind, member_id

    def records_of(self, group_id: str, kind: int, member_id: str) -> list[ConsumerRecord]:
        """The record for a key as it would be written now; none when it is gone."""
        group = self.groups.get(group_id)
        found = None if group is None else group.record_of(kind, member_id)
        return [] if found is None else [found]

    def heartbeat(self, request: Heartbeat, topics: Topics, effects: Effects) -> HeartbeatReply:
        """ConsumerGroupHeartbeat of a checked request. Raises HeartbeatRefused."""
        group = self.groups.get(request.group_id)
        if request.member_epoch < 0:
            if group is None:
                raise HeartbeatRefused(ErrorCode.group_id_not_found, _not_found(request.group_id))
            reply, records = protocol.leave(group, request)
        else:
            if group is None:
                if request.member_epoch != 0:
                    raise HeartbeatRefused(ErrorCode.group_id_not_found, _not_found(request.group_id))
                group = ConsumerGroup(request.group_id, group_epoch=FIRST_GROUP_EPOCH)
            limits = self.limits_of(request.group_id)
            reply, records = protocol.heartbeat(group, request, topics, limits, effects.now_ms)
            self.groups[request.group_id] = group
        effects.records += records
        return reply

    def delete(self, group_id: str, effects: Effects) -> None:
        """A group without members is a group of this protocol no more."""
        effects.records += self.groups.pop(group_id).deletion_records()

    def check_member(
        self, group_id: str, member_id: str, member_epoch: int, *, tells_member_epoch: bool = True
    ) -> ErrorCode:
        """Whether a member may commit or fetch offsets. Source: Kafka's ConsumerGroup.validateOffsetCommit."""
        group = self.groups[group_id]
        if member_epoch < 0 and not group.members:
            return ErrorCode.none
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if member.classic is None and not tells_member_epoch:
            return ErrorCode.unsupported_version
        if member.member_epoch == member_epoch:
            return ErrorCode.none
        return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation

    def topics_changed(self) -> None:
        """Topics came, went or grew: each group looks at its own at its next heartbeat."""
        for group in self.groups.values():
            group.topics_changed = True

    def expire(self, group_id: str, effects: Effects) -> None:
        """Do what is due in one group."""
        effects.records += protocol.expire(self.groups[group_id], effects.now_ms)

    def next_deadline_ms(self, group_id: str) -> int:
        """When `expire` should be called for a group."""
        return protocol.next_deadline_ms(self.groups[group_id])


def _deletes(record: ConsumerRecord) -> bool:
    return record[-1] is None


def _not_found(group_id: str) -> str:
    return f"Group {group_id} not found."
