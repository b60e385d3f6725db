"""The offsets of all groups of one shard, committed and pending, and their expiration (KIP-211).

    group                                 an offset expires
    simple (no member ever joined)        a retention time after commit
    Empty                                 a retention time after the group became empty
    Stable, of protocol type `consumer`   a retention time after commit, if no member subscribes to the topic
    of the consumer protocol (KIP-848)    a retention time after commit, if no member subscribes to the topic
    of the streams protocol (KIP-1071)    a retention time after commit, if no member reads the topic
    any other                             never

An offset that an open transaction is about to replace is kept until that transaction ends. Source: Kafka's
`OffsetMetadataManager.cleanupExpiredOffsets`, `ClassicGroup.offsetExpirationCondition`.

`PendingOffsets` are committed in open transactions, and take effect when the transaction is committed.

    event                                         effect on a pending offset of the same group and partition
    its transaction is committed                  becomes the committed offset, unless superseded
    its transaction is aborted                    is dropped
    another commit written later takes effect     is superseded: stays pending, and never takes effect
    the committed offset is deleted               is dropped

Source: Kafka's `OffsetMetadataManager.replay`, `replayEndTransactionMarker` (KIP-98, KIP-447). Kafka compares
the offsets of the records in the log; `PendingOffsets` keeps the order in which the records came.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Pending, TransactionEnd
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.epoch_group import GroupError
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord, encode
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.rows import size_of

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
    from seqgate.gateway.coordinator.group.shard import GroupShard
    from seqgate.gateway.coordinator.places import Topics
    from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember

NAME_GROUP_PREFIX: Final = "seqgate-name:"
"""The start of the group ids that stand for producer names, so that every client can ask for a name's last
sequence id: the committed offset of `seqgate-name:<name>` is the last persisted one. This works on topics
with `message.deduplication.enable`. No client can join such a group or commit to it. A client can't ask for a
name that is not UTF-8 in this way.
"""


def is_name_group(group_id: str) -> bool:
    """Return whether a group id stands for a producer name; no real group has such an id."""
    return group_id.startswith(NAME_GROUP_PREFIX)


def producer_name(group_id: str) -> bytes | None:
    """Return the producer name that a group id stands for; None for the id of a real group."""
    if not is_name_group(group_id):
        return None
    return group_id[len(NAME_GROUP_PREFIX) :].encode("utf-8", "surrogatepass")


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
        return self._committed + self.pending.count

    def replay(self, record: OffsetRecord) -> str | None:
        """Replay a record; return the group that the record gives an offset, committed or pending."""
        if isinstance(record, OffsetCommitRecord):
            group_id, topic, partition, value = record
            place = topic, partition
            if value is None:
                self._delete(group_id, place)
                return None
            # A rewrite of the log writes a place's offsets in several batches: if a crash keeps only the copy
            # of the committed offset, the pending ones before it still count.
            if self.pending.count and self.of(group_id).get(place) != value:
                self.pending.supersede(group_id, place)
            self._keep(group_id, place, value)
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
        """Return a place's records as they would be written now: the committed offset, then pending ones."""
        value = self.of(group_id).get(place)
        committed = [] if value is None else [OffsetCommitRecord(group_id, *place, value)]
        return [*committed, *self.pending.at(group_id, place)]

    def places(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions in which a group has an offset, committed or pending."""
        return list(dict.fromkeys([*self.of(group_id), *self.pending.places(group_id)]))

    def has_any(self, group_id: str) -> bool:
        return group_id in self._groups or any(True for _ in self.pending.places(group_id))

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; the caller must not change them."""
        return self._groups.get(group_id, {})

    def of_gone_topics(self, topics: Topics, group_id: str | None = None) -> list[OffsetCommitRecord]:
        """Return the records that delete the offsets, committed and pending, of topics that are gone: those
        of one group, or of all. A topic that was created again is another one. A place stays whole while any
        of its offsets still counts, for a record deletes them all.
        """

        @cache
        def id_of(name: str) -> bytes | None:
            described = topics.describe(name)
            return None if described is None else described[0].bytes

        committed = self._groups.items() if group_id is None else [(group_id, self.of(group_id))]
        gone = {
            (each, place): None
            for each, offsets in committed
            for place, value in offsets.items()
            # first what nearly all are, because there may be a million of them
            if (topic_id := id_of(place[0])) != value.topic_id and (topic_id is None or value.topic_id)
        }
        for each in self.pending.groups() if group_id is None else [group_id]:
            for place in self.pending.places(each):
                held = [pending.record.value for pending in self.pending.at(each, place)]
                topic_id = id_of(place[0])
                if topic_id is not None and any(value.is_of(topic_id) for value in held):
                    gone.pop((each, place), None)
                elif place not in self.of(each):
                    gone[each, place] = None
        return [OffsetCommitRecord(each, *place, None) for each, place in gone]

    def within(self, group_id: str, topics: Container[str]) -> list[tuple[TopicPartition, int, bool]]:
        """Return (place, committed offset, whether a transaction may replace it) of a group in the topics."""
        return [
            (place, value.offset, self.pending.is_held(group_id, place))
            for place, value in self.of(group_id).items()
            if place[0] in topics
        ]

    def groups(self) -> list[str]:
        return list(dict.fromkeys([*self._groups, *self.pending.groups()]))

    def expired(self, group: ClassicGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        if group.protocol_type and group.state is GroupState.EMPTY:
            since_ms: int | None = group.state_since_ms
        elif not group.protocol_type or (
            group.state is GroupState.STABLE and group.subscribed_topics is not None
        ):
            since_ms = None
        else:
            return []
        kept = (group.subscribed_topics or frozenset()) if group.state is GroupState.STABLE else frozenset()
        return self.expired_unless(group.group_id, kept.__contains__, now_ms, retention_ms, since_ms)

    def expired_unless(
        self,
        group_id: str,
        is_kept: Callable[[str], bool],
        now_ms: int,
        retention_ms: int,
        since_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Return the places of a group's offsets that have expired; a topic that `is_kept` never expires. The
        retention time of an offset begins at `since_ms`, or else with its commit.
        """
        return [
            place
            for place, value in self.of(group_id).items()
            if now_ms >= _ends_at(value, since_ms, retention_ms)
            and not is_kept(place[0])
            and not self.pending.is_held(group_id, place)
        ]


def _ends_at(value: CommittedOffset, since_ms: int | None, retention_ms: int) -> int:
    if value.expire_timestamp_ms >= 0:
        return value.expire_timestamp_ms
    return (value.commit_timestamp_ms if since_ms is None else since_ms) + retention_ms


class HeldOffset(NamedTuple):
    """A pending offset as lists show it: its producer, and whether it is superseded."""

    producer_id: int
    producer_epoch: int
    record: OffsetCommitRecord
    is_superseded: bool


class _Held(msgspec.Struct):
    pending: Pending
    superseded: bool = False


class PendingOffsets:
    """The pending offsets by group, place and producer id; those of a place in the order of writing."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, dict[int, _Held]]] = {}
        self._producers: dict[int, set[tuple[str, TopicPartition]]] = {}
        self.count = 0
        """The number of pending offsets; one place may have several."""

    def hold(self, pending: Pending) -> None:
        record: OffsetCommitRecord = pending.record
        place = record.topic, record.partition
        holders = self._groups.setdefault(record.group_id, {}).setdefault(place, {})
        holders.pop(pending.producer_id, None)  # the newest pending offset must be the last entry
        holders[pending.producer_id] = _Held(pending)
        places = self._producers.setdefault(pending.producer_id, set())
        self.count -= len(places)
        places.add((record.group_id, place))
        self.count += len(places)

    def end(self, producer_id: int, *, is_commit: bool) -> list[OffsetCommitRecord]:
        """End a producer's transaction: drop its pending offsets; return those that a commit makes valid."""
        committed = []
        for group_id, place in self._producers.pop(producer_id, ()):
            holders = self._groups[group_id][place]
            if is_commit and not holders[producer_id].superseded:
                committed.append(holders[producer_id].pending.record)
                for other, held in holders.items():
                    if other == producer_id:
                        break
                    held.superseded = True
            del holders[producer_id]
            self.count -= 1
            self._drop_if_empty(group_id, place)
        return committed

    def supersede(self, group_id: str, place: TopicPartition) -> None:
        """Mark the offsets of a place as superseded: a later commit has taken effect."""
        for held in self._groups.get(group_id, {}).get(place, {}).values():
            held.superseded = True

    def forget(self, group_id: str, place: TopicPartition) -> None:
        """Drop the offsets of a place, because the committed offset is deleted."""
        holders = self._groups.get(group_id, {}).get(place)
        if holders is None:
            return
        for producer_id in holders:
            self._producers[producer_id].remove((group_id, place))
            self.count -= 1
            if not self._producers[producer_id]:
                del self._producers[producer_id]
        holders.clear()
        self._drop_if_empty(group_id, place)

    def _drop_if_empty(self, group_id: str, place: TopicPartition) -> None:
        places = self._groups[group_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[group_id]

    def groups(self) -> Iterator[str]:
        yield from self._groups

    def places(self, group_id: str) -> Iterator[TopicPartition]:
        yield from self._groups.get(group_id, ())

    def at(self, group_id: str, place: TopicPartition) -> list[Pending]:
        """Return the pending offsets of a place that may take effect, in the order of writing."""
        holders = self._groups.get(group_id, {}).get(place, {})
        return [held.pending for held in holders.values() if not held.superseded]

    def is_held(self, group_id: str, place: TopicPartition) -> bool:
        """Return whether an open transaction has an offset here, so the committed one may soon change."""
        return place in self._groups.get(group_id, {})

    def of_group(self, group_id: str) -> dict[TopicPartition, list[HeldOffset]]:
        """Return the pending offsets of a group, in the order of writing."""
        return {
            place: [_told(held) for held in holders.values()]
            for place, holders in self._groups.get(group_id, {}).items()
        }

    def of_producer(self, producer_id: int) -> list[HeldOffset]:
        """Return the pending offsets of a producer's transaction, in no order."""
        places = self._producers.get(producer_id, ())
        return [_told(self._groups[group_id][place][producer_id]) for group_id, place in places]


def _told(held: _Held) -> HeldOffset:
    return HeldOffset(*held.pending, is_superseded=held.superseded)


class Committer(NamedTuple):
    """The sender of an OffsetCommit or OffsetFetch. Outside any group: generation -1, no member id."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    has_member_epoch: bool = True
    """Whether the request can come from a member of the consumer protocol (OffsetCommit v9 and later)."""

    @property
    def is_anonymous(self) -> bool:
        return self.generation_id < 0 and not self.member_id and self.group_instance_id is None


def check_commit(group: ClassicGroup, committer: Committer, now_ms: int) -> None:
    """Restart a committer's session. Raises GroupError. Source: Kafka's ClassicGroup.validateOffsetCommit."""
    if committer.generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if committer.is_anonymous:
        raise GroupError(ErrorCode.unknown_member_id)
    member = group.check_member(committer.member_id, committer.group_instance_id)
    if committer.generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise GroupError(ErrorCode.rebalance_in_progress)
    member.restart_session(now_ms)


def _check_commit_of_member(
    group: ConsumerGroup | StreamsGroup,
    committer: Committer,
    records: Sequence[OffsetCommitRecord],
    topics: Topics,
) -> ErrorCode:
    """Return whether a member of a consumer or streams group may commit these offsets: an error code. One
    partition that the member may not commit refuses the whole commit. Source: validateOffsetCommit of Kafka's
    ConsumerGroup and StreamsGroup.
    """
    if committer.generation_id < 0 and not group.members:
        return ErrorCode.none
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if not (committer.has_member_epoch or member.is_classic):
        return ErrorCode.unsupported_version
    places = ((record.topic, record.partition) for record in records)
    may_commit = group.may_commit(committer.member_id, committer.generation_id, places, topics)
    return ErrorCode.none if may_commit else wrong_epoch(member)


def wrong_epoch(member: ConsumerMember | StreamsMember) -> ErrorCode:
    """Return the error for a request of the member at another epoch."""
    return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch


class TargetOffset(NamedTuple):
    """A group's new offset in a partition; `leader_epoch` is of the record before the offset, or -1."""

    place: TopicPartition
    offset: int
    leader_epoch: int


class OffsetCommits:
    """The commits of offsets to all groups of one partition."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def check(self, committer: Committer, records: Sequence[OffsetCommitRecord], now_ms: int) -> ErrorCode:
        """Return whether a request may commit these offsets: an error code. Restarts the member's session."""
        shard = self._shard
        group_id = committer.group_id
        assigned = shard.consumers.groups.get(group_id) or shard.streams.groups.get(group_id)
        if assigned is not None:
            return _check_commit_of_member(assigned, committer, records, shard.topics)
        group = shard.groups.get(committer.group_id)
        if group is None:
            if committer.generation_id >= 0 or committer.group_id in shard.shares.groups:
                return ErrorCode.group_id_not_found
            if shard.is_full:
                return ErrorCode.group_max_size_reached
            return ErrorCode.none
        try:
            check_commit(group, committer, now_ms)
        except GroupError as error:
            return error.error_code
        return ErrorCode.none

    def check_room(
        self, records: Sequence[OffsetCommitRecord], max_bytes: int, largest_bytes: int
    ) -> ErrorCode:
        """Return an error code: whether the offsets fit into a batch of `max_bytes`, a record having at most
        `largest_bytes`, and into the limit of offsets. An offset that replaces another one always fits.
        """
        too_much = ErrorCode.invalid_commit_offset_size
        if len(records) * largest_bytes > max_bytes and size_of(encode, records) > max_bytes:
            return too_much
        shard = self._shard
        offsets = shard.offsets
        if offsets.count + len(records) <= shard.max_offsets:
            return ErrorCode.none
        more = sum((record.topic, record.partition) not in offsets.of(record.group_id) for record in records)
        return too_much if more and offsets.count + more > shard.max_offsets else ErrorCode.none

    def commit(self, records: Iterable[OffsetCommitRecord], effects: Effects) -> None:
        """Commit the offsets, which the caller has checked."""
        for record in records:
            self._shard.replay_offset(record, effects.now_ms)
            effects.records.append(record)

    def forget(self, group_id: str, places: Sequence[TopicPartition], effects: Effects) -> None:
        """Delete the offsets of these places, even if a member subscribes to the topic."""
        self.commit((OffsetCommitRecord(group_id, *place, None) for place in places), effects)

    def move_forward(
        self, group_id: str, targets: Sequence[TargetOffset], effects: Effects
    ) -> dict[TopicPartition, int]:
        """Commit the targets ahead of the group's present offsets; return the former offsets of the places
        that moved, for message TTL and for evicted backlogs.

        A place without a committed offset is left alone. So is a place in which an open transaction has an
        offset: a commit now would supersede it. Metadata and commit time stay, so that the offset expires
        when it would have expired before. A member that reads behind the new offset continues there. Its next
        commit counts, as any commit does.
        """
        moved: dict[TopicPartition, int] = {}
        offsets = self._shard.offsets
        for place, offset, leader_epoch in targets:
            value = offsets.of(group_id).get(place)
            if value is None or value.offset >= offset or offsets.pending.is_held(group_id, place):
                continue
            moved[place] = value.offset
            value = value._replace(offset=offset, leader_epoch=leader_epoch)
            self.commit([OffsetCommitRecord(group_id, *place, value)], effects)
        return moved
