"""Judges the batches of one producer in one partition by their sequences. Pure.

Kafka's rule (KIP-98): within a producer epoch every batch begins where the previous batch ended, sequences wrap from 2^31-1
to 0, and a new epoch begins at 0. A log that follows the rule has no gap, duplicate or reordering. The audit reads only the
log, and needs no state of the broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

SEQUENCE_SPAN = 1 << 31
FINDINGS_KEPT = 20
"""The number of findings of each kind that a trail keeps; further findings are only counted."""


class Kind(StrEnum):
    """The kinds of breaches in a producer's batches of one partition."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    REORDERING = "reordering"


class SequencedBatch(NamedTuple):
    """The fields of a batch that the rule needs: `record_count` sequences from `base_sequence` on, wrapping."""

    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int


class Finding(NamedTuple):
    """One breach: `records` sequences from `first_sequence` to `last_sequence` (inclusive, wrapping).

    `offset` is the base offset of the duplicate or late batch; for a gap, of the batch before the gap (-1 when the sequence
    is missing from the beginning).
    """

    kind: Kind
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    records: int
    offset: int


@dataclass
class Trail:
    """The trail of one producer through one partition: `observe` each batch in offset order, then `finish`.

    With `complete_from_start` the log still holds its very first record, so a first sequence other than 0 is a gap too.
    Counts are exact; `findings` holds the first 20 findings of each kind.
    """

    complete_from_start: bool = True
    batches: int = 0
    records: int = 0
    missing_records: int = 0
    duplicate_records: int = 0
    reordered_batches: int = 0
    first_sequence: int = -1
    last_sequence: int = -1
    producer_epoch: int = -1
    findings: list[Finding] = field(default_factory=list)
    _seen: list[tuple[int, int]] = field(default_factory=list)
    _offset_before: dict[int, int] = field(default_factory=dict)
    _next: int = 0
    _last_base_offset: int = -1

    def observe(self, batch: SequencedBatch) -> None:
        """Judge the next batch of the log."""
        self.batches += 1
        self.records += batch.record_count
        if batch.producer_epoch < self.producer_epoch:
            self.reordered_batches += 1
            self._report(
                Kind.REORDERING,
                batch.producer_epoch,
                batch.base_sequence,
                batch.record_count,
                batch.base_offset,
            )
            return
        if batch.producer_epoch > self.producer_epoch:
            self._begin_epoch(batch)
            first = batch.base_sequence
        else:
            first = self._next + _distance(self._next, batch.base_sequence)
        self._place(first, first + batch.record_count, batch.base_offset)
        self.last_sequence = (self._next - 1) % SEQUENCE_SPAN

    def finish(self) -> list[Finding]:
        """Return all findings. Only now is known which gaps no late batch filled."""
        self._close_epoch()
        return self.findings

    @property
    def is_clean(self) -> bool:
        """True when the trail has no finding; meaningful after `finish`."""
        return not (self.missing_records or self.duplicate_records or self.reordered_batches)

    def _begin_epoch(self, batch: SequencedBatch) -> None:
        is_first = self.producer_epoch < 0
        self._close_epoch()
        self.producer_epoch = batch.producer_epoch
        if is_first:
            self.first_sequence = batch.base_sequence
        self._next = batch.base_sequence if is_first and not self.complete_from_start else 0
        self._seen = [(self._next, self._next)]
        self._offset_before = {}
        self._last_base_offset = -1

    def _place(self, first: int, end: int, base_offset: int) -> None:
        repeated = 0
        for low, high in self._seen:
            overlap_first, overlap_end = max(low, first), min(high, end)
            if overlap_first < overlap_end:
                repeated += overlap_end - overlap_first
                self._report(
                    Kind.DUPLICATE,
                    self.producer_epoch,
                    overlap_first,
                    overlap_end - overlap_first,
                    base_offset,
                )
        self.duplicate_records += repeated
        if first < self._next and repeated < end - first:
            self.reordered_batches += 1
            self._report(Kind.REORDERING, self.producer_epoch, first, end - first, base_offset)
        if first > self._next:
            self._offset_before[first] = self._last_base_offset
        self._seen = _merged(self._seen, first, end)
        self._next = max(self._next, end)
        self._last_base_offset = base_offset

    def _close_epoch(self) -> None:
        for (_, low), (high, _) in pairwise(self._seen):
            self.missing_records += high - low
            self._report(Kind.GAP, self.producer_epoch, low, high - low, self._offset_before.get(high, -1))
        self._seen = []

    def _report(self, kind: Kind, producer_epoch: int, first: int, records: int, offset: int) -> None:
        if sum(finding.kind == kind for finding in self.findings) < FINDINGS_KEPT:
            last = (first + records - 1) % SEQUENCE_SPAN
            self.findings.append(Finding(kind, producer_epoch, first % SEQUENCE_SPAN, last, records, offset))


def _distance(expected: int, sequence: int) -> int:
    """Return by how much a sequence exceeds the expected one; negative if it is lower. Sequences wrap, so the smaller distance counts."""
    ahead = (sequence - expected) % SEQUENCE_SPAN
    return ahead if ahead < SEQUENCE_SPAN // 2 else ahead - SEQUENCE_SPAN


def _merged(ranges: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    position = bisect_right(ranges, (first, end))
    merged: list[tuple[int, int]] = []
    for low, high in [*ranges[:position], (first, end), *ranges[position:]]:
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


@dataclass
class OffsetTrail:
    """The trail of offsets through one partition: `observe` (base_offset, last_offset) in offset order.

    Offsets are dense without compaction: each batch begins one after the previous batch.
    """

    next_offset: int = -1
    missing_offsets: int = 0
    overlapping_offsets: int = 0

    def observe(self, base_offset: int, last_offset: int) -> None:
        """Judge the offsets of the next batch."""
        if self.next_offset >= 0:
            self.missing_offsets += max(0, base_offset - self.next_offset)
            self.overlapping_offsets += max(0, self.next_offset - base_offset)
        self.next_offset = max(self.next_offset, last_offset + 1)


def judged(batches: Iterable[SequencedBatch], *, complete_from_start: bool = True) -> Trail:
    """Return the audit of one producer's batches in one partition: its gaps, duplicates and reorderings."""
    trail = Trail(complete_from_start)
    for batch in batches:
        trail.observe(batch)
    trail.finish()
    return trail
