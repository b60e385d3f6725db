"""The operations of group members: join, sync, heartbeat, leave, and timing out.

A rebalance in progress lives in memory: after a restart, members either send a heartbeat or time out. A group
whose members change their protocol one by one is converted on the way (see `migration`). Source: Kafka's
`GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.group import classic_members, migration
from seqgate.gateway.coordinator.group import classic_rebalance as rebalance
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState
from seqgate.gateway.coordinator.group.classic_rebalance import Join
from seqgate.gateway.coordinator.group.consumer_group import MEMBER, ConsumerGroup
from seqgate.gateway.coordinator.group.consumer_heartbeat import Heartbeat, HeartbeatRefused, HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import LEAVING
from seqgate.gateway.coordinator.group.events import Before, Effects, JoinReply, SyncReply
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.group.stored_groups import StoredGroups
from seqgate.gateway.coordinator.streams import topology_description
from seqgate.gateway.coordinator.streams.topology_description import DescriptionUpdate


class Members:
    def __init__(self, stored: StoredGroups) -> None:
        self._stored = stored

    def loaded(self, effects: Effects) -> None:
        """Finish loading: a group that now has more members than allowed rebalances, and some of them can't
        join again. Source: Kafka's GroupMetadataManager.onLoaded.
        """
        stored = self._stored
        for group in stored.groups.values():
            if len(group.members) > stored.limits.max_size:
                rebalance.prepare_rebalance(
                    group, stored.limits, effects, "it has more members than group.max.size"
                )

    def join(self, group_id: str, request: Join, waiter: Waiter, effects: Effects) -> None:
        """Handle a JoinGroup; answer it at once, or at the end of the rebalance."""
        stored = self._stored
        limits = stored.limits
        if not group_id:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_group_id))
            return
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            effects.reply(waiter, _refused(request, ErrorCode.invalid_session_timeout))
            return
        size_bytes = MEMBER_BYTES + sum(len(name) + len(data) for name, data in request.protocols)
        if not stored.member_bytes.admit(size_bytes, effects.now_ms):
            effects.reply(waiter, _refused(request, ErrorCode.group_max_size_reached))
            return
        consumer_group = stored.consumers.groups.get(group_id)
        if consumer_group is not None and consumer_group.members:
            self._join_consumers(consumer_group, request, waiter, effects)
            return
        group = stored.groups.get(group_id)
        if group is None:
            streams_group = stored.streams.groups.get(group_id)
            has_tasks = streams_group is not None and not streams_group.is_empty
            if group_id in stored.shares.groups or has_tasks:
                effects.reply(waiter, JoinReply(error_code=ErrorCode.inconsistent_group_protocol))
                return
            if request.member_id:
                effects.reply(waiter, _refused(request, ErrorCode.unknown_member_id))
                return
            if consumer_group is not None:
                stored.consumers.delete(group_id, effects)
            elif streams_group is not None:
                stored.streams.delete(group_id, effects)
            elif stored.is_full:
                effects.reply(waiter, _refused(request, ErrorCode.group_max_size_reached))
                return
            group = stored.groups[group_id] = ClassicGroup(group_id, effects.now_ms)
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
        stored = self._stored
        consumer_group = stored.consumers.groups.get(committer.group_id)
        if consumer_group is not None:
            try:
                reply = classic_members.sync(
                    consumer_group, committer, protocol, stored.topics, effects.now_ms
                )
            except GroupError as error:
                reply = SyncReply(error_code=error.error_code)
            effects.reply(waiter, reply)
            return
        group = self._find(committer.group_id)
        if isinstance(group, ErrorCode):
            effects.reply(waiter, SyncReply(error_code=group))
            return
        if not stored.member_bytes.admit(sum(map(len, assignments.values())), effects.now_ms):
            # Kafka answers with this error when its log refuses an assignment
            effects.reply(waiter, SyncReply(error_code=ErrorCode.unknown_server_error))
            return
        rebalance.sync(group, committer, protocol, assignments, waiter, effects)

    def heartbeat(self, member: Committer, now_ms: int) -> ErrorCode:
        consumer_group = self._stored.consumers.groups.get(member.group_id)
        group = self._find(member.group_id)
        try:
            if consumer_group is not None:
                return classic_members.heartbeat(consumer_group, member, now_ms)
            if isinstance(group, ErrorCode):
                return group
            return rebalance.heartbeat(group, member, now_ms)
        except GroupError as error:
            return error.error_code

    def leave(
        self,
        group_id: str,
        leaving: Sequence[tuple[str, str | None]],
        effects: Effects,
        reason: str | None = None,
    ) -> ErrorCode | list[ErrorCode]:
        """Handle a LeaveGroup; return one error, or one for each. `reason` is why, in the client's words."""
        stored = self._stored
        if not group_id:
            return ErrorCode.invalid_group_id
        consumer_group = stored.consumers.groups.get(group_id)
        if consumer_group is not None:
            before, members = Before(consumer_group, ""), list(consumer_group.members.values())
            errors, records = classic_members.leave(consumer_group, leaving)
            effects.records += records
            effects.events += before.leave_events(members, reason)
            if records:
                self._members_removed(consumer_group, effects)
            return errors
        group = stored.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        return rebalance.leave(group, leaving, stored.limits, effects, reason)

    def _find(self, group_id: str) -> ClassicGroup | ErrorCode:
        """Return the classic group, or the error that answers a request for it."""
        if not group_id:
            return ErrorCode.invalid_group_id
        return self._stored.groups.get(group_id) or ErrorCode.unknown_member_id

    def consumer_heartbeat(self, request: Heartbeat, effects: Effects) -> HeartbeatReply:
        """Handle a valid ConsumerGroupHeartbeat. Raises HeartbeatRefused.

        A classic group becomes a consumer group and keeps its offsets. A classic group with members does so
        only if the policy allows it.
        """
        stored = self._stored
        if request.member_epoch == 0:
            size_bytes = MEMBER_BYTES + sum(map(len, request.subscribed_names or ()))
            stored.admit_member(size_bytes, effects.now_ms)
        group = stored.groups.get(request.group_id)
        if group is None:
            others = stored.shares.groups, stored.streams.groups
            if request.member_epoch == 0 and any(request.group_id in groups for groups in others):
                text = f"Group {request.group_id} is not a consumer group."
                raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
            stored.check_room(request.group_id)
            reply = stored.consumers.heartbeat(request, stored.topics, effects)
            if request.member_epoch == LEAVING:
                self._members_removed(stored.consumers.groups[request.group_id], effects)
            return reply
        is_empty = group.state is GroupState.EMPTY
        limits = stored.consumers.limits_of(group.group_id)
        if request.member_epoch != 0 or not (is_empty or migration.may_upgrade(group, limits)):
            text = f"Group {request.group_id} is not a consumer group."
            raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
        if not group.is_simple:
            effects.records.append(GroupMetadataRecord(group.group_id, None))
        if not is_empty:
            converted = migration.upgraded(group, stored.topics, effects.now_ms)
            effects.records += migration.creation_records(converted)
            stored.consumers.groups[request.group_id] = converted
        try:
            reply = stored.consumers.heartbeat(request, stored.topics, effects)
        except HeartbeatRefused:
            stored.consumers.groups.pop(request.group_id, None)
            raise
        migration.have_all_join_again(group, effects)
        del stored.groups[request.group_id]
        return reply

    def describe_topology(self, update: DescriptionUpdate, effects: Effects) -> str | None:
        """Store the description of a streams group's topology; return why it can't be stored, None if it is.
        Raises HeartbeatRefused.
        """
        stored, group_id = self._stored, update.group_id
        group = stored.streams.groups.get(group_id)
        if group is None:
            text = "is not a streams group." if stored.knows(group_id) else "not found."
            raise HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} {text}")
        max_bytes = stored.streams.limits_of(group_id).description_max_bytes
        data = topology_description.data_of(group, update)
        refusal = topology_description.refusal_of(update, data, max_bytes)
        if refusal is None and not stored.member_bytes.admit(len(data), effects.now_ms):
            group.asking.wait_longer(update.topology_epoch, effects.now_ms)
            return "The groups of this gateway hold as many bytes as seqgate.group.members.max.bytes allows."
        for record in topology_description.store(group, update, data, max_bytes):
            stored.streams.write(record, effects)
        return refusal

    # --- groups that change their protocol

    def _join_consumers(self, group: ConsumerGroup, request: Join, waiter: Waiter, effects: Effects) -> None:
        static = group.members.get(group.static_members.get(request.group_instance_id or "", ""))
        before = Before(group, request.member_id or request.fresh_member_id, request.group_instance_id)
        try:
            reply, records = classic_members.join(
                group,
                request,
                self._stored.topics,
                self._stored.consumers.limits_of(group.group_id),
                effects.now_ms,
            )
        except GroupError as error:
            effects.reply(waiter, JoinReply(error_code=error.error_code))
            return
        effects.records += records
        changed = any(record.row is MEMBER for record in records)
        effects.events += before.heartbeat_events(subscription_changed=changed, reason_given=request.reason)
        effects.reply(waiter, reply)
        # the static member that was replaced may have been the last one of the consumer protocol
        replaces_consumer = static is not None and not static.is_classic
        if replaces_consumer and self._may_downgrade(group):
            self._downgrade(group, effects)

    def _members_removed(self, group: ConsumerGroup, effects: Effects) -> None:
        """Turn a consumer group with only classic members into a classic group, if the policy allows it."""
        if self._may_downgrade(group):
            self._downgrade(group, effects)
            converted = self._stored.groups[group.group_id]
            reason = "the last member of the consumer protocol is gone, so it is a classic group now"
            rebalance.prepare_rebalance(converted, self._stored.limits, effects, reason)

    def _may_downgrade(self, group: ConsumerGroup) -> bool:
        return migration.may_downgrade(
            group, self._stored.consumers.limits_of(group.group_id), self._stored.limits.max_size
        )

    def _downgrade(self, group: ConsumerGroup, effects: Effects) -> None:
        stored = self._stored
        converted = migration.downgraded(group, stored.topics, effects.now_ms)
        stored.consumers.delete(group.group_id, effects)
        stored.groups[group.group_id] = converted
        effects.records.append(GroupMetadataRecord(group.group_id, converted.metadata()))

    # --- timeouts

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end its phases whose time is up."""
        stored = self._stored
        kind = stored.kind_of(group_id)
        if kind is not None:
            members = list(kind.groups[group_id].members)
            kind.expire(group_id, effects)
            left = kind.groups[group_id].members
            gone = [member_id for member_id in members if member_id not in left]
            if kind is stored.shares:
                effects.gone_sharers += [(group_id, member_id) for member_id in gone]
            elif kind is stored.consumers and gone:
                self._members_removed(stored.consumers.groups[group_id], effects)
            return
        group = stored.groups.get(group_id)
        if group is not None:
            rebalance.expire(group, stored.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time at which `expire` should be called for a group; None for a group that is gone."""
        stored = self._stored
        kind = stored.kind_of(group_id)
        if kind is not None:
            return kind.next_deadline_ms(group_id)
        group = stored.groups.get(group_id)
        return None if group is None else rebalance.next_deadline_ms(group)


def _refused(request: Join, error: ErrorCode) -> JoinReply:
    return JoinReply(error_code=error, member_id=request.member_id)
