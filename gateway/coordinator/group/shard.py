"""The groups and offsets that one partition of `__consumer_offsets` holds.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from gateway.coordinator.group.classic_rebalance import GroupLimits
from gateway.coordinator.group.consumer_group import ConsumerGroup
from gateway.coordinator.group.consumer_request import NO_TOPICS, ConsumerLimits, Topics
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.members import Members
from gateway.coordinator.group.offset_commits import OffsetCommits
from gateway.coordinator.group.records import GroupMetadataRecord
from gateway.coordinator.group.share_heartbeat import ShareGroupLimits
from gateway.coordinator.group.stored_groups import StoredGroups
from gateway.coordinator.streams.group import StreamsGroup
from gateway.coordinator.streams.request import StreamsLimits


class GroupShard:
    """All groups of one partition: the stored state, and the operations on it, on members, offsets and whole groups.

    `max_groups` limits classic, consumer and streams groups. `consumer_limits`, `share_limits` and `streams_limits`
    return the limits of one group. `topics` has the topics that members can be assigned.
    """

    def __init__(
        self,
        limits: GroupLimits,
        max_groups: int,
        consumer_limits: Callable[[str], ConsumerLimits] = lambda _: ConsumerLimits(),
        topics: Topics = NO_TOPICS,
        share_limits: Callable[[str], ShareGroupLimits] = lambda _: ShareGroupLimits(),
        streams_limits: Callable[[str], StreamsLimits] = lambda _: StreamsLimits(),
    ) -> None:
        self.stored = stored = StoredGroups(
            limits, max_groups, consumer_limits, topics, share_limits, streams_limits
        )
        self.members = Members(stored)
        self.commits = OffsetCommits(stored)
        self.groups = stored.groups
        """The classic groups."""
        self.consumers = stored.consumers
        """The groups of the consumer protocol."""
        self.shares = stored.shares
        """The share groups."""
        self.streams = stored.streams
        """The streams groups; an id is in only one of `groups`, `consumers`, `shares` and `streams`."""
        self.offsets = stored.offsets
        self.replay = stored.replay
        self.stored_keys = stored.stored_keys
        self.records_of = stored.records_of

    def delete_group(self, group_id: str, effects: Effects) -> ErrorCode:
        """Handle a DeleteGroups: delete an empty group with all its offsets."""
        group = self.groups.get(group_id)
        assigned = self.consumers.groups.get(group_id) or self.streams.groups.get(group_id)
        if group is None and assigned is None:
            return ErrorCode.group_id_not_found
        if (group is not None and group.state is not GroupState.EMPTY) or (
            assigned is not None and not assigned.is_empty
        ):
            return ErrorCode.non_empty_group
        self.commits.forget(group_id, self.offsets.places(group_id), effects)
        if group is not None:
            self._forget(group, effects)
        if assigned is not None:
            self._delete_assigned(group_id, effects)
        return ErrorCode.none

    def _delete_assigned(self, group_id: str, effects: Effects) -> None:
        """Delete a consumer or streams group without members."""
        if group_id in self.consumers.groups:
            self.consumers.delete(group_id, effects)
        else:
            self.streams.delete(group_id, effects)

    def forget_topics_but(self, topics: Container[str], effects: Effects) -> None:
        """Delete the committed offsets of all topics except `topics`, and the partitions of deleted topics from the share groups' records."""
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
        kinds: list[ConsumerGroup | StreamsGroup] = [*self.consumers.groups.values()]
        kinds += self.streams.groups.values()
        for assigned in kinds:
            group_id = assigned.group_id
            expired = self.offsets.expired_unless(
                group_id, assigned.subscribes_to, effects.now_ms, retention_ms
            )
            self.commits.forget(group_id, expired, effects)
            if assigned.is_empty and not self.offsets.has_any(group_id):
                self._delete_assigned(group_id, effects)

    def _forget(self, group: ClassicGroup, effects: Effects) -> None:
        group.become(GroupState.DEAD, effects.now_ms)
        del self.groups[group.group_id]
        effects.records.append(GroupMetadataRecord(group.group_id, None))
