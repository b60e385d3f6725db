"""No acknowledged record is lost, none is doubled, each is where its acknowledgement says, and nothing else is there."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers.facts import Facts, place, told
from tests.simulation.history import Acknowledged, Fetched, RecordName, TopicPartition


def lost(facts: Facts) -> list[str]:
    """Acknowledged records, and records that a consumer got once, that the last reading did not find.

    What compaction may take is the business of `compaction`.
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
    """Where and when each record was read first."""
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
    """Records, given up ones too, that were read at more than one place; and offsets acknowledged for two records."""
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
    """Records that are elsewhere than at the offset of their acknowledgement, each of them if there were several."""
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
    """Records in another partition than they were sent to, or that nobody sent."""
    breaches = []
    strange: set[tuple[TopicPartition, int]] = set()
    for event in facts.all(Fetched):
        for offset, value in event.records:
            name = facts.name(value)
            if name is not None and facts.sent[name].partition == event.partition:
                continue
            if facts.line(value) is not None:
                continue  # `named_places` knows where
            if (event.partition, offset) not in strange:
                strange.add((event.partition, offset))
                what = "nobody sent it" if name is None else f"sent to {place(facts.sent[name].partition)}"
                breaches.append(f"{event.at_ms} ms: {place(event.partition, offset)} holds {value!r}: {what}")
    return breaches
