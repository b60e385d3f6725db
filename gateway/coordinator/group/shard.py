"""The groups and offsets that one partition of `__consumer_offsets` holds.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from gateway.coordinator.group.classic_rebalance import GroupLimits
from gateway.coordinator.group.consumer_request import NO_TOPICS, ConsumerLimits, Topics
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.members import Members
from gateway.coordinator.group.offset_commits import OffsetCommits
from gateway.coordinator.group.records import GroupMetadataRecord
from gateway.coordinator.group.share_heartbeat import ShareGroupLimits
from gateway.coordinator.group.stored_groups import StoredGroups


class GroupShard:
    """All groups of one partition: the stored state, and the operations on it, on members, offsets and whole groups.

    `max_groups` limits classic and consumer groups. `consumer_limits` and `share_limits` return the limits of one
    group. `topics` has the topics that members can be assigned.
    """

    def __init__(
        self,
        limits: GroupLimits,
        max_groups: int,
        consumer_limits: Callable[[str], ConsumerLimits] = lambda _: ConsumerLimits(),
        topics: Topics = NO_TOPICS,
        share_limits: Callable[[str], ShareGroupLimits] = lambda _: ShareGroupLimits(),
    ) -> None:
        self.stored = stored = StoredGroups(limits, max_groups, consumer_limits, topics, share_limits)
        self.members = Members(stored)
        self.commits = OffsetCommits(stored)
        self.groups = stored.groups
        """The classic groups."""
        self.consumers = stored.consumers
        """The groups of the consumer protocol."""
        self.shares = stored.shares
        """The share groups; an id is in only one of `groups`, `consumers` and `shares`."""
        self.offsets = stored.offsets
        self.replay = stored.replay
        self.stored_keys = stored.stored_keys
        self.records_of = stored.records_of

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
        self.commits.forget(group_id, self.offsets.places(group_id), effects)
        if group is not None:
            self._forget(group, effects)
        if consumer_group is not None:
            self.consumers.delete(group_id, effects)
        return ErrorCode.none

    def forget_topics_but(self, topics: Container[str], effects: Effects) -> None:
        """Delete the offsets of all topics except these, and the partitions of theirs that share groups have begun."""
        self.shares.forget_topics_but(self.stored.topics, effects)
        self.commits.commit(self.offsets.of_topics_but(topics), effects)

    def clean_up(self, retention_ms: int, effects: Effects) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        for group in list(self.groups.values()):
            expired = self.offsets.expired(group, effects.now_ms, retention_ms)
            self.commits.forget(group.group_id, expired, effects)
            is_bare = group.state is GroupState.EMPTY and not group.pending_members
            if is_bare and not self.offsets.has_any(group.group_id):
                self._forget(group, effects)
        for group_id, consumer_group in list(self.consumers.groups.items()):
            expired = self.offsets.expired_unless(
                group_id, consumer_group.subscribes_to, effects.now_ms, retention_ms
            )
            self.commits.forget(group_id, expired, effects)
            if not consumer_group.members and not self.offsets.has_any(group_id):
                self.consumers.delete(group_id, effects)

    def _forget(self, group: ClassicGroup, effects: Effects) -> None:
        group.become(GroupState.DEAD, effects.now_ms)
        del self.groups[group.group_id]
        effects.records.append(GroupMetadataRecord(group.group_id, None))
