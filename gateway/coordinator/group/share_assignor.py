"""Assigns the partitions of a share group, where a partition may have several readers (the `simple` assignor, KIP-932).

    sharing    every partition has as many readers, no more than are needed for each member to have one
    balance    no member has two partitions more than another
    keeping    a member keeps its partitions as far as the other two rules allow

When all members have one subscription, the rules hold over all topics together; otherwise they hold for each topic.
Source: Kafka's `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`, `SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from gateway.coordinator.places import Place

Targets = dict[str, frozenset[Place]]


def assign(
    subscriptions: Mapping[str, frozenset[uuid.UUID]], places: Iterable[Place], current: Targets
) -> Targets:
    """Return the partitions of each member, from the topics that it subscribes to and the partitions that it has."""
    found: dict[str, set[Place]] = {member_id: set() for member_id in subscriptions}
    pools: dict[uuid.UUID | None, list[Place]] = {}
    all_alike = len(set(subscriptions.values())) <= 1
    for place in sorted(places, key=lambda place: (place[0].bytes, place[1])):
        pools.setdefault(None if all_alike else place[0], []).append(place)
    for pool in pools.values():
        topics = {topic_id for topic_id, _ in pool}
        readers = sorted(member_id for member_id, asked in subscriptions.items() if asked & topics)
        wanted = [place for place in pool if readers and place[0] in subscriptions[readers[0]]]
        if wanted:
            kept = {reader: current.get(reader, frozenset()) & set(wanted) for reader in readers}
            for reader, read in _share(readers, wanted, kept).items():
                found[reader] |= read
    return {member_id: frozenset(read) for member_id, read in found.items()}


def _share(
    readers: list[str], wanted: list[Place], kept: Mapping[str, Iterable[Place]]
) -> dict[str, set[Place]]:
    sharing = -(-len(readers) // len(wanted))
    read = {reader: set(kept[reader]) for reader in readers}

    def load(reader: str) -> int:
        return len(read[reader])

    for place in wanted:
        have = [reader for reader in readers if place in read[reader]]
        for reader in sorted(have, key=load)[sharing:]:
            read[reader].discard(place)
        lacking = [reader for reader in readers if place not in read[reader]]
        for reader in sorted(lacking, key=load)[: max(0, sharing - len(have))]:
            read[reader].add(place)
    while True:
        least, most = min(readers, key=load), max(readers, key=load)
        if load(most) - load(least) <= 1:
            return read
        moved = min(read[most] - read[least], key=wanted.index)
        read[most].discard(moved)
        read[least].add(moved)
