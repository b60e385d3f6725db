"""The order of rows that several leaders of one partition have written, where their offsets overlap.

A leader has all records of the leaders before it when it begins, and writes its own behind these. So what an earlier leader has at or beyond
the first offset of a later one is superseded: nobody has seen these records, or been told that they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from gateway.cluster.wal.ended_rows import RowAt
from gateway.cluster.wal.wal_object import DataRow


def in_order(rows: Iterable[RowAt]) -> list[RowAt]:
    """Return the rows of one partition in the order in which they were written, without superseded ones."""
    placed = sorted(rows, key=_place)
    kept: list[list[RowAt]] = []
    begun: int | None = None
    for _, group in groupby(reversed(placed), key=_leadership):
        leaders = [found for found in group if begun is None or not _begins_at(found, begun)]
        kept.append(leaders)
        firsts = [found.row.first_offset for found in leaders if isinstance(found.row, DataRow)]
        begun = min([*firsts, *([] if begun is None else [begun])], default=None)
    return [found for leaders in reversed(kept) for found in reversed(leaders)]


def _place(found: RowAt) -> tuple[int, int, int, int]:
    return *found.place, found.placed.start


def _leadership(found: RowAt) -> tuple[int, int]:
    return found.row.leader_epoch, found.wal.session


def _begins_at(found: RowAt, offset: int) -> bool:
    """Return whether a row has only records at or beyond an offset."""
    return isinstance(found.row, DataRow) and found.row.first_offset >= offset
