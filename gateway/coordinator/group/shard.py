"""The groups and offsets that one partition of `__consumer_offsets` holds.

Committed offsets and stored groups change only by replaying records, live and at the start. A rebalance in progress
lives in memory: after a restart, members either send a heartbeat or time out. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Waiter
from gateway.coordinator.group import classic_members, classic_sessions, migration
from gateway.coordinator.group import classic_rebalance as rebalance
from gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState
from gateway.coordinator.group.classic_rebalance import Join
from gateway.coordinator.group.committer import Committer, check_commit
from gateway.coordinator.group.consumer_group import LEAVING, ConsumerGroup
from gateway.coordinator.group.consumer_request import (
    Heartbeat,
    HeartbeatRefused,
    HeartbeatReply,
)
from gateway.coordinator.group.effects import Effects, JoinReply, SyncReply
from gateway.coordinator.group.member_bytes import MEMBER_BYTES
from gateway.coordinator.group.records import (
    CommittedOffset,
    GroupMetadataRecord,
    OffsetCommitRecord,
)
from gateway.coordinator.group.share_heartbeat import ShareHeartbeat
from gateway.coordinator.group.stored_groups import StoredGroups
from gateway.coordinator.places import TopicPartition


class GroupShard(StoredGroups):
    """The operations on the groups of one partition of `__consumer_offsets`."""

    def loaded(self, effects: Effects) -> None:
        """Finish loading: a group that now has more members than allowed rebalances, and some of them can't join again.

        Source: Kafka's GroupMetadataManager.onLoaded.
        """
        for group in self.groups.values():
            if len(group.members) > self.limits.max_size:
                rebalance.prepare_rebalance(group, self.limits, effects)

    # Membership.

    def join(self, group_id: str, request: Join, waiter: Waiter, effects: Effects) -> None:
        """Handle a JoinGroup; answer it at once, or at the end of the rebalance."""
        limits = self.limits
        if not group_id:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_group_id))
            return
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_session_timeout))
            return
        size_bytes = MEMBER_BYTES + sum(len(name) + len(data) for name, data in request.protocols)
        if not self.member_bytes.admit(size_bytes, effects.now_ms):
            effects.reply(waiter, _refused(request, ErrorCode.group_max_size_reached))
            return
        consumer_group = self.consumers.groups.get(group_id)
        if consumer_group is not None and consumer_group.members:
            self._join_consumers(consumer_group, request, waiter, effects)
            return
        group = self.groups.get(group_id)
        if group is None:
            if request.member_id:
                effects.reply(waiter, _refused(request, ErrorCode.unknown_member_id))
                return
            if group_id in self.shares.groups:
                effects.reply(waiter, _refused(request, ErrorCode.inconsistent_group_protocol))
                return
            if consumer_group is not None:
                self.consumers.delete(group_id, effects)
            elif self.is_full:
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
        """Handle a SyncGroup; answer it when the leader has assigned."""
        consumer_group = self.consumers.groups.get(committer.group_id)
        if consumer_group is not None:
            who = committer.member_id, committer.group_instance_id
            try:
                reply = classic_members.sync(
                    consumer_group, who, committer.generation_id, protocol, self.topics, effects.now_ms
                )
            except GroupError as error:
                reply = SyncReply(error_code=error.error_code)
            effects.reply(waiter, reply)
            return
        group = self._find(committer.group_id)
        if isinstance(group, ErrorCode):
            effects.reply(waiter, SyncReply(error_code=group))
            return
        if not self.member_bytes.admit(sum(map(len, assignments.values())), effects.now_ms):
            # Kafka's answer to an assignment that its log refuses
            effects.reply(waiter, SyncReply(error_code=ErrorCode.unknown_server_error))
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
        """Handle a Heartbeat of a classic member."""
        who = member.member_id, member.group_instance_id
        consumer_group = self.consumers.groups.get(member.group_id)
        group = self._find(member.group_id)
        try:
            if consumer_group is not None:
                return classic_members.heartbeat(consumer_group, *who, member.generation_id, now_ms)
            if isinstance(group, ErrorCode):
                return group
            return classic_sessions.heartbeat(group, *who, member.generation_id, now_ms)
        except GroupError as error:
            return error.error_code

    def leave(
        self, group_id: str, leaving: Sequence[tuple[str, str | None]], effects: Effects
    ) -> ErrorCode | list[ErrorCode]:
        """Handle a LeaveGroup; return one error for the request, or one for each (member_id, instance_id)."""
        if not group_id:
            return ErrorCode.invalid_group_id
        consumer_group = self.consumers.groups.get(group_id)
        if consumer_group is not None:
            errors, records = classic_members.leave(consumer_group, leaving)
            effects.records += records
            if records:
                self._members_removed(consumer_group, effects)
            return errors
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        return classic_sessions.leave(group, leaving, self.limits, effects)

    def _find(self, group_id: str) -> ClassicGroup | ErrorCode:
        """Return the classic group, or the error that answers a request for it."""
        if not group_id:
            return ErrorCode.invalid_group_id
        return self.groups.get(group_id) or ErrorCode.unknown_member_id

    def consumer_heartbeat(self, request: Heartbeat, effects: Effects) -> HeartbeatReply:
        """Handle a valid ConsumerGroupHeartbeat. Raises HeartbeatRefused.

        A classic group becomes a consumer group and keeps its offsets. A classic group with members does so only if
        the policy allows it.
        """
        if request.member_epoch == 0:
            size_bytes = MEMBER_BYTES + sum(map(len, request.subscribed_names or ()))
            if not self.member_bytes.admit(size_bytes, effects.now_ms):
                text = f"The members of this gateway's groups hold {self.member_bytes.limit_bytes} bytes, the most allowed."
                raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch == 0 and request.group_id in self.shares.groups:
                text = f"Group {request.group_id} is not a consumer group."
                raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
            if self.is_full and not self.knows(request.group_id):
                text = f"This gateway holds {self.max_groups} groups, the most allowed."
                raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
            reply = self.consumers.heartbeat(request, self.topics, effects)
            if request.member_epoch == LEAVING:
                self._members_removed(self.consumers.groups[request.group_id], effects)
            return reply
        is_empty = group.state is GroupState.EMPTY
        if request.member_epoch != 0 or not (is_empty or self._may_upgrade(group)):
            text = f"Group {request.group_id} is not a consumer group."
            raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
        if not group.is_simple:
            effects.records.append(GroupMetadataRecord(group.group_id, None))
        if not is_empty:
            converted = migration.upgraded(group, self.topics, effects.now_ms)
            effects.records += migration.creation_records(converted)
            self.consumers.groups[request.group_id] = converted
        try:
            reply = self.consumers.heartbeat(request, self.topics, effects)
        except HeartbeatRefused:
            self.consumers.groups.pop(request.group_id, None)
            raise
        migration.have_all_join_again(group, effects)
        del self.groups[request.group_id]
        return reply

    def share_heartbeat(self, request: ShareHeartbeat, effects: Effects) -> HeartbeatReply:
        """Handle a valid ShareGroupHeartbeat. Raises HeartbeatRefused."""
        if self.is_read_alone(request.group_id):
            text = f"Group {request.group_id} is not a share group."
            raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
        return self.shares.heartbeat(request, self.topics, effects)

    def _join_consumers(self, group: ConsumerGroup, request: Join, waiter: Waiter, effects: Effects) -> None:
        static = group.members.get(group.static_members.get(request.group_instance_id or "", ""))
        try:
            reply, records = classic_members.join(
                group, request, self.topics, self.consumers.limits_of(group.group_id), effects.now_ms
            )
        except GroupError as error:
            effects.reply(waiter, _refused(request, error.error_code))
            return
        effects.records += records
        effects.reply(waiter, reply)
        # the static member that was replaced may have been the last one of the consumer protocol
        replaces_consumer = static is not None and static.classic is None
        if replaces_consumer and self._may_downgrade(group):
            self._downgrade(group, effects)

    def _members_removed(self, group: ConsumerGroup, effects: Effects) -> None:
        """Turn a consumer group with only classic members into a classic group, if the policy allows it."""
        if self._may_downgrade(group):
            self._downgrade(group, effects)
            rebalance.prepare_rebalance(self.groups[group.group_id], self.limits, effects)

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        return migration.may_upgrade(group, self.consumers.limits_of(group.group_id))

    def _may_downgrade(self, group: ConsumerGroup) -> bool:
        return migration.may_downgrade(group, self.consumers.limits_of(group.group_id), self.limits.max_size)

    def _downgrade(self, group: ConsumerGroup, effects: Effects) -> None:
        converted = migration.downgraded(group, self.topics, effects.now_ms)
        self.consumers.delete(group.group_id, effects)
        self.groups[group.group_id] = converted
        effects.records.append(GroupMetadataRecord(group.group_id, converted.metadata()))

    # Offsets.

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return whether a member of a consumer group may fetch offsets: an error code.

        A client without member id may.
        """
        if member_id is None and member_epoch < 0:
            return ErrorCode.none
        if group_id not in self.consumers.groups:
            return ErrorCode.none
        return self.consumers.check_member(group_id, member_id or "", member_epoch)

    def check_commit_in_transaction(self, committer: Committer, now_ms: int) -> ErrorCode:
        """Return whether a TxnOffsetCommit may commit: an error code.

        A producer need not name the member it commits for.
        """
        if committer.group_id in self.shares.groups:
            return ErrorCode.group_id_not_found
        if committer.is_anonymous and self.knows(committer.group_id):
            return ErrorCode.none
        error = self.check_commit(committer, now_ms)
        if error is ErrorCode.rebalance_in_progress:
            return ErrorCode.none  # records consumed before the rebalance may be committed during it
        if error in {ErrorCode.group_id_not_found, ErrorCode.stale_member_epoch}:
            return ErrorCode.illegal_generation
        return error

    def check_commit(self, committer: Committer, now_ms: int) -> ErrorCode:
        """Return whether a request may commit offsets: an error code. A commit restarts its member's session."""
        if committer.group_id in self.consumers.groups:
            return self.consumers.check_member(
                committer.group_id,
                committer.member_id,
                committer.generation_id,
                has_member_epoch=committer.has_member_epoch,
            )
        group = self.groups.get(committer.group_id)
        if group is None:
            if committer.generation_id >= 0 or committer.group_id in self.shares.groups:
                return ErrorCode.group_id_not_found
            if self.is_full:
                return ErrorCode.group_max_size_reached
            return ErrorCode.none
        try:
            check_commit(group, committer, now_ms)
        except GroupError as error:
            return error.error_code
        return ErrorCode.none

    def has_room_for(self, records: Sequence[OffsetCommitRecord]) -> bool:
        """Return whether these offsets fit into the limit; an offset that replaces another one always fits."""
        offsets = self.offsets
        if offsets.count + len(records) <= self.max_offsets:
            return True
        more = sum((record.topic, record.partition) not in offsets.of(record.group_id) for record in records)
        return not more or offsets.count + more <= self.max_offsets

    def commit(self, records: Iterable[OffsetCommitRecord], effects: Effects) -> None:
        """Commit the offsets, which the caller has checked."""
        for record in records:
            self.replay_offset(record, effects.now_ms)
            effects.records.append(record)

    def fetch_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group; none for an unknown group."""
        return self.offsets.of(group_id)

    def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition], effects: Effects
    ) -> ErrorCode | list[ErrorCode]:
        """Handle an OffsetDelete; return an error for the whole request, or one for each partition."""
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self.groups.get(group_id)
        consumer_group = self.consumers.groups.get(group_id)
        if consumer_group is not None:
            is_subscribed = consumer_group.subscribes_to
        elif group is None:
            return ErrorCode.group_id_not_found
        elif group.state is not GroupState.EMPTY and not group.is_of_consumers:
            return ErrorCode.non_empty_group
        else:
            is_subscribed = group.is_subscribed_to
        known = set(self.offsets.places(group_id))
        errors = []
        for topic, partition in places:
            if is_subscribed(topic):
                errors.append(ErrorCode.group_subscribed_to_topic)
                continue
            errors.append(ErrorCode.none)
            if (topic, partition) in known:
                known.discard((topic, partition))
                self.commit([OffsetCommitRecord(group_id, topic, partition, None)], effects)
        return errors

    # Whole groups.

    def delete_group(self, group_id: str, effects: Effects) -> ErrorCode:
        """Handle a DeleteGroups: delete an empty group with all its offsets."""
        group = self.groups.get(group_id)
        consumer_group = self.consumers.groups.get(group_id)
        if group is None and consumer_group is None:
            return ErrorCode.group_id_not_found
        if (group is not None and group.state is not GroupState.EMPTY) or (
            consumer_group is not None and consumer_group.members
        ):
            return ErrorCode.non_empty_group
        self.forget_offsets(group_id, self.offsets.places(group_id), effects)
        if group is not None:
            self._forget(group, effects)
        if consumer_group is not None:
            self.consumers.delete(group_id, effects)
        return ErrorCode.none

    def forget_topics_but(self, topics: Container[str], effects: Effects) -> None:
        """Delete the offsets of all topics except these, and the partitions of theirs that share groups have begun."""
        self.shares.forget_topics_but(self.topics, effects)
        self.commit(self.offsets.of_topics_but(topics), effects)

    def clean_up(self, retention_ms: int, effects: Effects) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        for group in list(self.groups.values()):
            expired = self.offsets.expired(group, effects.now_ms, retention_ms)
            self.forget_offsets(group.group_id, expired, effects)
            is_bare = group.state is GroupState.EMPTY and not group.pending_members
            if is_bare and not self.offsets.has_any(group.group_id):
                self._forget(group, effects)
        for group_id, consumer_group in list(self.consumers.groups.items()):
            expired = self.offsets.expired_unless(
                group_id, consumer_group.subscribes_to, effects.now_ms, retention_ms
            )
            self.forget_offsets(group_id, expired, effects)
            if not consumer_group.members and not self.offsets.has_any(group_id):
                self.consumers.delete(group_id, effects)

    def forget_offsets(self, group_id: str, places: Sequence[TopicPartition], effects: Effects) -> None:
        """Delete the offsets of these places, even if a member subscribes to the topic."""
        self.commit((OffsetCommitRecord(group_id, *place, None) for place in places), effects)

    def _forget(self, group: ClassicGroup, effects: Effects) -> None:
        group.become(GroupState.DEAD, effects.now_ms)
        del self.groups[group.group_id]
        effects.records.append(GroupMetadataRecord(group.group_id, None))

    # Time.

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end its phases whose time is up."""
        if group_id in self.shares.groups:
            self.shares.expire(group_id, effects)
            return
        consumer_group = self.consumers.groups.get(group_id)
        if consumer_group is not None:
            size = len(consumer_group.members)
            self.consumers.expire(group_id, effects)
            if len(consumer_group.members) < size:
                self._members_removed(consumer_group, effects)
            return
        group = self.groups.get(group_id)
        if group is not None:
            classic_sessions.expire(group, self.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time at which `expire` should be called for a group; None for a group that no longer exists."""
        if group_id in self.consumers.groups:
            return self.consumers.next_deadline_ms(group_id)
        if group_id in self.shares.groups:
            return self.shares.next_deadline_ms(group_id)
        group = self.groups.get(group_id)
        return None if group is None else classic_sessions.next_deadline_ms(group)


def _refused(request: Join, error: ErrorCode) -> JoinReply:
    return JoinReply(error_code=error, member_id=request.member_id)
