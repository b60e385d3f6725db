"""Compares the answers that producers got with the records in the partitions. Pure: tested with planted
faults.

A record's value names it: producer, incarnation, partition and running number. When a producer's library
gives up its idempotent session, the producer starts its next incarnation: it numbers records from 0, and
sends no record of the old incarnation again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SHOWN = 10


class RecordName(NamedTuple):
    producer: str
    incarnation: int
    partition: int
    number: int

    def encode(self) -> bytes:
        return f"{self.producer}/{self.incarnation}/{self.partition}/{self.number}".encode()

    @classmethod
    def decode(cls, value: bytes) -> RecordName:
        """Decode a value. Raises ValueError for a value that `encode` did not write."""
        producer, incarnation, partition, number = value.decode().split("/")
        return cls(producer, int(incarnation), int(partition), int(number))


@dataclass
class Ledger:
    """The records that one producer sent, and their answers; offset -1: acknowledged without an offset."""

    producer: str
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    acknowledged: dict[RecordName, int] = field(default_factory=dict)
    failed: dict[RecordName, str] = field(default_factory=dict)

    @property
    def incarnations(self) -> int:
        return len({incarnation for incarnation, _ in self.sent})


def check(
    ledgers: Iterable[Ledger],
    partitions: Mapping[int, Sequence[tuple[int, bytes]]],
    starts: Mapping[int, int] | None = None,
) -> list[str]:
    """Return a sentence for every breach: lost, duplicated, reordered, unknown and misplaced records, and
    gaps in offsets.

    `starts` has the log start of partitions whose first records were deleted on purpose.
    """
    starts = starts or {}
    by_producer = {ledger.producer: ledger for ledger in ledgers}
    breaches: list[str] = []
    found: dict[RecordName, int] = {}
    for partition, rows in sorted(partitions.items()):
        breaches += _check_partition(partition, rows, by_producer, found, starts.get(partition, 0))
    for ledger in by_producer.values():
        breaches += _check_acknowledged(ledger, found, starts)
    return breaches


def _check_partition(
    partition: int,
    rows: Sequence[tuple[int, bytes]],
    ledgers: Mapping[str, Ledger],
    found: dict[RecordName, int],
    start: int,
) -> list[str]:
    breaches = []
    latest: dict[tuple[str, int], int] = {}
    for expected_offset, (offset, value) in enumerate(rows, start):
        where = f"partition {partition} offset {offset}"
        if offset != expected_offset:
            breaches.append(f"{where}: expected offset {expected_offset}")
            return breaches
        try:
            name = RecordName.decode(value)
            sent = ledgers[name.producer].sent[name.incarnation, name.partition]
        except (ValueError, KeyError):
            breaches.append(f"{where}: nobody sent {value!r}")
            continue
        if name.number >= sent or name.partition != partition:
            breaches.append(f"{where}: {name} was not sent there")
        if name in found:
            breaches.append(f"{where}: {name} is doubled, first at offset {found[name]}")
            continue
        found[name] = offset
        before = latest.get(name[:2], -1)
        if name.number < before:
            breaches.append(f"{where}: {name} comes after number {before}")
        latest[name[:2]] = max(before, name.number)
    return breaches


def _check_acknowledged(
    ledger: Ledger, found: Mapping[RecordName, int], starts: Mapping[int, int]
) -> list[str]:
    breaches = []
    for name, offset in ledger.acknowledged.items():
        actual = found.get(name)
        if actual is None and offset < starts.get(name.partition, -1):
            continue
        if actual is None:
            breaches.append(f"{name} was acknowledged at offset {offset} and is lost")
        elif offset not in {actual, -1}:
            breaches.append(f"{name} was acknowledged at offset {offset} and is at {actual}")
    return breaches


def summary(breaches: Sequence[str]) -> str:
    """Return the first breaches, and how many there are."""
    return "\n".join([f"{len(breaches)} breaches", *breaches[:SHOWN]])
