"""Decisions about the leaders of partitions: give those of a gateway that is gone to live ones, and move one;
and the plan by which leaders are spread evenly after gateways came or went.

All gateways read all records from the bucket, so every live one can lead every partition. The replicas of a
partition are the gateways that are to lead it first; the first of them is preferred.

The plan follows from the image alone, and all gateways make the same one. Each carries out the moves of the
partitions that it leads, and plans again on the image after them, so a move that another gateway made
meanwhile needs no agreement. It moves, in this order:

    1. a move that was ordered (reassignment, election, `seqgate cluster move`)
    2. away from a broker that is drained
    3. to the preferred replica, if it is live: after a restart a gateway gets back what it led
    4. within a topic, until no broker leads two partitions of the topic more than another
    5. of all topics, until no broker leads two partitions more than another; 4 stays true
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage, TopicImage
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord

NO_MOVE: Final = -1


class PartitionMove(NamedTuple):
    """A partition that its leader hands over. Each later order raises `partition_epoch`, also one that takes
    the order of this move back.
    """

    topic_id: uuid.UUID
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    to: int


class Leadership(NamedTuple):
    """A time in which one gateway led a partition. After a restart it leads it again in the same epoch."""

    leader_epoch: int
    broker_epoch: int
    """The epoch of the leader's registration; -1 without one."""


def leadership_of(image: MetadataImage, partition: PartitionRecord) -> Leadership:
    broker = image.brokers.by_id.get(partition.leader)
    return Leadership(partition.leader_epoch, -1 if broker is None else broker.broker_epoch)


class Loads:
    """How many partitions each of the brokers leads, of all topics and of one topic at a time."""

    def __init__(self, image: MetadataImage, brokers: Collection[int]) -> None:
        self.brokers = brokers
        self.in_all: Counter[int] = Counter(
            partition.leader
            for topic in image.topics_by_id.values()
            for partition in topic.partitions.values()
        )
        self.of_topic: Counter[int] = Counter()

    def begin(self, topic: TopicImage) -> None:
        self.of_topic = Counter(partition.leader for partition in topic.partitions.values())

    def least(self, preferred: Sequence[int]) -> int:
        """Return the broker that leads the fewest of the topic, then of all; a preferred one first."""
        return min(
            self.brokers,
            key=lambda broker: (self.of_topic[broker], self.in_all[broker], broker not in preferred, broker),
        )

    def move(self, leader: int, to: int) -> None:
        for counts in (self.of_topic, self.in_all):
            counts[leader] -= 1
            counts[to] += 1


def candidates(live: Collection[int], draining: Collection[int]) -> Sequence[int]:
    """Return the live brokers that may get partitions: those that are not about to leave, if any."""
    return sorted(set(live) - set(draining)) or sorted(live)


def led_by(image: MetadataImage, node_id: int) -> int:
    return sum(
        partition.leader == node_id
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )


def failover(
    image: MetadataImage, live: Collection[int], draining: Collection[int]
) -> Iterator[PartitionRecord]:
    """Yield a new leader, in the next epochs, for each partition without a live one; none where no broker is
    live. Brokers that lead the fewest get more, so that leaders stay spread. A live leader's partition stays.
    """
    if not live:
        return
    live = frozenset(live)
    targets = candidates(live, draining)
    loads: Loads | None = None
    for topic in image.topics_by_id.values():
        is_counted = False
        for partition in topic.partitions.values():
            if partition.leader in live:
                continue
            loads = loads or Loads(image, targets)
            if not is_counted:
                loads.begin(topic)
                is_counted = True
            target = reassigned_replicas(partition)
            ordered = partition.next_leader if partition.next_leader in targets else None
            leader = loads.least(target) if ordered is None else ordered
            loads.move(partition.leader, leader)
            yield _led(partition, leader, _with(target, leader), live)


def redirected(
    image: MetadataImage, live: Collection[int], draining: Collection[int]
) -> Iterator[PartitionRecord]:
    """Yield the partitions that a live leader was ordered to hand over to a broker that has ended or is
    drained: they go to a replica that may lead, or the order is taken back.
    """
    targets = candidates(live, draining)
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            to = partition.next_leader
            if to == NO_MOVE or to in targets or partition.leader not in live:
                continue
            target = reassigned_replicas(partition)
            others = [replica for replica in target if replica in targets and replica != partition.leader]
            if others:
                yield next_record(partition, next_leader=others[0])
            else:
                yield without_reassignment_and_move(partition, _with(target, partition.leader), partition.isr)


def wanted(image: MetadataImage, planned: PartitionMove) -> PartitionRecord | None:
    """Return the partition of a move; None if its record has changed since the plan, or `to` has ended or is
    drained.
    """
    partition = image.partition(planned.topic_id, planned.partition)
    if partition is None or planned.to == planned.leader:
        return None
    epochs = (partition.leader, partition.leader_epoch, partition.partition_epoch)
    if epochs != (planned.leader, planned.leader_epoch, planned.partition_epoch):
        return None
    brokers = image.brokers
    return partition if planned.to in candidates(brokers.live(planned.leader), brokers.draining()) else None


def move(image: MetadataImage, planned: PartitionMove) -> Decision[bool]:
    """Carry out a move while it is wanted; only the present leader decides this. The answer says whether the
    partition moves. Ends the reassignment in progress; without one, `to` becomes the preferred replica.
    """
    partition, to = wanted(image, planned), planned.to
    if partition is None:
        return Decision((), False)
    replicas = reassigned_replicas(partition)
    if not has_adding_or_removing_replicas(partition):
        replicas = (to, *(replica for replica in replicas if replica != to))[: len(replicas)]
    live = image.brokers.live(planned.leader)
    return Decision((_led(partition, to, _with(replicas, to), live),), True)


def move_all(image: MetadataImage, moves: Sequence[PartitionMove]) -> Decision[list[bool]]:
    """Carry out moves of different partitions in one change, each as `move` does."""
    decisions = [move(image, planned) for planned in moves]
    return Decision(
        [record for decision in decisions for record in decision.records],
        [decision.answer for decision in decisions],
    )


def stay_all(image: MetadataImage, moves: Sequence[PartitionMove]) -> Decision[list[bool]]:
    """Let partitions stay where they are, after a change with their moves failed; the answer says which of
    them have moved. The change that failed may come into the log later, if it finds the place empty for which
    it was made. The records here take that place. They change nothing but the epochs of the partitions, and
    orders stay in force.
    """
    stays: list[MetadataRecord] = []
    answer = []
    for topic_id, index, leader, leader_epoch, _, _ in moves:
        partition = image.partition(topic_id, index)
        has_moved = partition is None or (partition.leader, partition.leader_epoch) != (leader, leader_epoch)
        answer.append(has_moved)
        if partition is not None and not has_moved:
            stays.append(next_record(partition))
    return Decision(stays, answer)


def order_move(image: MetadataImage, topic_id: uuid.UUID, index: int, to: int) -> Decision[ApiError | None]:
    """Order the leader of a partition to hand the partition over to `to`. If `to` leads already, it becomes
    the preferred replica, and a move or a reassignment that was ordered ends.
    """
    partition = image.partition(topic_id, index)
    if partition is None:
        return Decision((), ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE))
    if to not in image.brokers.live(to):
        text = f"Broker {to} is not live."
        return Decision((), ApiError(ErrorCode.preferred_leader_not_available, text))
    if partition.leader == to:
        stays = staying(partition, image.brokers.live(to))
        return Decision(() if _is_settled(partition) else (stays,), None)
    if to in image.brokers.draining():
        text = f"Broker {to} is drained, and leads no more partitions."
        return Decision((), ApiError(ErrorCode.preferred_leader_not_available, text))
    if partition.next_leader == to:
        return Decision((), None)
    return Decision((next_record(partition, next_leader=to),), None)


def _is_settled(partition: PartitionRecord) -> bool:
    """Whether the preferred replica leads, and nothing else is ordered."""
    is_to_move = partition.next_leader != NO_MOVE or has_adding_or_removing_replicas(partition)
    return partition.leader == partition.replicas[0] and not is_to_move


def staying(partition: PartitionRecord, live: Collection[int]) -> PartitionRecord:
    """Return the next record of a partition that its leader keeps, as the preferred replica: no move and no
    reassignment are ordered any more.
    """
    before = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    replicas = (partition.leader, *(replica for replica in before if replica != partition.leader))
    isr = tuple(replica for replica in replicas if replica in live)
    return without_reassignment_and_move(partition, replicas, isr)


def has_adding_or_removing_replicas(partition: PartitionRecord) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def reassigned_replicas(partition: PartitionRecord) -> tuple[int, ...]:
    """Return the replicas of the partition after the reassignment in progress, if there is one."""
    if not partition.removing_replicas:
        return partition.replicas
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def next_record(partition: PartitionRecord, **changes: Any) -> PartitionRecord:
    """Return the next record of a partition, which has these fields in place of the present ones."""
    return msgspec.structs.replace(partition, partition_epoch=partition.partition_epoch + 1, **changes)


def without_reassignment_and_move(
    partition: PartitionRecord, replicas: tuple[int, ...], isr: tuple[int, ...], **changes: Any
) -> PartitionRecord:
    """Return the next record of a partition without a reassignment, and without a move that was ordered."""
    none: tuple[int, ...] = ()
    changes |= {"adding_replicas": none, "removing_replicas": none, "next_leader": NO_MOVE}
    return next_record(partition, replicas=replicas, isr=isr, **changes)


def _with(replicas: tuple[int, ...], leader: int) -> tuple[int, ...]:
    """Return as many replicas with the leader among them; the preferred one stays the first if it can."""
    if leader in replicas:
        return replicas
    return (*replicas[:-1], leader)


def _led(
    partition: PartitionRecord, leader: int, replicas: tuple[int, ...], live: Collection[int]
) -> PartitionRecord:
    isr = tuple(replica for replica in replicas if replica in live)
    return without_reassignment_and_move(
        partition, replicas, isr, leader=leader, leader_epoch=partition.leader_epoch + 1
    )


PLANNED_AT_ONCE: Final = 1_000
"""Moves in one plan; the next plan has the rest."""


def planned_moves(
    image: MetadataImage, node_id: int, *, is_balanced: bool = True, most: int | None = PLANNED_AT_ONCE
) -> list[PartitionMove]:
    """Return the next moves of the partitions that `node_id` leads, ordered moves first; without
    `is_balanced` only these and a drained broker's. After all moves of all brokers (`most` None) leaders are
    spread.
    """
    if len(image.brokers.live(node_id)) < 2:
        return []
    plan = _Plan(image)
    plan.follow_orders()
    if is_balanced:
        plan.prefer()
        plan.spread_topics()
        plan.spread_all()
    return plan.moves_of(node_id)[:most]


class _Plan:
    """The leaders as they are planned, by topic; each step changes some."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        brokers = image.brokers
        self._live = frozenset(brokers.live(-1))
        self._targets = candidates(self._live, brokers.draining())
        self._leaders: dict[uuid.UUID, list[int]] = {}
        self._is_fixed: set[tuple[uuid.UUID, int]] = set()
        """The partitions that no later step moves: their move was ordered, or no live broker leads them."""
        self._in_all: Counter[int] = Counter()
        self._in_topic: dict[uuid.UUID, Counter[int]] = {}
        for topic in image.topics_by_id.values():
            leaders = [topic.partitions[index].leader for index in range(len(topic.partitions))]
            self._leaders[topic.topic_id] = leaders
            self._in_topic[topic.topic_id] = Counter(leaders)
            self._in_all.update(leaders)

    def follow_orders(self) -> None:
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            # the target may have ended, or is drained, since the move was ordered
            first = (partition.next_leader, *partition.replicas) if partition.next_leader >= 0 else ()
            ordered = next((replica for replica in first if replica in self._targets), None)
            if partition.leader not in self._live:
                self._is_fixed.add((topic_id, index))
            elif ordered is not None:
                self._move(topic_id, index, ordered)
                self._is_fixed.add((topic_id, index))
            elif partition.leader not in self._targets:
                in_topic = self._in_topic[topic_id]
                least = min(self._targets, key=lambda b: (in_topic[b], self._in_all[b], b))
                self._move(topic_id, index, least)

    def prefer(self) -> None:
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            if (topic_id, index) not in self._is_fixed and partition.replicas[0] in self._targets:
                self._move(topic_id, index, partition.replicas[0])

    def spread_topics(self) -> None:
        for topic_id, in_topic in self._in_topic.items():
            movable = self._movable(topic_id)
            while True:
                least = min(self._targets, key=lambda b: (in_topic[b], self._in_all[b], b))
                most = max(
                    (b for b in self._targets if movable[b]),
                    key=lambda b: (in_topic[b], self._in_all[b], -b),
                    default=least,
                )
                if in_topic[most] - in_topic[least] <= 1:
                    break
                index = movable[most].pop()
                self._move(topic_id, index, least)
                movable[least].append(index)

    def spread_all(self) -> None:
        """Move partitions from the broker with most to that with fewest, of topics of which it leads more."""
        for topic_id, in_topic in self._in_topic.items():
            if not self._is_uneven():
                return
            movable = self._movable(topic_id)
            while True:
                # Pairs differ by at most one within the topic, so a move only changes which of the two has
                # one more.
                pair = self._uneven_pair(in_topic, movable)
                if pair is None:
                    break
                most, least = pair
                index = movable[most].pop()
                self._move(topic_id, index, least)

    def _is_uneven(self) -> bool:
        counts = [self._in_all[broker] for broker in self._targets]
        return max(counts) - min(counts) > 1

    def _uneven_pair(self, in_topic: Counter[int], movable: dict[int, list[int]]) -> tuple[int, int] | None:
        by_load = sorted(self._targets, key=lambda b: (self._in_all[b], b))
        for most in reversed(by_load):
            if not movable[most]:
                continue
            for least in by_load:
                if self._in_all[most] - self._in_all[least] <= 1:
                    break
                if in_topic[most] > in_topic[least]:
                    return most, least
        return None

    def _movable(self, topic_id: uuid.UUID) -> dict[int, list[int]]:
        """Return the movable partitions of a topic by planned leader; the last index is moved first."""
        movable: dict[int, list[int]] = defaultdict(list)
        for index, leader in enumerate(self._leaders[topic_id]):
            if (topic_id, index) not in self._is_fixed:
                movable[leader].append(index)
        return movable

    def _places(self) -> Iterator[tuple[uuid.UUID, int]]:
        for topic_id, leaders in self._leaders.items():
            for index in range(len(leaders)):
                yield topic_id, index

    def _move(self, topic_id: uuid.UUID, index: int, to: int) -> None:
        leaders = self._leaders[topic_id]
        for counts in (self._in_all, self._in_topic[topic_id]):
            counts[leaders[index]] -= 1
            counts[to] += 1
        leaders[index] = to

    def moves_of(self, node_id: int) -> list[PartitionMove]:
        """Return the planned moves of the partitions that `node_id` leads."""
        moves: list[tuple[bool, PartitionMove]] = []
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            to = self._leaders[topic_id][index]
            if partition.leader == node_id and to != node_id:
                epochs = partition.leader_epoch, partition.partition_epoch
                made = PartitionMove(topic_id, index, node_id, *epochs, to)
                moves.append(((topic_id, index) not in self._is_fixed, made))
        return [made for _, made in sorted(moves, key=lambda entry: entry[0])]
