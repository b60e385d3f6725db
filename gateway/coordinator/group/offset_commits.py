"""Checks whether a member may commit or fetch offsets, and carries out commits.

Committed offsets change only by replaying records, live and at the start. Source: Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.classic_group import GroupError, GroupState
from gateway.coordinator.group.committer import Committer, check_commit
from gateway.coordinator.group.effects import Effects
from gateway.coordinator.group.records import OffsetCommitRecord
from gateway.coordinator.group.stored_groups import StoredGroups
from gateway.coordinator.places import TopicPartition


class OffsetCommits:
    """The commits of offsets to all groups of one partition."""

    def __init__(self, stored: StoredGroups) -> None:
        self._stored = stored

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return whether a member of a consumer or streams group may fetch offsets: an error code.

        A client without a member id may always fetch.
        """
        if member_id is None and member_epoch < 0:
            return ErrorCode.none
        stored = self._stored
        if group_id in stored.streams.groups:
            return stored.streams.check_fetch(group_id, member_id or "", member_epoch)
        if group_id not in stored.consumers.groups:
            return ErrorCode.none
        return stored.consumers.check_fetch(group_id, member_id or "", member_epoch)

    def check_in_transaction(
        self, committer: Committer, records: Sequence[OffsetCommitRecord], now_ms: int
    ) -> ErrorCode:
        """Return whether a TxnOffsetCommit may commit these offsets: an error code.

        The request need not name the member for which the producer commits.
        """
        if committer.group_id in self._stored.shares.groups:
            return ErrorCode.group_id_not_found
        if committer.is_anonymous and self._stored.knows(committer.group_id):
            return ErrorCode.none
        error = self.check(committer, records, now_ms)
        if error is ErrorCode.rebalance_in_progress:
            return ErrorCode.none  # members may commit what they read before the rebalance
        if error in {ErrorCode.group_id_not_found, ErrorCode.stale_member_epoch}:
            return ErrorCode.illegal_generation
        return error

    def check(self, committer: Committer, records: Sequence[OffsetCommitRecord], now_ms: int) -> ErrorCode:
        """Return whether a request may commit these offsets: an error code. A commit restarts its member's session."""
        stored = self._stored
        if committer.group_id in stored.consumers.groups:
            return stored.consumers.check_commit(committer, records, stored.topics)
        if committer.group_id in stored.streams.groups:
            return stored.streams.check_commit(committer, records)
        group = stored.groups.get(committer.group_id)
        if group is None:
            if committer.generation_id >= 0 or committer.group_id in stored.shares.groups:
                return ErrorCode.group_id_not_found
            if stored.is_full:
                return ErrorCode.group_max_size_reached
            return ErrorCode.none
        try:
            check_commit(group, committer, now_ms)
        except GroupError as error:
            return error.error_code
        return ErrorCode.none

    def has_room_for(self, records: Sequence[OffsetCommitRecord]) -> bool:
        """Return whether these offsets fit into the limit; an offset that replaces another one always fits."""
        stored = self._stored
        offsets = stored.offsets
        if offsets.count + len(records) <= stored.max_offsets:
            return True
        more = sum((record.topic, record.partition) not in offsets.of(record.group_id) for record in records)
        return not more or offsets.count + more <= stored.max_offsets

    def commit(self, records: Iterable[OffsetCommitRecord], effects: Effects) -> None:
        """Commit the offsets, which the caller has checked."""
        for record in records:
            self._stored.replay_offset(record, effects.now_ms)
            effects.records.append(record)

    def delete(
        self, group_id: str, places: Sequence[TopicPartition], effects: Effects
    ) -> ErrorCode | list[ErrorCode]:
        """Handle an OffsetDelete; return an error for the whole request, or one for each partition."""
        stored = self._stored
        if not group_id:
            return ErrorCode.invalid_group_id
        group = stored.groups.get(group_id)
        assigned = stored.consumers.groups.get(group_id) or stored.streams.groups.get(group_id)
        if assigned is not None:
            is_subscribed = assigned.subscribes_to
        elif group is None:
            return ErrorCode.group_id_not_found
        elif group.state is not GroupState.EMPTY and not group.is_of_consumers:
            return ErrorCode.non_empty_group
        else:
            is_subscribed = group.is_subscribed_to
        known = set(stored.offsets.places(group_id))
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

    def forget(self, group_id: str, places: Sequence[TopicPartition], effects: Effects) -> None:
        """Delete the offsets of these places, even if a member subscribes to the topic."""
        self.commit((OffsetCommitRecord(group_id, *place, None) for place in places), effects)
