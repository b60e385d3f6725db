"""The streams groups in one shard of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused, Topics
from seqgate.gateway.coordinator.group.events import Before, Effects
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import OffsetCommitRecord
from seqgate.gateway.coordinator.streams import heartbeat as protocol
from seqgate.gateway.coordinator.streams.group import StreamsGroup
from seqgate.gateway.coordinator.streams.records import StreamsGroupRecord, StreamsMemberRecord, StreamsRecord
from seqgate.gateway.coordinator.streams.request import JOINING, StreamsHeartbeat, StreamsLimits, StreamsReply
from seqgate.gateway.coordinator.streams.topology import size_bytes_of


def joining_bytes(request: StreamsHeartbeat) -> int:
    """Return an upper bound of the bytes that a member adds when it joins, with the topology if its group is
    new.
    """
    return MEMBER_BYTES + _tags_bytes(request.client_tags or ()) + size_bytes_of(request.topology)


def _tags_bytes(tags: Iterable[tuple[str, str]]) -> int:
    return sum(len(key) + len(value) for key, value in tags)


class StreamsGroups:
    """The streams groups by id; `limits_of` returns the limits of a group."""

    def __init__(self, limits_of: Callable[[str], StreamsLimits]) -> None:
        self.limits_of = limits_of
        self.groups: dict[str, StreamsGroup] = {}

    def clock_was_set(self, by_ms: int) -> None:
        """Move all deadlines by the change of the clock."""
        for group in self.groups.values():
            group.clock_was_set(by_ms)

    def replay(self, record: StreamsRecord, now_ms: int) -> None:
        """Replay a record; it restarts its member's session."""
        group_id = record.group_id
        if isinstance(record, StreamsGroupRecord) and record.value is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is None:
            if record[-1] is None:
                return
            group = self.groups[group_id] = StreamsGroup(group_id)
        group.replay(record, now_ms, self.limits_of(group_id).session_timeout_ms)

    def stored_keys(self) -> Iterator[tuple[str, int, str]]:
        """Yield (group id, kind of key, member id) of every record that the log must hold."""
        for group_id, group in self.groups.items():
            for kind, member_id in group.stored_keys():
                yield group_id, kind, member_id

    def records_of(self, group_id: str, kind: int, member_id: str) -> list[StreamsRecord]:
        """Return the record of a key as it would be written now; none when its group or member no longer
        exists.
        """
        group = self.groups.get(group_id)
        found = None if group is None else group.record_of(kind, member_id)
        return [] if found is None else [found]

    def count_member_bytes(self) -> int:
        """Return the bytes of all members and topologies, for the budget of the gateway."""
        members = sum(
            MEMBER_BYTES + _tags_bytes(member.value.client_tags)
            for group in self.groups.values()
            for member in group.members.values()
        )
        return members + sum(size_bytes_of(group.topology) for group in self.groups.values())

    def heartbeat(self, request: StreamsHeartbeat, topics: Topics, effects: Effects) -> StreamsReply:
        """Handle a valid StreamsGroupHeartbeat. Raises HeartbeatRefused."""
        group_id, member_id = request.group_id, request.member_id
        group = self.groups.get(group_id)
        is_new = group is None
        if group is None:
            if request.member_epoch != JOINING:
                kind = "Group" if request.member_epoch < JOINING else "Streams group"
                raise HeartbeatRefused(ErrorCode.group_id_not_found, f"{kind} {group_id} not found.")
            group = StreamsGroup(group_id)
        before = Before(group, member_id)
        if request.member_epoch < JOINING:
            leaving = group.members.get(member_id)
            effects.records += protocol.leave(group, request)
            effects.events += before.leave_events([] if leaving is None else [leaving])
            return StreamsReply(member_id, request.member_epoch)
        reply, records = protocol.heartbeat(group, request, topics, self.limits_of(group_id), effects.now_ms)
        if is_new:
            group.forget_what_is_not_stored()
            reply = replace(reply, endpoint_epoch=group.endpoint_epoch)
        self.groups[group_id] = group
        changed = any(isinstance(record, StreamsMemberRecord) for record in records)
        effects.events += before.heartbeat_events(subscription_changed=changed)
        effects.records += records
        return reply

    def check_fetch(self, group_id: str, member_id: str, member_epoch: int) -> ErrorCode:
        """Return whether a member may fetch offsets: an error code, `none` when it may.

        Source: Kafka's StreamsGroup.validateOffsetFetch.
        """
        member = self.groups[group_id].members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        is_current = member.current.member_epoch == member_epoch
        return ErrorCode.none if is_current else ErrorCode.stale_member_epoch

    def check_commit(self, committer: Committer, records: Sequence[OffsetCommitRecord]) -> ErrorCode:
        """Return whether a member may commit these offsets: an error code, `none` when it may.

        One partition that the member may not commit refuses the whole commit.
        Source: Kafka's StreamsGroup.validateOffsetCommit.
        """
        group = self.groups[committer.group_id]
        if committer.generation_id < 0 and group.is_empty:
            return ErrorCode.none
        member = group.members.get(committer.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not committer.has_member_epoch:
            return ErrorCode.unsupported_version
        places = ((record.topic, record.partition) for record in records)
        may_commit = group.may_commit(member, committer.generation_id, places)
        return ErrorCode.none if may_commit else ErrorCode.stale_member_epoch

    def topics_changed(self) -> None:
        """Note that topics were created, deleted or enlarged: each group compares its topics at its next
        heartbeat.
        """
        for group in self.groups.values():
            group.topics_changed = True

    def delete(self, group_id: str, effects: Effects) -> None:
        """Delete a group without members."""
        effects.records += self.groups.pop(group_id).deletion_records()

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end its initial delay."""
        group = self.groups[group_id]
        before, members = Before(group, ""), list(group.members.values())
        effects.records += protocol.expire(group, self.limits_of(group_id), effects.now_ms)
        effects.events += before.timeout_events(members, effects.now_ms)

    def next_deadline_ms(self, group_id: str) -> int:
        """Return the time at which `expire` should be called for a group."""
        return protocol.next_deadline_ms(self.groups[group_id])
