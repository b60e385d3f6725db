"""The operations of group members beside the requests of the classic protocol (`classic_protocol`):
heartbeats of the consumer protocol, and timing out.

A rebalance in progress lives in memory: after a restart, members either send a heartbeat or time out. A group
whose members change their protocol one by one is converted on the way (see `migration`). Source: Kafka's
`GroupMetadataManager`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group import classic_protocol, migration
from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.classic_protocol import ClassicRequests
from seqgate.gateway.coordinator.group.consumer_heartbeat import Heartbeat, HeartbeatRefused, HeartbeatReply
from seqgate.gateway.coordinator.group.epoch_group import LEAVING
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.group.stored_groups import StoredGroups


class Members:
    def __init__(self, stored: StoredGroups, classic: ClassicRequests) -> None:
        self._stored = stored
        self._classic = classic

    def loaded(self, effects: Effects) -> None:
        """Finish loading: a group that now has more members than allowed rebalances, and some of them can't
        join again. Source: Kafka's GroupMetadataManager.onLoaded.
        """
        stored = self._stored
        for group in stored.groups.values():
            if len(group.members) > stored.limits.max_size:
                classic_protocol.prepare_rebalance(
                    group, stored.limits, effects, "it has more members than group.max.size"
                )

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
                self._classic.members_removed(stored.consumers.groups[request.group_id], effects)
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
                self._classic.members_removed(stored.consumers.groups[group_id], effects)
            return
        group = stored.groups.get(group_id)
        if group is not None:
            classic_protocol.expire(group, stored.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time at which `expire` should be called for a group; None for a group that is gone."""
        stored = self._stored
        kind = stored.kind_of(group_id)
        if kind is not None:
            return kind.next_deadline_ms(group_id)
        group = stored.groups.get(group_id)
        return None if group is None else classic_protocol.next_deadline_ms(group)
