"""Checks that the records of an incarnation are stored in the order in which they were sent, without gaps
except records that were given up.

A record that is refused because a later one was stored first is a breach, even if its producer gives it up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

from tests.simulation.checkers.facts import Facts, IncarnationName, Reading, incarnation_of, place
from tests.simulation.history import Acknowledged, RecordName, Refused, TopicPartition


def order(facts: Facts) -> list[str]:
    """Find records that are out of order or missing in between, also across the producer epochs of one
    incarnation.

    Records sent before the first stored one may have been deleted.
    """
    numbers = _numbers(facts)
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
            here = numbers[incarnation, partition]
            begin = bisect_right(here, before.number) if before else 0
            for number in here[begin : bisect_left(here, name.number)]:
                breaches.append(f"{where} without number {number}, which was not given up")
                break
    return breaches + _overtaken(facts)


def _overtaken(facts: Facts) -> list[str]:
    """Find batches that were refused behind a later one of their producer, and never stored."""
    highest: dict[tuple[IncarnationName, TopicPartition], int] = {}
    breaches = []
    for event in facts.history.events:
        if isinstance(event, Acknowledged):
            key = incarnation_of(event.name), event.partition
            highest[key] = max(highest.get(key, -1), event.name.number)
        elif isinstance(event, Refused) and event.first is not None and event.first not in facts.stored:
            incarnation, number = incarnation_of(event.first), event.first.number
            reading = facts.uncommitted.get(event.partition)
            may_be_gone = reading is None or _may_miss_some(facts, event.partition, reading, first=True)
            later = highest.get((incarnation, event.partition), -1)
            if number < later and not may_be_gone:
                where = f"{place(event.partition)} has number {later} of {incarnation}"
                breaches.append(f"{where} and refused number {number} behind it: {event.error}")
    return breaches


def _may_miss_some(facts: Facts, partition: TopicPartition, reading: Reading, *, first: bool) -> bool:
    return partition.topic in facts.compacted or (first and reading.log_start_offset > 0)


def _numbers(facts: Facts) -> dict[tuple[IncarnationName, TopicPartition], list[int]]:
    """Return the numbers that each incarnation sent to each partition and did not give up, ascending."""
    numbers: dict[tuple[IncarnationName, TopicPartition], list[int]] = defaultdict(list)
    for name, sent in facts.sent.items():
        if name not in facts.given_up:
            numbers[incarnation_of(name), sent.partition].append(name.number)
    for here in numbers.values():
        here.sort()
    return numbers
