"""The contents of a partition in the bucket, by one manifest: its parts, the end of its records, and its aborted transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.cluster.parts.manifest import FileRef, Manifest, PartRef
from log.uploading import TransactionIndex, aborts_name

MOST_ABORTS_BYTES: Final = 8 << 20
"""The most bytes of transaction indexes of one partition. Of a partition with more, committed records are read from the leader alone."""


class Bounds(NamedTuple):
    """The offsets that a reader is told."""

    log_start: int
    stable: int
    end: int


class Contents:
    """The parts of one manifest in the order of their offsets, and the transaction indexes of its segments."""

    def __init__(self, manifest: Manifest, indexes: Mapping[str, bytes]) -> None:
        """Take the contents of the files of `abort_files`, by name."""
        self.parts: list[PartRef] = [part for segment in manifest.segments for part in segment.parts]
        self._ends = [part.end_offset for part in self.parts]
        self.indexes = indexes
        end = min(manifest.end_offset, self._ends[-1]) if self.parts else 0
        files = abort_files(manifest)
        stable = 0 if files is None else max(0, min(manifest.stable_offset, end))
        self.bounds = Bounds(manifest.log_start_offset, stable, end)
        self._aborting: list[tuple[int, TransactionIndex]] = []
        """The transaction indexes that have entries, and before them the offset at which the next segment begins."""
        bases = [segment.base for segment in manifest.segments]
        for number, base in enumerate(bases):
            is_last = number + 1 == len(bases)
            entries = manifest.last_aborts if is_last else indexes.get(aborts_name(base), b"")
            if entries:
                behind = manifest.end_offset if is_last else bases[number + 1]
                self._aborting.append((behind, TransactionIndex(entries)))

    def part_at(self, offset: int) -> int:
        """Return the number of the part with the first records at or after an offset; the number of all parts if none has."""
        return bisect_right(self._ends, offset)

    def aborted(self, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
        """Return (producer_id, first_offset) of the aborted transactions that reach into [first_offset, upper_bound).

        Ask below the stable offset only: of transactions beyond, not all are known.
        """
        found: list[tuple[int, int]] = []
        first = bisect_right(self._aborting, first_offset, key=lambda each: each[0])
        for _, index in self._aborting[first:]:
            if index.collect(first_offset, upper_bound, found):
                break
        return found


def abort_files(manifest: Manifest) -> list[FileRef] | None:
    """Return the files with the transaction indexes of closed segments; None if they are too large."""
    names = {aborts_name(segment.base) for segment in manifest.segments[:-1]}
    files = [file for file in manifest.files if file.name in names]
    return None if sum(file.length for file in files) > MOST_ABORTS_BYTES else files


def left_bytes(manifest: Manifest, offset: int, bound: int, enough: int) -> int:
    """Return about how many bytes the parts have between an offset and a bound; `enough` or more ends the count."""
    found = 0
    for segment in reversed(manifest.segments):
        for part in reversed(segment.parts):
            if part.end_offset <= offset or found >= enough:
                return found
            found += part.length if part.end_offset <= bound else 0
    return found
