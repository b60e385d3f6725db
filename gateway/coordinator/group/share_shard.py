"""The share groups in one shard of `__consumer_offsets`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from kio.schema.errors import ErrorCode

from gateway.coordinator.group import share_heartbeat as protocol
from gateway.coordinator.group.consumer_request import HeartbeatRefused, HeartbeatReply, Topics
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.epoch_events import Before
from gateway.coordinator.group.share_group import ShareGroup
from gateway.coordinator.group.share_heartbeat import JOINING, LEAVING, ShareGroupLimits, ShareHeartbeat
from gateway.coordinator.group.share_records import (
    ShareAssignmentEpochRecord,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
)
from gateway.coordinator.places import Place


class ShareGroups:
    """The share groups by id; `limits_of` returns the limits of a group."""

    def __init__(self, limits_of: Callable[[str], ShareGroupLimits]) -> None:
        self.limits_of = limits_of
        self.groups: dict[str, ShareGroup] = {}

    def replay(self, record: ShareGroupRecord, now_ms: int) -> None:
        """Replay a record; it restarts its member's session."""
        group_id = record.group_id
        if isinstance(record, ShareGroupEpochRecord) and record.group_epoch is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if _deletes(record):
                return
            group = self.groups[group_id] = ShareGroup(group_id)
        group.replay(record, now_ms, self.limits_of(group_id).session_timeout_ms)

    def stored_keys(self) -> Iterator[tuple[str, int, str]]:
        """Yield (group id, kind of key, member id) of every record that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in group.stored_keys():
                yield group_id, kind, member_id

    def records_of(self, group_id: str, kind: int, member_id: str) -> list[ShareGroupRecord]:
        """Return the record of a key as it would be written now; none when its group or member no longer exists."""
        group = self.groups.get(group_id)
        found = None if group is None else group.record_of(kind, member_id)
        return [] if found is None else [found]

    def heartbeat(self, request: ShareHeartbeat, topics: Topics, effects: Effects) -> HeartbeatReply:
        """Handle a valid ShareGroupHeartbeat. Raises HeartbeatRefused."""
        group_id, member_id = request.group_id, request.member_id
        group = self.groups.get(group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
            group = ShareGroup(group_id)
        before = Before(group, member_id)
        if request.member_epoch == LEAVING:
            leaving = group.members.get(member_id)
            effects.records += protocol.leave(group, member_id)
            effects.events += before.leave_events([] if leaving is None else [leaving])
            return HeartbeatReply(member_id, LEAVING, None)
        reply, records = protocol.heartbeat(group, request, topics, self.limits_of(group_id), effects.now_ms)
        self.groups[group_id] = group
        changed = any(isinstance(record, ShareMemberRecord) for record in records)
        effects.events += before.heartbeat_events(subscription_changed=changed)
        effects.records += records
        return reply

    def begin(self, group_id: str, place: Place, topic: str, effects: Effects) -> None:
        """Note that a partition of a group is begun, and create the group if it is new.

        The group need not have had any member.
        """
        group = self.groups.get(group_id)
        if group is None:
            self._write(ShareGroupEpochRecord(group_id, ShareGroup(group_id).group_epoch), effects)
            group = self.groups[group_id]
        if place not in group.begun:
            self._write(group.begun_record(group.begun | {place}, {place[0]: topic}), effects)

    def forget_topic(self, group_id: str, topic_id: uuid.UUID, effects: Effects) -> None:
        """Delete the record that the group reads the topic's partitions, because their delivery state was deleted."""
        group = self.groups.get(group_id)
        if group is not None and topic_id in group.topic_names:
            kept = {place for place in group.begun if place[0] != topic_id}
            self._write(group.begun_record(kept, {}), effects)

    def forget_topics_but(self, topics: Topics, effects: Effects) -> None:
        """Forget the begun partitions of all topics that no longer exist."""
        for group_id, group in self.groups.items():
            for topic_id, name in list(group.topic_names.items()):
                described = topics.describe(name)
                if described is None or described[0] != topic_id:
                    self.forget_topic(group_id, topic_id, effects)

    def _write(self, record: ShareGroupRecord, effects: Effects) -> None:
        self.replay(record, effects.now_ms)
        effects.records.append(record)

    def delete(self, group_id: str, effects: Effects) -> ErrorCode:
        """Delete a group without members; return an error code."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.members:
            return ErrorCode.non_empty_group
        effects.records += self.groups.pop(group_id).deletion_records()
        return ErrorCode.none

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose session timed out."""
        group = self.groups[group_id]
        before, members = Before(group, ""), list(group.members.values())
        gone, records = protocol.expire(group, effects.now_ms)
        effects.records += records
        effects.events += before.timeout_events(members, effects.now_ms)
        effects.gone_sharers += [(group_id, member_id) for member_id in gone]

    def next_deadline_ms(self, group_id: str) -> int:
        """Return the time at which `expire` should be called for a group."""
        return protocol.next_deadline_ms(self.groups[group_id])


def _deletes(record: ShareGroupRecord) -> bool:
    if isinstance(record, ShareAssignmentEpochRecord):
        return record.assignment_epoch is None
    return record[-1] is None
