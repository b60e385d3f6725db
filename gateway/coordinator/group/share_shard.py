"""The share groups in one shard."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from kio.schema.errors import ErrorCode

from gateway.coordinator.group import share_heartbeat as protocol
from gateway.coordinator.group.consumer_request import HeartbeatRefused, HeartbeatReply, Topics
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.share_group import ShareGroup
from gateway.coordinator.group.share_heartbeat import JOINING, LEAVING, ShareGroupLimits, ShareHeartbeat
from gateway.coordinator.group.share_records import ShareGroupEpochRecord, ShareGroupRecord
from gateway.coordinator.places import Place


class ShareGroups:
    """Looks groups up, begins and ends them; `limits_of` tells what a group is limited to."""

    def __init__(self, limits_of: Callable[[str], ShareGroupLimits]) -> None:
        self.limits_of = limits_of
        self.groups: dict[str, ShareGroup] = {}

    def replay(self, record: ShareGroupRecord, now_ms: int) -> None:
        """Fold in a record of the log; members have a session's time to be heard of."""
        group_id = record.group_id
        if isinstance(record, ShareGroupEpochRecord) and record.group_epoch is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if record[-1] is None:
                return
            group = self.groups[group_id] = ShareGroup(group_id)
        group.replay(record, now_ms, self.limits_of(group_id).session_timeout_ms)

    def stored_keys(self) -> Iterator[tuple[str, int, str]]:
        """(group id, kind of key, member id) of everything that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in group.stored_keys():
                yield group_id, kind, member_id

    def records_of(self, group_id: str, kind: int, member_id: str) -> list[ShareGroupRecord]:
        """The record for a key as it would be written now; none when it is gone."""
        group = self.groups.get(group_id)
        found = None if group is None else group.record_of(kind, member_id)
        return [] if found is None else [found]

    def heartbeat(self, request: ShareHeartbeat, topics: Topics, effects: Effects) -> HeartbeatReply:
        """ShareGroupHeartbeat of a checked request. Raises HeartbeatRefused."""
        group_id, member_id = request.group_id, request.member_id
        group = self.groups.get(group_id)
        if group is None:
            if request.member_epoch != JOINING:
                raise HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
            group = ShareGroup(group_id)
        if request.member_epoch == LEAVING:
            effects.records += protocol.leave(group, member_id)
            return HeartbeatReply(member_id, LEAVING, None)
        reply, records = protocol.heartbeat(group, request, topics, self.limits_of(group_id), effects.now_ms)
        self.groups[group_id] = group
        effects.records += records
        return reply

    def begin(self, group_id: str, place: Place, topic: str, effects: Effects) -> None:
        """Know a group, though nobody may ever have joined it, and that a partition of it is begun."""
        group = self.groups.get(group_id)
        if group is None:
            self._write(ShareGroupEpochRecord(group_id, ShareGroup(group_id).group_epoch), effects)
            group = self.groups[group_id]
        if place not in group.begun:
            self._write(group.begun_record(group.begun | {place}, {place[0]: topic}), effects)

    def forget_topic(self, group_id: str, topic_id: uuid.UUID, effects: Effects) -> None:
        """What was known of a topic was deleted: its partitions would be begun anew."""
        group = self.groups.get(group_id)
        if group is not None and topic_id in group.topic_names:
            kept = {place for place in group.begun if place[0] != topic_id}
            self._write(group.begun_record(kept, {}), effects)

    def forget_topics_but(self, topics: Topics, effects: Effects) -> None:
        """What was begun of a topic that is gone means nothing."""
        for group_id, group in self.groups.items():
            for topic_id, name in list(group.topic_names.items()):
                told = topics.describe(name)
                if told is None or told[0] != topic_id:
                    self.forget_topic(group_id, topic_id, effects)

    def _write(self, record: ShareGroupRecord, effects: Effects) -> None:
        self.replay(record, effects.now_ms)
        effects.records.append(record)

    def delete(self, group_id: str, effects: Effects) -> ErrorCode:
        """A group without members is gone."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.members:
            return ErrorCode.non_empty_group
        effects.records += self.groups.pop(group_id).deletion_records()
        return ErrorCode.none

    def expire(self, group_id: str, effects: Effects) -> None:
        """Do what is due in one group."""
        gone, records = protocol.expire(self.groups[group_id], effects.now_ms)
        effects.records += records
        effects.gone_sharers += [(group_id, member_id) for member_id in gone]

    def next_deadline_ms(self, group_id: str) -> int:
        """When `expire` should be called for a group."""
        return protocol.next_deadline_ms(self.groups[group_id])
