"""Writes the assignment of a group member as text: partitions by topic, or tasks by subtopology."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from seqgate.gateway.admin.tables import shown

NONE: Final = "-"


def assigned(assignment: dict[str, list[int]] | None) -> str:
    """Return partitions by topic: `flights 0-3, 7; orders 0`."""
    if assignment is None:
        return "not readable"
    parts = (f"{shown(topic)} {ranges(partitions)}" for topic, partitions in assignment.items() if partitions)
    return "; ".join(parts) or NONE


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with ranges for neighbours: `0-3, 7`."""
    runs = itertools.groupby(enumerate(sorted(set(numbers))), key=lambda entry: entry[1] - entry[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
