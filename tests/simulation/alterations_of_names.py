"""Breaks one thing at a time in a sound history of named applications, as a faulty gateway could.

Each function returns the altered events, or None if the history has nothing that it could break.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulation.alterations import Alteration
from tests.simulation.checkers.facts import Facts
from tests.simulation.checkers.lines import Lines, Stream, lines_of
from tests.simulation.events_of_names import LineAcknowledged, LineName, LineSent, NameFenced, NameTold
from tests.simulation.history import Event, Fetched, FinalRead, History, TopicPartition


def _strict(history: History, partition: TopicPartition) -> bool:
    return partition.topic not in history.switched and partition not in history.deleted_before


def _stored(history: History) -> list[tuple[TopicPartition, int, LineName]]:
    """Return the lines that the last reading found committed, in topics without deletion whose deduplication
    is always on.
    """
    facts = Facts(history)
    return [
        (partition, offset, line)
        for partition, reading in facts.committed.items()
        for offset, line in lines_of(facts, reading)
        if _strict(history, partition)
    ]


def _with_rows(event: Event, partition: TopicPartition, rows: dict[int, bytes | None]) -> Event:
    """Replace the values at these offsets, or remove them, in an answer that contains them."""
    if not isinstance(event, Fetched) or event.partition != partition:
        return event
    kept = tuple(
        (offset, value) for offset, old in event.records if (value := rows.get(offset, old)) is not None
    )
    return replace(event, records=kept)


def lose_a_line(history: History, chance: Random) -> list[Event] | None:
    """Remove from every answer a line that was acknowledged, or that a later line of its name proves stored."""
    lines = Lines(Facts(history))
    found = [
        (partition, offset)
        for partition, offset, line in _stored(history)
        if line.sequence < max(lines.visible[Stream(line.name, partition)])
        or any((ack.line.name, ack.line.sequence) == (line.name, line.sequence) for ack in lines.acknowledged)
    ]
    if not found:
        return None
    partition, offset = chance.choice(found)
    return [_with_rows(event, partition, {offset: None}) for event in history.events]


def double_a_line(history: History, chance: Random) -> list[Event] | None:
    """Store a line a second time, in place of another line, in every answer."""
    stored = _stored(history)
    if len(stored) < 2:
        return None
    partition, offset, line = chance.choice(stored)
    others = [other for place, other, _ in stored if place == partition and other != offset]
    if not others:
        return None
    rows: dict[int, bytes | None] = {chance.choice(others): line.encode()}
    return [_with_rows(event, partition, rows) for event in history.events]


def swap_two_lines(history: History, chance: Random) -> list[Event] | None:
    """Swap two lines of one name and partition in all answers; their acknowledgements tell no offsets."""
    stored = _stored(history)
    pairs = [
        (partition, (one, line), (two, other))
        for partition, one, line in stored
        for place, two, other in stored
        if place == partition and one < two and line.name == other.name
    ]
    if not pairs:
        return None
    partition, (one, line), (two, other) = chance.choice(pairs)
    rows: dict[int, bytes | None] = {one: other.encode(), two: line.encode()}
    return [
        replace(event, offset=-1)
        if isinstance(event, LineAcknowledged)
        else _with_rows(event, partition, rows)
        for event in history.events
    ]


def answer_another_place(history: History, chance: Random) -> list[Event] | None:
    held = {line for _, _, line in _stored(history)}
    first = Lines(Facts(history)).first_acknowledged
    found = [
        index
        for index, event in enumerate(history.events)
        if isinstance(event, LineAcknowledged)
        and event.line in held
        and event.offset >= 0
        and first[event.line] is event
    ]
    if not found:
        return None
    index = chance.choice(found)
    events = list(history.events)
    event = events[index]
    assert isinstance(event, LineAcknowledged)
    events[index] = replace(event, offset=event.offset + chance.choice((1, 4)))
    return events


def show_an_aborted_line(history: History, chance: Random) -> list[Event] | None:
    facts = Facts(history)
    lines = Lines(facts)
    found = [
        (partition, offset, line)
        for partition, reading in facts.uncommitted.items()
        for offset, line in lines_of(facts, reading)
        if line.transaction and lines.end_of(line) is False
    ]
    if not found:
        return None
    partition, offset, line = chance.choice(found)
    events = list(history.events)
    for index, event in enumerate(events):
        if not isinstance(event, Fetched) or event.partition != partition or not event.read_committed:
            continue
        if event.fetch_offset <= offset < event.next_offset:
            rows = tuple(sorted((*event.records, (offset, line.encode()))))
            events[index] = replace(event, records=rows)
    return events


def _told(history: History, *, last: bool) -> list[tuple[int, int]]:
    """Return the events that report a name's state, and the entries that must be exact at the end, or never
    too high.
    """
    events = history.events
    final = next(index for index, event in enumerate(events) if isinstance(event, FinalRead))
    return [
        (index, row)
        for index, event in enumerate(events)
        if isinstance(event, NameTold) and (index > final or not last)
        for row, (partition, sequence) in enumerate(event.sequences)
        if _strict(history, partition) and (sequence >= 0 or not last)
    ]


def _tell(history: History, index: int, row: int, sequence: int) -> list[Event]:
    events = list(history.events)
    event = events[index]
    assert isinstance(event, NameTold)
    rows = list(event.sequences)
    rows[row] = (rows[row][0], sequence)
    events[index] = replace(event, sequences=tuple(rows))
    return events


def tell_too_much(history: History, chance: Random) -> list[Event] | None:
    """Report a sequence id as persisted although its record is not stored."""
    found = _told(history, last=False)
    if not found:
        return None
    index, row = chance.choice(found)
    event = history.events[index]
    assert isinstance(event, NameTold)
    return _tell(history, index, row, event.sequences[row][1] + chance.choice((1, 2, 3_000)))


def tell_too_little(history: History, chance: Random) -> list[Event] | None:
    """Forget the name, or its newest record, in the last answer."""
    found = _told(history, last=True)
    if not found:
        return None
    index, row = chance.choice(found)
    event = history.events[index]
    assert isinstance(event, NameTold)
    return _tell(history, index, row, chance.choice((-1, event.sequences[row][1] - 3)))


def fence_the_newest(history: History, chance: Random) -> list[Event] | None:
    """Fence a life although no life has a newer name epoch."""
    found = [
        (index, event)
        for index, event in enumerate(history.events)
        if isinstance(event, LineSent)
        and not any(
            isinstance(other, LineSent)
            and (other.line.name, other.partition) == (event.line.name, event.partition)
            and other.epoch > event.epoch
            for other in history.events[:index]
        )
    ]
    if not found:
        return None
    index, event = chance.choice(found)
    fenced = NameFenced(event.at_ms, event.line.name, event.line.life, event.epoch, event.partition)
    return [*history.events[: index + 1], fenced, *history.events[index + 1 :]]


def store_what_is_fenced(history: History, chance: Random) -> list[Event] | None:
    """Put lines of a newer name epoch before acknowledged lines of another life."""
    found = [(partition, offset, line) for partition, offset, line in _stored(history) if line.name == "b"]
    facts = Facts(history)
    pairs = [
        line
        for partition, offset, line in found
        if any(place == partition and other > offset for place, other, _ in found)
    ]
    if not pairs:
        return None
    line = chance.choice(pairs)
    newest = max(facts.lines_sent[other].epoch for _, _, other in found) + 1
    return [
        replace(event, epoch=newest) if isinstance(event, LineSent) and event.line == line else event
        for event in history.events
    ]


ALTERATIONS_OF_NAMES: tuple[Alteration, ...] = (
    lose_a_line,
    double_a_line,
    swap_two_lines,
    answer_another_place,
    show_an_aborted_line,
    tell_too_much,
    tell_too_little,
    fence_the_newest,
    store_what_is_fenced,
)
