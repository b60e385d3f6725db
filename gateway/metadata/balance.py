"""Plans which leaders hand over which partitions, so that leaders are spread evenly after gateways came or
went.

The plan follows from the image alone, and all gateways make the same one. Each carries out the moves of the
partitions that it leads, and plans again on the image after them, so a move that another gateway made
meanwhile needs no agreement.

    1. a move that was ordered (reassignment, election, `seqgate cluster move`)
    2. away from a broker that is drained
    3. to the preferred replica, if it is live: after a restart a gateway gets back what it led
    4. within a topic, until no broker leads two partitions of the topic more than another
    5. of all topics, until no broker leads two partitions more than another; 4 stays true
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import Move, candidates, is_reassigned

PLANNED_AT_ONCE: Final = 1_000
"""Moves in one plan; the next plan has the rest."""


def planned_moves(image: MetadataImage, node_id: int, *, is_balanced: bool = True) -> list[Move]:
    """Return the next moves of the partitions that `node_id` leads, those that were ordered first.

    Without `is_balanced` only ordered moves and those of a drained broker are planned.
    """
    if len(image.brokers.live(node_id)) < 2:
        return []
    plan = _Plan(image)
    plan.follow_orders()
    if is_balanced:
        plan.prefer()
        plan.spread_topics()
        plan.spread_all()
    return plan.moves_of(node_id)[:PLANNED_AT_ONCE]


def spread_moves(image: MetadataImage, node_id: int) -> list[Move]:
    """Return all moves of the partitions that `node_id` leads after which leaders are spread, however many
    these are.
    """
    plan = _Plan(image)
    plan.follow_orders()
    plan.prefer()
    plan.spread_topics()
    plan.spread_all()
    return plan.moves_of(node_id)


class _Plan:
    """The leaders as they are planned, by topic; each step changes some."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        brokers = image.brokers
        self._live = frozenset(brokers.live(-1))
        self._draining = frozenset(brokers.draining())
        self._targets = candidates(self._live, self._draining)
        self._leaders: dict[uuid.UUID, list[int]] = {}
        self._is_fixed: set[tuple[uuid.UUID, int]] = set()
        """The partitions that later steps must not move: their move was ordered, or no live broker leads
        them.
        """
        self._in_all: Counter[int] = Counter()
        for topic in image.topics_by_id.values():
            leaders = [topic.partitions[index].leader for index in range(len(topic.partitions))]
            self._leaders[topic.topic_id] = leaders
            self._in_all.update(leaders)

    def follow_orders(self) -> None:
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            if partition.leader not in self._live:
                self._is_fixed.add((topic_id, index))
            elif partition.next_leader >= 0:
                # the target may have ended since the move was ordered
                first = (partition.next_leader, *partition.replicas)
                to = next((replica for replica in first if replica in self._live), partition.leader)
                self._move(topic_id, index, to)
                self._is_fixed.add((topic_id, index))
            elif is_reassigned(partition):
                self._is_fixed.add((topic_id, index))
            elif (
                partition.leader in self._draining and self._targets and partition.leader not in self._targets
            ):
                of_topic = Counter(self._leaders[topic_id])
                self._move(
                    topic_id, index, min(self._targets, key=lambda b: (of_topic[b], self._in_all[b], b))
                )

    def prefer(self) -> None:
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            if (topic_id, index) not in self._is_fixed and partition.replicas[0] in self._targets:
                self._move(topic_id, index, partition.replicas[0])

    def spread_topics(self) -> None:
        for topic_id, leaders in self._leaders.items():
            of_topic = Counter(leaders)
            movable = self._movable(topic_id)
            while True:
                least = min(self._targets, key=lambda b: (of_topic[b], self._in_all[b], b))
                most = max(
                    (b for b in self._targets if movable[b]),
                    key=lambda b: (of_topic[b], self._in_all[b], -b),
                    default=least,
                )
                if of_topic[most] - of_topic[least] <= 1:
                    break
                index = movable[most].pop()
                self._move(topic_id, index, least)
                movable[least].append(index)
                of_topic[most] -= 1
                of_topic[least] += 1

    def spread_all(self) -> None:
        """Move single partitions from the broker with the most to the one with the fewest, each of a topic of
        which it leads more.
        """
        for topic_id in self._leaders:
            if not self._is_uneven():
                return
            of_topic = Counter(self._leaders[topic_id])
            movable = self._movable(topic_id)
            while True:
                # Pairs differ by at most one within the topic, so a move only changes which of the two has
                # one more.
                pair = self._uneven_pair(of_topic, movable)
                if pair is None:
                    break
                most, least = pair
                index = movable[most].pop()
                self._move(topic_id, index, least)
                of_topic[most] -= 1
                of_topic[least] += 1

    def _is_uneven(self) -> bool:
        counts = [self._in_all[broker] for broker in self._targets]
        return max(counts) - min(counts) > 1

    def _uneven_pair(self, of_topic: Counter[int], movable: dict[int, list[int]]) -> tuple[int, int] | None:
        by_load = sorted(self._targets, key=lambda b: (self._in_all[b], b))
        for most in reversed(by_load):
            if not movable[most]:
                continue
            for least in by_load:
                if self._in_all[most] - self._in_all[least] <= 1:
                    break
                if of_topic[most] > of_topic[least]:
                    return most, least
        return None

    def _movable(self, topic_id: uuid.UUID) -> dict[int, list[int]]:
        """Return the partitions of a topic that may be moved, by their planned leaders; the last index is
        moved first.
        """
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
        self._in_all[leaders[index]] -= 1
        self._in_all[to] += 1
        leaders[index] = to

    def moves_of(self, node_id: int) -> list[Move]:
        """Return the planned moves of the partitions that `node_id` leads."""
        moves: list[tuple[bool, Move]] = []
        for topic_id, index in self._places():
            partition = self._image.topics_by_id[topic_id].partitions[index]
            to = self._leaders[topic_id][index]
            if partition.leader == node_id and to != node_id:
                made = Move(topic_id, index, node_id, partition.leader_epoch, to)
                moves.append(((topic_id, index) not in self._is_fixed, made))
        return [made for _, made in sorted(moves, key=lambda entry: entry[0])]
