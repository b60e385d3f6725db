"""Breaks one thing at a time in a sound history, as a faulty gateway could.

An alteration returns the altered events, or None if the history has nothing that it could break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.simulation.checkers.facts import Facts, transaction_of
from tests.simulation.history import (
    Acknowledged,
    Assigned,
    Event,
    Fetched,
    FinalRead,
    GotProducerId,
    History,
    OffsetsFetched,
    RecordName,
    TopicPartition,
)

Alteration = Callable[[History, Random], list[Event] | None]


def _final_from(history: History) -> int:
    return next(index for index, event in enumerate(history.events) if isinstance(event, FinalRead))


def _without(events: list[Event], name: RecordName, *, begin: int = 0) -> list[Event]:
    """Remove the record from all answers, beginning with this event."""
    value = name.encode()

    def strip(event: Event) -> Event:
        if not isinstance(event, Fetched):
            return event
        return replace(event, records=tuple(row for row in event.records if row[1] != value))

    return events[:begin] + [strip(event) for event in events[begin:]]


def _kept(history: History) -> list[RecordName]:
    """Return the acknowledged records that the last reading must contain."""
    facts = Facts(history)
    return sorted(
        name
        for name in facts.stored
        if name in facts.acknowledged and facts.sent[name].partition.topic not in history.compacted
    )


def lose_a_record(history: History, chance: Random) -> list[Event] | None:
    kept = _kept(history)
    return _without(history.events, chance.choice(kept), begin=_final_from(history)) if kept else None


def double_a_record(history: History, chance: Random) -> list[Event] | None:
    kept = _kept(history)
    if not kept:
        return None
    name = chance.choice(kept)
    partition = Facts(history).sent[name].partition
    events = list(history.events)
    for index, event in enumerate(events):
        if index > _final_from(history) and isinstance(event, Fetched) and event.partition == partition:
            if event.next_offset == event.high_watermark:
                end = event.high_watermark + 1
                events[index] = replace(
                    event,
                    records=(*event.records, (end - 1, name.encode())),
                    next_offset=end,
                    high_watermark=end,
                    last_stable_offset=end,
                )
            else:
                events[index] = replace(
                    event,
                    high_watermark=event.high_watermark + 1,
                    last_stable_offset=event.last_stable_offset + 1,
                )
    return events


def swap_two_records(history: History, chance: Random) -> list[Event] | None:
    """Swap two records of one producer and partition in all answers; only their acknowledgements show the
    right order.
    """
    facts = Facts(history)
    by_owner: dict[tuple[str, int, TopicPartition], list[RecordName]] = {}
    for name in _kept(history):
        by_owner.setdefault((name.producer, name.incarnation, facts.sent[name].partition), []).append(name)
    pairs = [names for names in by_owner.values() if len(names) > 1]
    if not pairs:
        return None
    one, other = chance.sample(chance.choice(pairs), 2)
    values = {one.encode(): other.encode(), other.encode(): one.encode()}

    def swap(event: Event) -> Event:
        if isinstance(event, Fetched):
            rows = tuple((offset, values.get(value, value)) for offset, value in event.records)
            return replace(event, records=rows)
        if isinstance(event, Acknowledged) and event.name in {one, other}:
            twin = other if event.name == one else one
            return replace(event, offset=facts.acknowledged[twin].offset)
        return event

    return [swap(event) for event in history.events]


def answer_another_offset(history: History, chance: Random) -> list[Event] | None:
    kept = set(_kept(history))
    indexes = [
        index
        for index, event in enumerate(history.events)
        if isinstance(event, Acknowledged) and event.name in kept
    ]
    if not indexes:
        return None
    events = list(history.events)
    index = chance.choice(indexes)
    event = events[index]
    assert isinstance(event, Acknowledged)
    events[index] = replace(event, offset=event.offset + chance.choice((-1, 1, 5)))
    return events


def go_back(history: History, chance: Random) -> list[Event] | None:
    """Answer with a lower high watermark, last stable offset or log start than an earlier answer."""
    what = chance.choice(("high_watermark", "last_stable_offset", "log_start_offset"))
    told: dict[TopicPartition, list[tuple[int, int]]] = {}
    found: list[tuple[int, int]] = []
    for index, event in enumerate(history.events):
        if isinstance(event, Fetched):
            values = told.setdefault(event.partition, [])
            highest = max((value for at_ms, value in values if at_ms < event.asked_at_ms), default=-1)
            if highest > 0:
                found.append((index, chance.randrange(highest)))
            values.append((event.at_ms, getattr(event, what)))
    if not found:
        return None
    index, value = chance.choice(found)
    events = list(history.events)
    changed = events[index]
    assert isinstance(changed, Fetched)
    events[index] = replace(changed, **{what: value})  # type: ignore[arg-type]
    return events


def tell_an_end_too_early(history: History, chance: Random) -> list[Event] | None:
    """Let an answer tell an end behind a record that was sent after it."""
    facts, events = Facts(history), list(history.events)
    choices = []
    for index, event in enumerate(events):
        if isinstance(event, Fetched):
            later = [
                offset
                for name, offset in facts.stored.items()
                if facts.sent[name].partition == event.partition and facts.sent[name].at_ms > event.at_ms
            ]
            choices += [(index, offset) for offset in later]
    if not choices:
        return None
    index, offset = chance.choice(choices)
    chosen = events[index]
    assert isinstance(chosen, Fetched)
    events[index] = replace(chosen, high_watermark=offset + 1)
    return events


def leave_out_of_an_answer(history: History, chance: Random) -> list[Event] | None:
    """Remove a record from the middle of an answer; its transaction can't be aborted, so nothing explains the
    gap.
    """
    kept = {name.encode(): name for name in _kept(history)}
    found = [
        (index, row)
        for index, event in enumerate(history.events)
        if isinstance(event, Fetched)
        for row in event.records
        if row[1] in kept and not (event.read_committed and kept[row[1]].transaction)
    ]
    if not found:
        return None
    index, row = chance.choice(found)
    events = list(history.events)
    event = events[index]
    assert isinstance(event, Fetched)
    events[index] = replace(event, records=tuple(other for other in event.records if other != row))
    return events


def change_a_value(history: History, chance: Random) -> list[Event] | None:
    answers = [
        index for index, event in enumerate(history.events) if isinstance(event, Fetched) and event.records
    ]
    if not answers:
        return None
    index = chance.choice(answers)
    events = list(history.events)
    event = events[index]
    assert isinstance(event, Fetched)
    rows = list(event.records)
    row = chance.randrange(len(rows))
    rows[row] = (rows[row][0], rows[row][1] + b"7")
    events[index] = replace(event, records=tuple(rows))
    return events


def show_aborted(history: History, chance: Random) -> list[Event] | None:
    """Show a consumer of committed records a record of a transaction that was never asked to commit."""
    facts = Facts(history)
    found = []
    for index, event in enumerate(history.events):
        if isinstance(event, Fetched) and event.read_committed:
            for name, offset in facts.stored.items():
                transaction = facts.transactions.get(transaction_of(name))
                if (
                    name.transaction
                    and facts.sent[name].partition == event.partition
                    and event.fetch_offset <= offset < event.next_offset
                    and (transaction is None or transaction.end is False)
                ):
                    found.append((index, (offset, name.encode())))
    if not found:
        return None
    index, row = chance.choice(found)
    events = list(history.events)
    changed = events[index]
    assert isinstance(changed, Fetched)
    events[index] = replace(changed, records=tuple(sorted((*changed.records, row))))
    return events


def halve_a_transaction(history: History, chance: Random) -> list[Event] | None:
    """Hide one record of a committed transaction from all consumers of committed records."""
    facts = Facts(history)
    together: dict[object, list[RecordName]] = {}
    for name in facts.visible:
        if name.transaction and facts.sent[name].partition.topic not in history.compacted:
            together.setdefault(transaction_of(name), []).append(name)
    found = [names for names in together.values() if len(names) > 1]
    if not found:
        return None
    value = chance.choice(chance.choice(found)).encode()
    return [
        replace(event, records=tuple(row for row in event.records if row[1] != value))
        if isinstance(event, Fetched) and event.read_committed
        else event
        for event in history.events
    ]


def give_an_id_twice(history: History, chance: Random) -> list[Event] | None:
    indexes = [index for index, event in enumerate(history.events) if isinstance(event, GotProducerId)]
    first, second = sorted(chance.sample(indexes, 2))
    events = list(history.events)
    one, other = events[first], events[second]
    assert isinstance(one, GotProducerId)
    assert isinstance(other, GotProducerId)
    events[second] = replace(other, producer_id=one.producer_id, producer_epoch=one.producer_epoch)
    return events


def lose_committed_offsets(history: History, chance: Random) -> list[Event] | None:
    found = [
        (index, row)
        for index, event in enumerate(history.events)
        if isinstance(event, OffsetsFetched)
        for row in range(len(event.offsets))
        if event.offsets[row][1] >= 0
    ]
    if not found:
        return None
    index, row = chance.choice(found)
    events = list(history.events)
    event = events[index]
    assert isinstance(event, OffsetsFetched)
    offsets = list(event.offsets)
    partition, offset = offsets[row]
    offsets[row] = (partition, offset + 1000 if chance.random() < 0.5 else -1)
    events[index] = replace(event, offsets=tuple(offsets))
    return None if offset_is_unsure(history, event, partition) else events


def offset_is_unsure(history: History, event: OffsetsFetched, partition: TopicPartition) -> bool:
    """Return whether no commit of the partition had been answered at this time, so that −1 could be right."""
    facts = Facts(history)
    answered = any(
        partition in dict(other.offsets) and other.at_ms < event.asked_at_ms
        for other in facts.all(OffsetsFetched)
        if dict(other.offsets)[partition] >= 0
    )
    return not answered


def own_twice(history: History, chance: Random) -> list[Event] | None:
    found = [
        index
        for index, event in enumerate(history.events)
        if isinstance(event, Assigned) and event.partitions
    ]
    if not found:
        return None
    index = chance.choice(found)
    event = history.events[index]
    assert isinstance(event, Assigned)
    return [*history.events[: index + 1], replace(event, member="z"), *history.events[index + 1 :]]


ALTERATIONS: tuple[Alteration, ...] = (
    lose_a_record,
    double_a_record,
    swap_two_records,
    answer_another_offset,
    go_back,
    leave_out_of_an_answer,
    tell_an_end_too_early,
    change_a_value,
    show_aborted,
    halve_a_transaction,
    give_an_id_twice,
    lose_committed_offsets,
    own_twice,
)
