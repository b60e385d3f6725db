"""Checks that a record that was read at an offset is always read there, by every consumer of that isolation
level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from tests.simulation.checkers.facts import Facts, place, told, transaction_of
from tests.simulation.history import Fetched, RecordName, TopicPartition


def repeatable(facts: Facts) -> list[str]:
    """Find offsets at which different values were read."""
    breaches = []
    values: dict[tuple[TopicPartition, int], tuple[bytes, int]] = {}
    for event in facts.all(Fetched):
        for offset, value in event.records:
            first, at_ms = values.setdefault((event.partition, offset), (value, event.at_ms))
            if first != value:
                breaches.append(
                    f"{event.at_ms} ms: {place(event.partition, offset)} holds {value!r}, "
                    f"and at {at_ms} ms it was {first!r}"
                )
    return breaches


def whole_answers(facts: Facts) -> list[str]:
    """Find answers that leave out a record in their middle which another answer of the same isolation level
    has.

    Two answers that cover an offset are comparable: the high watermark and the last stable offset have passed
    it.
    """
    breaches = []
    for read_committed in (False, True):
        answers = [event for event in facts.all(Fetched) if event.read_committed == read_committed]
        known: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        for event in answers:
            known[event.partition].update(event.records)
        offsets = {partition: sorted(values) for partition, values in known.items()}
        for event in answers:
            if event.partition.topic in facts.compacted or event.partition not in known:
                continue
            here = offsets[event.partition]
            expected = here[bisect_left(here, event.fetch_offset) : bisect_left(here, event.next_offset)]
            if len(expected) == len(event.records):
                continue
            missing = sorted(set(expected) - {offset for offset, _ in event.records})
            if missing:
                value = known[event.partition][missing[0]]
                name = facts.name(value)
                breaches.append(
                    f"{event.at_ms} ms: {event.consumer} read {place(event.partition, event.fetch_offset)} "
                    f"up to {event.next_offset} without {told(name) if name else value!r} at {missing[0]}, "
                    "which others got"
                )
    return breaches


def compaction(facts: Facts) -> list[str]:
    """Find records of compacted topics that disappeared without a later record of their key, committed if
    they were committed.
    """
    breaches = []
    for event in facts.acknowledged.values():
        name = event.name
        if event.partition.topic not in facts.compacted or name in facts.stored or name not in facts.sent:
            continue
        if facts.may_be_gone(event.partition, event.offset) or _counts_for_nothing(facts, name):
            continue
        if not facts.may_give_way(name, event.offset):
            breaches.append(
                f"{event.at_ms} ms: {told(name)} was acknowledged at {place(event.partition, event.offset)} "
                f"and is gone, and no later record has its key"
            )
    return breaches


def _counts_for_nothing(facts: Facts, name: RecordName) -> bool:
    """Return whether the record's transaction was aborted, or has an unknown end that no consumer saw as a
    commit.
    """
    if not name.transaction:
        return False
    transaction = facts.transactions.get(transaction_of(name))
    is_committed = (transaction is not None and transaction.end) or transaction_of(
        name
    ) in facts.first_visible_ms
    return not is_committed
