"""Sorts the lines of named applications once for their checkers."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from tests.simulation.checkers.facts import NEVER, Facts, Reading, TransactionName
from tests.simulation.events_of_names import (
    DeduplicationSwitched,
    LineAcknowledged,
    LineName,
    LineSent,
    NameTold,
)
from tests.simulation.history import Fetched, TopicPartition


class Stream(NamedTuple):
    """The lines of one name in one partition."""

    name: str
    partition: TopicPartition


class Lines:
    """The lines of a history; each attribute is computed on its first use."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @cached_property
    def keys(self) -> dict[Stream, dict[int, bytes]]:
        """Return the key of each line that was ever sent, by its sequence id."""
        found: dict[Stream, dict[int, bytes]] = defaultdict(dict)
        for event in self.facts.all(LineSent):
            found[Stream(event.line.name, event.partition)][event.line.sequence] = event.key
        return found

    @cached_property
    def acknowledged(self) -> list[LineAcknowledged]:
        """Return the acknowledged lines outside of transactions, or in transactions that are known to be
        committed.
        """
        return [event for event in self.facts.all(LineAcknowledged) if self.counts(event.line)]

    @cached_property
    def first_acknowledged(self) -> dict[LineName, LineAcknowledged]:
        return {event.line: event for event in reversed(self.facts.all(LineAcknowledged))}

    def counts(self, line: LineName) -> bool:
        return not line.transaction or self.end_of(line) is True

    def end_of(self, line: LineName) -> bool | None:
        """Return whether the line's transaction was committed; None if that is unknown."""
        transaction = self.facts.transactions.get(transaction_of(line))
        return transaction.end if transaction else None

    @cached_property
    def visible(self) -> dict[Stream, dict[int, int]]:
        """Return the offset at which the last reading of committed records found each sequence id: the first
        one if it is stored twice.
        """
        found: dict[Stream, dict[int, int]] = defaultdict(dict)
        for partition, reading in self.facts.committed.items():
            for offset, line in lines_of(self.facts, reading):
                found[Stream(line.name, partition)].setdefault(line.sequence, offset)
        return found

    @cached_property
    def told(self) -> list[NameTold]:
        return self.facts.all(NameTold)

    @cached_property
    def off_ms(self) -> dict[str, list[tuple[float, float]]]:
        """Return the spans of time in which deduplication may have been off, by topic."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for event in self.facts.all(DeduplicationSwitched):
            if not event.on:
                found[event.topic].append((event.at_ms, NEVER))
            else:
                found[event.topic][-1] = (found[event.topic][-1][0], event.at_ms)
        return found

    def may_be_gone(self, stream: Stream, sequence: int) -> bool:
        """Return whether this line was deleted on purpose, or compacted away by a later line of its key.

        Deletion removes the oldest lines, so a line behind a remaining one was not deleted.
        """
        visible, partition = self.visible[stream], stream.partition
        # after a time without deduplication, older lines may follow newer ones
        is_in_order = partition.topic not in self.facts.history.switched
        if partition.topic in self.facts.compacted:
            keys = self.keys[stream]
            return any(
                (other > sequence or not is_in_order) and keys.get(other) == keys.get(sequence, b"")
                for other in visible
            )
        reading = self.facts.uncommitted.get(partition)
        if reading is None or not reading.log_start_offset or partition not in self.facts.deleted_before:
            return False
        return not is_in_order or min(visible, default=sequence + 1) > sequence


def lines_of(facts: Facts, reading: Reading | Fetched) -> list[tuple[int, LineName]]:
    """Return the lines among the records, with their offsets."""
    found = ((offset, facts.line(value)) for offset, value in reading.records)
    return [(offset, line) for offset, line in found if line is not None]


def transaction_of(line: LineName) -> TransactionName:
    return TransactionName(line.producer, 1, line.transaction)


def told_line(line: LineName) -> str:
    """Describe a line in a sentence."""
    return line.encode().decode()
