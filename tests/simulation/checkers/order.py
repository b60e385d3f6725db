"""The records of an incarnation are stored in the order in which they were sent, and none that was not given up is skipped."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.checkers.facts import Facts, IncarnationName, Reading, incarnation_of, place
from tests.simulation.history import RecordName, TopicPartition


def order(facts: Facts) -> list[str]:
    """Also across the epochs of one incarnation. A first stored number above 0 is fine where records were deleted."""
    given_up = _given_up(facts)
    breaches = []
    for partition, reading in facts.uncommitted.items():
        last: dict[IncarnationName, RecordName] = {}
        for offset, value in reading.records:
            name = facts.name(value)
            if name is None:
                continue
            incarnation = incarnation_of(name)
            before = last.get(incarnation)
            where = f"{place(partition, offset)} holds number {name.number} of {incarnation}"
            if before is not None and name.number < before.number:
                breaches.append(f"{where} after number {before.number}")
                continue
            last[incarnation] = name
            if _may_miss_some(facts, partition, reading, first=before is None):
                continue
            expected = before.number + 1 if before else 0
            skipped = set(range(expected, name.number)) - given_up[incarnation, partition]
            if skipped:
                breaches.append(f"{where} without number {min(skipped)}, which was not given up")
    return breaches


def _may_miss_some(facts: Facts, partition: TopicPartition, reading: Reading, *, first: bool) -> bool:
    return partition.topic in facts.compacted or (first and reading.log_start_offset > 0)


def _given_up(facts: Facts) -> dict[tuple[IncarnationName, TopicPartition], set[int]]:
    numbers: dict[tuple[IncarnationName, TopicPartition], set[int]] = defaultdict(set)
    for name in facts.given_up:
        if name in facts.sent:
            numbers[incarnation_of(name), facts.sent[name].partition].add(name.number)
    return numbers
