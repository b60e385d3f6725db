"""The offsets of all groups of one shard, committed and pending, and their expiration (KIP-211).

    group                                   an offset expires
    simple (no member ever joined)          a retention time after its commit
    Empty                                   a retention time after the group became empty
    Stable, of protocol type `consumer`     a retention time after its commit, when no member subscribes to the topic
    of the consumer protocol (KIP-848)      a retention time after its commit, when no member subscribes to the topic
    of the streams protocol (KIP-1071)      a retention time after its commit, when no member reads the topic
    any other                               never

An offset that an open transaction is about to replace is kept until that transaction ends.
Source: Kafka's `OffsetMetadataManager.cleanupExpiredOffsets`, `ClassicGroup.offsetExpirationCondition`.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from gateway.coordinator.group.pending_offsets import PendingOffsets
from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transactional import Pending, TransactionEnd

OffsetRecord = OffsetCommitRecord | Pending | TransactionEnd
"""The records about offsets."""


class GroupOffsets:
    """The committed offsets by group and by (topic, partition), and the pending ones."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        self._committed = 0

    def __len__(self) -> int:
        return self._committed

    @property
    def count(self) -> int:
        """The number of offsets, committed and pending."""
        return self._committed + self.pending.count

    def replay(self, record: OffsetRecord) -> str | None:
        """Replay a record; return the group that the record gives an offset, committed or pending."""
        if isinstance(record, OffsetCommitRecord):
            group_id, topic, partition, value = record
            place = topic, partition
            if value is None:
                self._delete(group_id, place)
                return None
            self._keep(group_id, place, value)
            self.pending.supersede(group_id, place)
            return group_id
        if isinstance(record, TransactionEnd):
            self.end_transaction(record)
            return None
        held = record.record
        if not isinstance(held, OffsetCommitRecord) or held.value is None:
            return None  # only offset records have a meaning in a transaction
        self.pending.hold(record)
        return held.group_id

    def _delete(self, group_id: str, place: TopicPartition) -> None:
        self.pending.forget(group_id, place)
        offsets = self._groups.get(group_id)
        if offsets is not None:
            self._committed -= offsets.pop(place, None) is not None
            if not offsets:
                del self._groups[group_id]

    def end_transaction(self, end: TransactionEnd) -> None:
        """Commit or drop a producer's pending offsets."""
        for record in self.pending.end(end.producer_id, is_commit=end.is_commit):
            assert record.value is not None
            self._keep(record.group_id, (record.topic, record.partition), record.value)

    def _keep(self, group_id: str, place: TopicPartition, value: CommittedOffset) -> None:
        offsets = self._groups.setdefault(group_id, {})
        self._committed += place not in offsets
        offsets[place] = value

    def records_at(self, group_id: str, place: TopicPartition) -> list[OffsetCommitRecord | Pending]:
        """Return the records of a place as they would be written now: the committed offset, then the pending ones."""
        value = self.of(group_id).get(place)
        committed = [] if value is None else [OffsetCommitRecord(group_id, *place, value)]
        return [*committed, *self.pending.at(group_id, place)]

    def places(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions in which a group has an offset, committed or pending."""
        return list(dict.fromkeys([*self.of(group_id), *self.pending.places(group_id)]))

    def has_any(self, group_id: str) -> bool:
        """Return whether a group has offsets, committed or pending."""
        return group_id in self._groups or any(True for _ in self.pending.places(group_id))

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; the caller must not change them."""
        return self._groups.get(group_id, {})

    def of_topics_but(self, topics: Container[str]) -> list[OffsetCommitRecord]:
        """Return the records that delete a group's offsets of all topics except the given topics."""
        return [
            OffsetCommitRecord(group_id, topic, partition, None)
            for group_id in self.groups()
            for topic, partition in self.places(group_id)
            if topic not in topics
        ]

    def within(self, group_id: str, topics: Container[str]) -> list[tuple[TopicPartition, int, bool]]:
        """Return (place, committed offset, whether an open transaction may replace the offset) of a group in these
        topics.
        """
        return [
            (place, value.offset, self.pending.is_held(group_id, place))
            for place, value in self.of(group_id).items()
            if place[0] in topics
        ]

    def groups(self) -> list[str]:
        """Return the groups that have offsets, committed or pending."""
        return list(dict.fromkeys([*self._groups, *self.pending.groups()]))

    def expired(self, group: ClassicGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the places of a classic group's offsets that have expired."""
        if group.protocol_type and group.state is GroupState.EMPTY:
            since_ms: int | None = group.state_since_ms
        elif not group.protocol_type or (
            group.state is GroupState.STABLE and group.subscribed_topics is not None
        ):
            since_ms = None
        else:
            return []
        kept = (group.subscribed_topics or frozenset()) if group.state is GroupState.STABLE else frozenset()
        return [
            place
            for place, value in self.of(group.group_id).items()
            if place[0] not in kept
            and now_ms >= _ends_at(value, since_ms, retention_ms)
            and not self.pending.is_held(group.group_id, place)
        ]

    def expired_unless(
        self, group_id: str, is_kept: Callable[[str], bool], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Return the places of a group's offsets that have expired; a topic that `is_kept` never expires."""
        return [
            place
            for place, value in self.of(group_id).items()
            if now_ms >= _ends_at(value, None, retention_ms)
            and not is_kept(place[0])
            and not self.pending.is_held(group_id, place)
        ]


def _ends_at(value: CommittedOffset, since_ms: int | None, retention_ms: int) -> int:
    if value.expire_timestamp_ms >= 0:
        return value.expire_timestamp_ms
    return (value.commit_timestamp_ms if since_ms is None else since_ms) + retention_ms
