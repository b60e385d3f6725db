"""The groups and offsets that one partition of `__consumer_offsets` holds.

Committed offsets and stored groups change only by replaying records, live and at the start. Source: Kafka's
`GroupCoordinatorShard`, `GroupMetadataManager`, `OffsetMetadataManager`.

Checks whether a member may commit or fetch offsets, and carries out commits.

Committed offsets change only by replaying records, live and at the start. Source: Kafka's
`OffsetMetadataManager`.

Moves a group's committed offsets over records that the group has not read, for message TTL and for evicted
backlogs.

A member that reads behind the new offset continues there. Its next commit counts, as any commit does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup
from seqgate.gateway.coordinator.group.consumer_heartbeat import Topics
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.members import Members
from seqgate.gateway.coordinator.group.offsets import Committer, check_commit
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord
from seqgate.gateway.coordinator.group.stored_groups import StoredGroups
from seqgate.gateway.coordinator.places import Place, TopicPartition
from seqgate.gateway.coordinator.streams.group import StreamsGroup


class GroupShard:
    """All groups of one partition: the stored state, and the operations on it, on members, offsets and whole
    groups.
    """

    def __init__(self, stored: StoredGroups) -> None:
        self.stored = stored
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
        assigned = self.stored.assigned(group_id)
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
        """Delete the committed offsets of all topics except `topics`, and the partitions of deleted topics
        from the share groups' records.
        """
        self.stored.begun.forget_topics_but(self.stored.topics, effects)
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
        group = self._stored.assigned(group_id)
        return ErrorCode.none if group is None else group.check_fetch(member_id or "", member_epoch)

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
        """Return whether a request may commit these offsets: an error code. A commit restarts its member's
        session.
        """
        stored = self._stored
        consumer_group = stored.consumers.groups.get(committer.group_id)
        if consumer_group is not None:
            places = (_place_of(record, stored.topics) for record in records)
            return consumer_group.check_commit(
                committer.member_id,
                committer.generation_id,
                places,
                has_member_epoch=committer.has_member_epoch,
            )
        streams_group = stored.streams.groups.get(committer.group_id)
        if streams_group is not None:
            return streams_group.check_commit(
                committer.member_id,
                committer.generation_id,
                ((record.topic, record.partition) for record in records),
                has_member_epoch=committer.has_member_epoch,
            )
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
        assigned = stored.assigned(group_id)
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


class Target(NamedTuple):
    """The new offset of a group in a partition; `leader_epoch` is that of the record before the offset, or
    -1.
    """

    place: TopicPartition
    offset: int
    leader_epoch: int


def move_forward(
    shard: GroupShard, group_id: str, targets: Sequence[Target], effects: Effects
) -> dict[TopicPartition, int]:
    """Commit the targets ahead of the group's present offsets; return the former offsets of the places that
    moved.

    A place without a committed offset is left alone. So is a place in which an open transaction has an
    offset: a commit now would supersede it. Metadata and commit time stay, so that the offset expires when it
    would have expired before.
    """
    moved: dict[TopicPartition, int] = {}
    for place, offset, leader_epoch in targets:
        value = shard.offsets.of(group_id).get(place)
        if value is None or value.offset >= offset or shard.offsets.pending.is_held(group_id, place):
            continue
        moved[place] = value.offset
        value = value._replace(offset=offset, leader_epoch=leader_epoch)
        shard.commits.commit([OffsetCommitRecord(group_id, *place, value)], effects)
    return moved


def _place_of(record: OffsetCommitRecord, topics: Topics) -> Place | None:
    topic = topics.describe(record.topic)
    return None if topic is None else (topic[0], record.partition)
