"""Checks that no acknowledged record is lost or duplicated, each is at its acknowledged offset, and no other
record is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers.facts import Facts, place, told
from tests.simulation.history import Acknowledged, Fetched, RecordName, TopicPartition


def lost(facts: Facts) -> list[str]:
    """Find records that were acknowledged or read by a consumer, but that the last reading did not find.

    `compaction` judges the records that compaction may remove.
    """
    breaches = [
        f"{event.at_ms} ms: {told(event.name)} was acknowledged at {place(event.partition, event.offset)} "
        f"and is lost"
        for event in facts.acknowledged.values()
        if not _is_accounted_for(facts, event.name, event.partition, event.offset)
    ]
    for name, (partition, offset, at_ms) in _seen(facts).items():
        if name not in facts.acknowledged and not _is_accounted_for(facts, name, partition, offset):
            breaches.append(f"{at_ms} ms: {told(name)} was read at {place(partition, offset)} and is lost")
    return breaches


def _is_accounted_for(facts: Facts, name: RecordName, partition: TopicPartition, offset: int) -> bool:
    return name in facts.stored or partition.topic in facts.compacted or facts.may_be_gone(partition, offset)


def _seen(facts: Facts) -> dict[RecordName, tuple[TopicPartition, int, int]]:
    """Return where and when each record was first read."""
    seen: dict[RecordName, tuple[TopicPartition, int, int]] = {}
    for event, offset, name in _read(facts):
        seen.setdefault(name, (event.partition, offset, event.at_ms))
    return seen


def _read(facts: Facts) -> Iterator[tuple[Fetched, int, RecordName]]:
    for event in facts.all(Fetched):
        for offset, value in event.records:
            name = facts.name(value)
            if name is not None:
                yield event, offset, name


def doubled(facts: Facts) -> list[str]:
    """Find records that were read at several offsets, given-up ones included, and offsets acknowledged for
    two records.
    """
    breaches = []
    places: dict[RecordName, set[tuple[TopicPartition, int]]] = {}
    for event, offset, name in _read(facts):
        here = (event.partition, offset)
        known = places.setdefault(name, {here})
        if here not in known:
            partition, first = next(iter(known))
            known.add(here)
            breaches.append(
                f"{event.at_ms} ms: {told(name)} was read at {place(event.partition, offset)} "
                f"and at {place(partition, first)}"
            )
    holders: dict[tuple[TopicPartition, int], RecordName] = {}
    for told_of in facts.all(Acknowledged):
        holder = holders.setdefault((told_of.partition, told_of.offset), told_of.name)
        if holder != told_of.name:
            breaches.append(
                f"{told_of.at_ms} ms: {told(told_of.name)} was acknowledged at "
                f"{place(told_of.partition, told_of.offset)}, as {told(holder)} was"
            )
    return breaches


def acknowledged_offsets(facts: Facts) -> list[str]:
    """Find records that are not at the offset of each of their acknowledgements."""
    breaches = []
    for event in facts.all(Acknowledged):
        actual = facts.stored.get(event.name)
        first = facts.acknowledged[event.name].offset
        if actual is not None and actual != event.offset:
            breaches.append(
                f"{event.at_ms} ms: {told(event.name)} was acknowledged at "
                f"{place(event.partition, event.offset)} and is at offset {actual}"
            )
        elif first != event.offset:
            breaches.append(
                f"{event.at_ms} ms: {told(event.name)} was acknowledged at "
                f"{place(event.partition, event.offset)} and before at offset {first}"
            )
    return breaches


def misplaced(facts: Facts) -> list[str]:
    """Find records in a partition to which they were not sent, and records that no producer sent."""
    breaches = []
    strange: set[tuple[TopicPartition, int]] = set()
    for event in facts.all(Fetched):
        for offset, value in event.records:
            name = facts.name(value)
            if name is not None and facts.sent[name].partition == event.partition:
                continue
            if facts.line(value) is not None:
                continue  # The checker `named_places` checks records with producer names.
            if (event.partition, offset) not in strange:
                strange.add((event.partition, offset))
                what = "nobody sent it" if name is None else f"sent to {place(facts.sent[name].partition)}"
                breaches.append(f"{event.at_ms} ms: {place(event.partition, offset)} holds {value!r}: {what}")
    return breaches
