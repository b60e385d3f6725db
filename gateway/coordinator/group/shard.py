"""The groups that one partition of `__consumer_offsets` holds, and the operations on whole groups.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group import classic_protocol
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.classic_protocol import ClassicRequests
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.offsets import OffsetCommits
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.group.stored_groups import StoredGroups
from seqgate.gateway.coordinator.streams.group import StreamsGroup


class GroupShard:
    """All groups of one partition: the stored state, and the operations on it."""

    def __init__(self, stored: StoredGroups) -> None:
        self.stored = stored
        self.classic = ClassicRequests(stored)
        """Handles the requests of the classic protocol."""
        self.commits = OffsetCommits(stored)
        self.groups = stored.groups
        """The classic groups."""
        self.consumers = stored.consumers
        """The groups of the consumer protocol."""
        self.shares = stored.shares
        self.streams = stored.streams
        """The streams groups; an id is in only one of `groups`, `consumers`, `shares` and `streams`."""
        self.offsets = stored.offsets
        self.replay = stored.replay
        self.stored_keys = stored.stored_keys
        self.records_of = stored.records_of

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

    def forget_gone_topics(self, effects: Effects) -> None:
        """Delete the offsets of topics that no longer exist; drop those topics from share groups' records."""
        self.stored.begun.forget_gone_topics(self.stored.topics, effects)
        self.commits.commit(self.offsets.of_gone_topics(self.stored.topics), effects)

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
                group_id, assigned.subscribes_to, effects.now_ms, retention_ms
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
        limits = self.stored.limits
        for group in self.groups.values():
            if len(group.members) > limits.max_size:
                reason = "it has more members than group.max.size"
                classic_protocol.prepare_rebalance(group, limits, effects, reason)

    def expire(self, group_id: str, effects: Effects) -> None:
        """Remove the members of one group whose time is up, and end its phases whose time is up."""
        kind = self.stored.kind_of(group_id)
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
            classic_protocol.expire(group, self.stored.limits, effects)

    def next_deadline_ms(self, group_id: str) -> int | None:
        """Return the time at which `expire` should be called for a group; None for a group that is gone."""
        kind = self.stored.kind_of(group_id)
        if kind is not None:
            return kind.next_deadline_ms(group_id)
        group = self.groups.get(group_id)
        return None if group is None else classic_protocol.next_deadline_ms(group)
