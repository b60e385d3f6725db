"""The groups that one partition of `__consumer_offsets` holds, and the operations on whole groups.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Container

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.classic_protocol import ClassicRequests
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.members import Members
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
        self.members = Members(stored, self.classic)
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

    def forget_topics_but(self, topics: Container[str], effects: Effects) -> None:
        """Delete the offsets of all topics except `topics`; drop those topics from share groups' records."""
        self.stored.begun.forget_topics_but(self.stored.topics, effects)
        self.commits.commit(self.offsets.of_topics_but(topics), effects)

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
