"""Compares what a topic holds with the files that were sent into it. Pure: tested with planted faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SHOWN = 10
"""The number of breaches of one kind that are reported one by one; the others are only counted."""


class Row(NamedTuple):
    """A record as a reader saw it."""

    partition: int
    offset: int
    name: str
    sequence: int
    value: bytes


class Verdict(NamedTuple):
    breaches: list[str]
    counts: Counter[str]


def check(files: Mapping[str, Mapping[int, bytes]], rows: Iterable[Row]) -> Verdict:
    """Check that every line of every file is stored once and unchanged, and in each partition in the order of
    its sequence ids.

    `files` has the lines of each name by their sequence.
    """
    breaches: list[str] = []
    counts: Counter[str] = Counter()
    found: Counter[tuple[str, int]] = Counter()
    latest: dict[tuple[str, int], int] = {}
    for row in sorted(rows):
        where = f"partition {row.partition} offset {row.offset}: {row.name} {row.sequence}"
        counts["records checked"] += 1
        line = files.get(row.name, {}).get(row.sequence)
        found[row.name, row.sequence] += 1
        if line is None:
            breaches.append(f"{where} is of no file")
        elif found[row.name, row.sequence] > 1:
            counts["records doubled"] += 1
            breaches.append(f"{where} is doubled")
        elif line != row.value:
            breaches.append(f"{where} is not what the file says")
        before = latest.get((row.name, row.partition), -1)
        if row.sequence < before:
            counts["records out of order"] += 1
            breaches.append(f"{where} comes after {before}")
        latest[row.name, row.partition] = max(before, row.sequence)
    lost = [
        f"{name} {sequence} is lost"
        for name, lines in files.items()
        for sequence in lines
        if not found[name, sequence]
    ]
    counts["records lost"] = len(lost)
    counts["lines"] = sum(map(len, files.values()))
    return Verdict(breaches + lost, counts)


def shown(breaches: list[str]) -> list[str]:
    """Return the first breaches, and how many there are."""
    if len(breaches) <= SHOWN:
        return breaches
    return [*breaches[:SHOWN], f"{len(breaches)} breaches in all"]
