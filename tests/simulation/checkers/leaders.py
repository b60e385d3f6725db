"""Checks that a partition has one leader in each epoch, and that no earlier leader answers after a later one.

A request that named an epoch and was answered without an error shows who led in it. Two answers are
comparable when the second was requested after the first had arrived.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from tests.simulation.checkers.facts import Facts, place
from tests.simulation.events_of_clusters import EpochsRead, LedBy
from tests.simulation.history import TopicPartition

Run = tuple[int, int, int]
"""The first and the last offset of neighbouring batches of one epoch, and the epoch."""


def leaders(facts: Facts) -> list[str]:
    """Find epochs of a partition in which two gateways served it."""
    breaches = []
    of_epoch: dict[tuple[TopicPartition, int], LedBy] = {}
    for event in facts.all(LedBy):
        first = of_epoch.setdefault((event.partition, event.leader_epoch), event)
        if first.node_id != event.node_id:
            breaches.append(
                f"{event.at_ms} ms: node {event.node_id} served {place(event.partition)} in epoch "
                f"{event.leader_epoch}, as node {first.node_id} did at {first.at_ms} ms"
            )
    return breaches


def _runs(facts: Facts) -> dict[TopicPartition, set[Run]]:
    runs: dict[TopicPartition, set[Run]] = defaultdict(set)
    for event in facts.all(EpochsRead):
        runs[event.partition].update(event.epochs)
    return runs


def deposed(facts: Facts) -> list[str]:
    """Find answers of a leader that was asked after an answer of a later epoch had arrived."""
    breaches = []
    known: dict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
    """The times at which a higher epoch was seen for the first time, with the epoch and its node, ascending.
    """
    for event in facts.all(LedBy):
        seen = known[event.partition]
        index = bisect_right(seen, (event.asked_at_ms - 1, 2**63, 0)) - 1
        if index >= 0 and seen[index][1] > event.leader_epoch:
            at_ms, epoch, node_id = seen[index]
            breaches.append(
                f"{event.at_ms} ms: node {event.node_id} served {place(event.partition)} in epoch "
                f"{event.leader_epoch}, asked at "
                f"{event.asked_at_ms} ms, and at {at_ms} ms node {node_id} served it in epoch {epoch}"
            )
        if not seen or event.leader_epoch > seen[-1][1]:
            seen.append((event.at_ms, event.leader_epoch, event.node_id))
    return breaches


def epochs(facts: Facts) -> list[str]:
    """Find batches of an earlier epoch behind those of a later one, and offsets that were read in two epochs."""
    breaches = []
    for partition, runs in _runs(facts).items():
        last, highest = -1, -1
        for first, end, epoch in sorted(runs):
            if epoch < highest or (first <= last and epoch != highest):
                breaches.append(
                    f"{place(partition)} has epoch {epoch} from offset {first} on, and epoch {highest} up to "
                    f"offset {last}"
                )
            last, highest = max(last, end), max(highest, epoch)
    return breaches
