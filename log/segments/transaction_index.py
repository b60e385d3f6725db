"""The aborted transactions of one segment, in Kafka's `.txnindex` format.

An entry is: version int16 (0), producer_id int64, first_offset int64, last_offset int64 (the marker's),
last_stable_offset int64 (after the marker). The entry belongs to the segment that holds the marker; the
records may lie in earlier segments. A segment without aborts has no file. Like the other indexes this one
grows in memory while batches are appended. The log writes it to disk when it rolls the segment or closes, and
rebuilds it after a crash.
Source: Kafka's `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An entry of the index. `last_offset` is the marker's; `last_stable_offset` holds after the marker."""

    first_offset: int
    producer_id: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries as bytes, in the order of their markers."""

    __slots__ = ("entries",)

    def __init__(self, entries: bytes = b"") -> None:
        self.entries = bytearray(entries)

    def __len__(self) -> int:
        return len(self.entries) // ENTRY.size

    @property
    def size_bytes(self) -> int:
        return len(self.entries)

    def add(self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        """Add an entry: the marker at `last_offset` aborted the transaction that began at `first_offset`."""
        self.entries += ENTRY.pack(VERSION, producer_id, first_offset, last_offset, last_stable_offset)

    def transactions(self) -> Iterator[AbortedTransaction]:
        """Yield all entries, in the order of their markers."""
        for _, producer_id, first_offset, last_offset, stable in ENTRY.iter_unpack(self.entries):
            yield AbortedTransaction(first_offset, producer_id, last_offset, stable)

    def collect(self, offset: int, upper_bound: int, found: list[tuple[int, int]]) -> bool:
        """Add (producer_id, first_offset) of transactions that reach into [offset, upper_bound) to `found`.

        Returns whether all are found. If not, a transaction aborted in a later segment may reach there too.
        """
        first = bisect_left(range(len(self)), offset, key=self._marker_offset)
        for number in range(first, len(self)):
            _, producer_id, first_offset, _, last_stable_offset = ENTRY.unpack_from(
                self.entries, number * ENTRY.size
            )
            if first_offset < upper_bound:
                found.append((producer_id, first_offset))
            if last_stable_offset >= upper_bound:
                return True
        return False

    def _marker_offset(self, number: int) -> int:
        return int(ENTRY.unpack_from(self.entries, number * ENTRY.size)[3])

    def is_sane(self, base_offset: int, end_offset: int) -> bool:
        """Return whether these can be the entries of a segment with offsets in [base_offset, end_offset)."""
        if len(self.entries) % ENTRY.size:
            return False
        previous = base_offset - 1
        for version, producer_id, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(
            self.entries
        ):
            if (
                version != VERSION
                or producer_id < 0
                or not 0 <= first_offset < last_offset
                or not previous < last_offset < end_offset
                or last_stable_offset > last_offset + 1
            ):
                return False
            previous = last_offset
        return True
