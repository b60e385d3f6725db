"""Sorts a history once for all checkers: requests of clients, their answers, and the result of the last
reading.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

from tests.simulation.events_of_names import LineName, LineSent
from tests.simulation.history import (
    Acknowledged,
    Event,
    Fetched,
    FinalRead,
    GatewayCrashed,
    GivenUp,
    GotProducerId,
    History,
    Marker,
    OffsetListed,
    RecordName,
    Sent,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

NEVER = math.inf
LATEST, EARLIEST = -1, -2  # special timestamps of ListOffsets
OneEvent = TypeVar("OneEvent", bound=Event)


class IncarnationName(NamedTuple):
    producer: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.incarnation}"


class TransactionName(NamedTuple):
    producer: str
    incarnation: int
    transaction: int

    def __str__(self) -> str:
        return f"transaction {self.producer}/{self.incarnation}/{self.transaction}"


@dataclass
class Transaction:
    """A transaction as its producer knows it. A time is NEVER if the event did not happen."""

    commit_asked_at_ms: float = NEVER
    ends: list[TransactionEnded] = field(default_factory=list)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The committed offsets by group and partition."""

    @property
    def end(self) -> bool | None:
        """Return whether the transaction was committed; None if its producer does not know."""
        return self.ends[0].commit if self.ends else None


@dataclass
class Reading:
    """The result of the last reading of one partition, from `start_offset` to `end_offset` (exclusive)."""

    start_offset: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: list[tuple[int, bytes]] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)


class Facts:
    """Facts of a history; each attribute is computed on its first use."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.compacted = history.compacted
        self.deleted_before = history.deleted_before
        self._by_type: dict[type[Event], list[Event]] = defaultdict(list)
        for event in history.events:
            self._by_type[type(event)].append(event)

    def all(self, kind: type[OneEvent]) -> list[OneEvent]:
        """Return the events of one kind, in order."""
        return self._by_type[kind]  # type: ignore[return-value]

    # --- producers

    @cached_property
    def sent(self) -> dict[RecordName, Sent]:
        return {event.name: event for event in self.all(Sent)}

    @cached_property
    def lines_sent(self) -> dict[LineName, LineSent]:
        return {event.line: event for event in reversed(self.all(LineSent))}

    @cached_property
    def acknowledged(self) -> dict[RecordName, Acknowledged]:
        """Return the first acknowledgement of each record."""
        return {event.name: event for event in reversed(self.all(Acknowledged))}

    @cached_property
    def given_up(self) -> set[RecordName]:
        return {event.name for event in self.all(GivenUp)}

    @cached_property
    def incarnations(self) -> dict[IncarnationName, GotProducerId]:
        """Return the first producer id and producer epoch of each incarnation."""
        answers = reversed(self.all(GotProducerId))
        return {IncarnationName(event.producer, event.incarnation): event for event in answers}

    @cached_property
    def transactions(self) -> dict[TransactionName, Transaction]:
        """Return every transaction that its producer asked to end."""
        found: dict[TransactionName, Transaction] = defaultdict(Transaction)
        for asked in self.all(TransactionEnding):
            transaction = found[TransactionName(asked.producer, asked.incarnation, asked.transaction)]
            if asked.commit:
                transaction.commit_asked_at_ms = min(transaction.commit_asked_at_ms, asked.at_ms)
                transaction.offsets |= {
                    (asked.group, partition): offset for partition, offset in asked.offsets
                }
        for told in self.all(TransactionEnded):
            found[TransactionName(told.producer, told.incarnation, told.transaction)].ends.append(told)
        return dict(found)

    @cached_property
    def acknowledged_in(self) -> dict[TransactionName, list[Acknowledged]]:
        """Return the acknowledged records of each transaction."""
        found: dict[TransactionName, list[Acknowledged]] = defaultdict(list)
        for event in self.acknowledged.values():
            if event.name.transaction:
                found[transaction_of(event.name)].append(event)
        return found

    # --- consumers

    @cached_property
    def _names(self) -> dict[bytes, RecordName | None]:
        return {}

    def name(self, value: bytes) -> RecordName | None:
        """Return the record with this value; None if no producer sent it."""
        if value not in self._names:
            try:
                name = RecordName.decode(value)
            except ValueError:
                self._names[value] = None
            else:
                self._names[value] = name if name in self.sent else None
        return self._names[value]

    @cached_property
    def _lines(self) -> dict[bytes, LineName | None]:
        return {}

    def line(self, value: bytes) -> LineName | None:
        """Return the line with this value; None if no application sent it."""
        if value not in self._lines:
            try:
                line = LineName.decode(value)
            except ValueError:
                self._lines[value] = None
            else:
                self._lines[value] = line if line in self.lines_sent else None
        return self._lines[value]

    @cached_property
    def _final_events(self) -> list[Event]:
        events = self.history.events
        begins = [index for index, event in enumerate(events) if isinstance(event, FinalRead)]
        return events[begins[-1] :] if begins else []

    @cached_property
    def uncommitted(self) -> dict[TopicPartition, Reading]:
        """Return the last reading of all records."""
        return _readings(self._final_events, read_committed=False)

    @cached_property
    def committed(self) -> dict[TopicPartition, Reading]:
        """Return the last reading of the committed records."""
        return _readings(self._final_events, read_committed=True)

    @cached_property
    def stored(self) -> dict[RecordName, int]:
        """Return the offset at which the last reading found each record: the first one if a record is stored
        twice.
        """
        return self._places(self.uncommitted)

    @cached_property
    def visible(self) -> dict[RecordName, int]:
        """Return the offset at which the last reading of committed records found each record."""
        return self._places(self.committed)

    def _places(self, readings: dict[TopicPartition, Reading]) -> dict[RecordName, int]:
        places: dict[RecordName, int] = {}
        for reading in readings.values():
            for offset, value in reading.records:
                name = self.name(value)
                if name is not None:
                    places.setdefault(name, offset)
        return places

    @cached_property
    def first_read_committed(self) -> dict[RecordName, Fetched]:
        """Return the first answer of committed records that contained each record."""
        found: dict[RecordName, Fetched] = {}
        for event in self.all(Fetched):
            if event.read_committed:
                for _, value in event.records:
                    name = self.name(value)
                    if name is not None:
                        found.setdefault(name, event)
        return found

    @cached_property
    def first_visible_ms(self) -> dict[TransactionName, int]:
        """Return when a consumer of committed records first got a record of each transaction."""
        found: dict[TransactionName, int] = {}
        for name, event in self.first_read_committed.items():
            if name.transaction:
                transaction = transaction_of(name)
                found[transaction] = min(found.get(transaction, event.at_ms), event.at_ms)
        return found

    @cached_property
    def _crashes(self) -> list[int]:
        return [event.at_ms for event in self.all(GatewayCrashed)]

    def next_crash_ms(self, at_ms: int) -> float:
        """Return when the gateway that received a request at this time crashed next; no request survives a
        crash.
        """
        index = bisect_left(self._crashes, at_ms)
        return self._crashes[index] if index < len(self._crashes) else NEVER

    @cached_property
    def _latest_of_keys(self) -> dict[tuple[TopicPartition, bytes], int]:
        latest: dict[tuple[TopicPartition, bytes], int] = {}
        for name, offset in self.visible.items():
            key = self.sent[name].partition, self.sent[name].key
            latest[key] = max(latest.get(key, -1), offset)
        return latest

    def may_give_way(self, name: RecordName, offset: int) -> bool:
        """Return whether compaction may remove this record, even between the two last readings: a later
        record of its key is committed.
        """
        sent = self.sent[name]
        if sent.partition.topic not in self.compacted:
            return False
        return self._latest_of_keys.get((sent.partition, sent.key), -1) > offset

    def may_be_gone(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether the record at this offset was deleted on purpose."""
        reading = self.uncommitted.get(partition)
        return (
            reading is not None
            and offset < reading.log_start_offset
            and offset < self.deleted_before.get(partition, 0)
        )


Checker = Callable[[Facts], list[str]]


def transaction_of(name: RecordName) -> TransactionName:
    return TransactionName(name.producer, name.incarnation, name.transaction)


def incarnation_of(name: RecordName) -> IncarnationName:
    return IncarnationName(name.producer, name.incarnation)


def told(name: RecordName) -> str:
    """Describe a record in a sentence."""
    return name.encode().decode()


def place(partition: TopicPartition, offset: int | None = None) -> str:
    """Describe a partition, or an offset in it, in a sentence."""
    where = f"{partition.topic}-{partition.partition}"
    return where if offset is None else f"offset {offset} of {where}"


def _readings(events: Iterable[Event], *, read_committed: bool) -> dict[TopicPartition, Reading]:
    """Return the last readings by partition.

    An empty partition has no answers with records; its listed start and end are equal.
    """
    readings: dict[TopicPartition, Reading] = {}
    for event in events:
        if not isinstance(event, Fetched | OffsetListed) or event.read_committed != read_committed:
            continue
        reading = readings.get(event.partition)
        if isinstance(event, OffsetListed):
            if event.timestamp == EARLIEST and reading is None:
                readings[event.partition] = Reading(*[event.offset] * 5)
            elif event.timestamp == LATEST and reading is not None:
                reading.high_watermark = max(reading.high_watermark, event.offset)
            continue
        if reading is None:
            reading = readings[event.partition] = Reading(event.fetch_offset, event.fetch_offset, 0, 0, 0)
        reading.end_offset = max(reading.end_offset, event.next_offset)
        reading.high_watermark = event.high_watermark
        reading.last_stable_offset = event.last_stable_offset
        reading.log_start_offset = event.log_start_offset
        reading.records += event.records
        reading.markers += event.markers
    return readings
