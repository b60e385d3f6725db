"""The server-side assignors of the consumer protocol: they decide which member gets which partition.

    uniform   every member gets the same number of partitions (±1), and as few partitions as possible move
    range     every subscriber of a topic gets a run of neighbouring partitions, in the order of the members

Source: Kafka's `UniformAssignor`, `RangeAssignor`, KIP-848.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gateway.coordinator.places import Place

Assignment = dict[str, frozenset[Place]]


class Subscriber(NamedTuple):
    """A member as the assignors see it; `order` sorts the members (instance id or member id)."""

    order: str
    topics: frozenset[uuid.UUID]
    current: frozenset[Place]


Assignor = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], Assignment]
"""A function of the members and the number of partitions of each topic."""


def assign_range(members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> Assignment:
    """Assign neighbouring partitions together; the first members get one partition more when the partitions
    do not divide evenly.
    """
    found: dict[str, set[Place]] = {member_id: set() for member_id in members}
    ordered = sorted(members, key=lambda member_id: members[member_id].order)
    for topic_id, count in topics.items():
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + share + (number < extra)
            found[member_id].update((topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(places) for member_id, places in found.items()}


def assign_uniform(members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> Assignment:
    """Assign evenly: a member keeps its partitions unless other members would then get too few."""
    if not members:
        return {}
    balance = _Balance(members, topics)
    balance.keep_current()
    balance.hand_out()
    balance.even_out()
    return {member_id: frozenset(places) for member_id, places in balance.places.items()}


class _Balance:
    """An assignment under construction."""

    def __init__(self, members: Mapping[str, Subscriber], topics: Mapping[uuid.UUID, int]) -> None:
        self._members = members
        self._topics = topics
        self._order = {
            member_id: number
            for number, member_id in enumerate(sorted(members, key=lambda name: members[name].order))
        }
        self._subscribers = {
            topic_id: [name for name, member in members.items() if topic_id in member.topics]
            for topic_id in topics
        }
        self.places: dict[str, set[Place]] = {member_id: set() for member_id in members}
        self._taken: set[Place] = set()

    def _load(self, member_id: str) -> tuple[int, int]:
        return len(self.places[member_id]), self._order[member_id]

    def keep_current(self) -> None:
        """Start with the partitions that each member has and still subscribes to.

        When all members subscribe alike, a member keeps at most its fair share.
        """
        alike = len({member.topics for member in self._members.values()}) == 1
        total = sum(self._topics[topic_id] for topic_id, names in self._subscribers.items() if names)
        share, extra = divmod(total, len(self._members))
        for member_id in self._order:
            member = self._members[member_id]
            kept = sorted(
                place
                for place in member.current
                if place[0] in member.topics
                and place[1] < self._topics.get(place[0], 0)
                and place not in self._taken
            )
            if alike:
                wanted = share
                if extra and len(kept) > share:
                    wanted, extra = share + 1, extra - 1
                kept = kept[:wanted]
            self.places[member_id].update(kept)
            self._taken.update(kept)

    def hand_out(self) -> None:
        """Give each free partition to the subscriber with the fewest; topics with the fewest subscribers come first."""
        for topic_id in sorted(self._topics, key=lambda topic: (len(self._subscribers[topic]), topic)):
            free = [
                (topic_id, partition)
                for partition in range(self._topics[topic_id])
                if (topic_id, partition) not in self._taken
            ]
            heap = [(*self._load(name), name) for name in self._subscribers[topic_id]]
            heapq.heapify(heap)
            for place in free if heap else ():
                load, order, member_id = heap[0]
                self.places[member_id].add(place)
                self._taken.add(place)
                heapq.heapreplace(heap, (load + 1, order, member_id))

    def even_out(self) -> None:
        """Move single partitions from a member to another that has at least two fewer, until there is no such pair."""
        moved = True
        while moved:
            moved = False
            for giver in sorted(self.places, key=self._load, reverse=True):
                if len(self.places[giver]) - min(map(len, self.places.values())) < 2:
                    break
                for place in sorted(self.places[giver]):
                    taker = min(self._subscribers[place[0]], key=self._load)
                    if len(self.places[giver]) - len(self.places[taker]) < 2:
                        continue
                    self.places[giver].discard(place)
                    self.places[taker].add(place)
                    moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"
