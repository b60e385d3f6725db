"""Tracks the records of a partition that are not due yet, and the offset from which the log is held for them.

A record is tracked from its append until the record is due, aborted or deleted. After the due time the log is held for the
record a while longer. Otherwise retention could remove the record as too old before a share group has read it.
Source: Pulsar's InMemoryDelayedDeliveryTracker, which does the same for a subscription (PIP-26).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from log.environment import DelayedLimit
from log.removal.retention_rules import NOT_HELD
from log.state.offset_ranges import OffsetRanges

NEVER_DUE: Final = 2**63 - 1
_HOLD_STEPS: Final = 60
"""Steps per `hold_ms`. A record that is due is held to the end of a step, so that one `Hold` covers all records of the step."""
_STALE_ALLOWED: Final = 1024
RELEASED_AT_ONCE: Final = 5_000
"""Records released in one call; the rest go with the next call. Otherwise many records due at once would hold up other work."""
_RELEASES_KEPT: Final = 256
_FEW: Final = 50
"""Offsets up to which discarding one by one is faster than one pass over all ranges."""


class Hold(NamedTuple):
    """A hold: the log is held from `offset` on until `until_ms`."""

    offset: int
    until_ms: int


class DelayedRecords:
    """The records of one partition that are not due. Times are in ms, and come from the caller."""

    def __init__(self, limit: DelayedLimit, hold_ms: int) -> None:
        """Begin with no records. `hold_ms` is the time for which the log is held after a record is due."""
        self._limit = limit
        self.hold_ms = hold_ms
        self._offsets = OffsetRanges()
        self._by_due: list[tuple[int, int]] = []
        """A heap of (due_ms, offset). Some entries are stale: their offsets no longer wait."""
        self._undecided: dict[int, list[int]] = {}
        """The offsets in open transactions, by producer id."""
        self._holds: deque[Hold] = deque()
        self._releases: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_RELEASES_KEPT)
        """(number, lowest offset) of the last releases."""

    def __len__(self) -> int:
        return self._offsets.count

    @property
    def held_from(self) -> int:
        """The offset from which on the log is held; NOT_HELD without delayed records and holds."""
        first = self._offsets.first
        held = min((hold.offset for hold in self._holds), default=NOT_HELD)
        return held if first is None else min(first, held)

    @property
    def next_due_ms(self) -> int:
        """The time at which the next record is due, or a little earlier; NEVER_DUE without records."""
        return self._by_due[0][0] if self._offsets.count else NEVER_DUE

    def first_due(self, offset: int) -> int:
        """Return the first offset from `offset` on that does not wait."""
        return self._offsets.first_outside(offset)

    def released_since(self, mark: int) -> tuple[int, int]:
        """Return the lowest offset that was released since a mark, and the mark for the next call. The first mark is 0."""
        now = self._releases[-1][0]
        if mark < self._releases[0][0]:
            return 0, now
        lowest = NEVER_DUE
        for number, offset in reversed(self._releases):
            if number <= mark:
                break
            lowest = min(lowest, offset)
        return lowest, now

    def waiting(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of waiting offsets between two offsets, all inclusive."""
        return self._offsets.within(first_offset, last_offset)

    def entries(self) -> list[tuple[int, int]]:
        """Return (due_ms, offset) of all waiting records, unordered."""
        self._forget_stale(allowed=0)
        return self._by_due.copy()

    def holds(self) -> list[Hold]:
        """Return the holds for records that are already due."""
        return list(self._holds)

    def restore(self, entries: Iterable[tuple[int, int]], holds: Iterable[Hold]) -> None:
        """Add the (due_ms, offset) entries and holds of a side file. All entries are decided."""
        for due_ms, offset in sorted(entries, key=itemgetter(1)):
            self.add(offset, due_ms)
        self._holds.extend(sorted(holds, key=lambda hold: hold.until_ms))

    def refusal(self, adding: int) -> str | None:
        """Return why `adding` more records may not be added; None when they may."""
        return self._limit.refusal(self._offsets.count, adding)

    def add(self, offset: int, due_ms: int, transaction_of: int | None = None) -> None:
        """Track a record with the highest offset so far, and the producer id if the record is in an open transaction."""
        self._offsets.append(offset)
        heapq.heappush(self._by_due, (due_ms, offset))
        self._limit.in_all += 1
        if transaction_of is not None:
            self._undecided.setdefault(transaction_of, []).append(offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction. Aborted records no longer wait, and the log is no longer held for them."""
        offsets = self._undecided.pop(producer_id, [])
        if not commit:
            self._discard_all(offsets)
            self._forget_stale()

    def release(self, now_ms: int) -> bool:
        """Release the records that are due, at most RELEASED_AT_ONCE. Return whether any were released."""
        due: list[tuple[int, int]] = []
        while self._by_due and self._by_due[0][0] <= now_ms and len(due) < RELEASED_AT_ONCE:
            due.append(heapq.heappop(self._by_due))
        for due_ms, offset in due if self.hold_ms else ():
            if offset in self._offsets:
                self._hold(offset, due_ms)
        released = self._discard_all([offset for _, offset in due])
        while self._holds and self._holds[0].until_ms <= now_ms:
            self._holds.popleft()
        if released and self._undecided:
            self._forget_decided()
        return released

    def _hold(self, offset: int, due_ms: int) -> None:
        step_ms = max(1, self.hold_ms // _HOLD_STEPS)
        until_ms = (due_ms // step_ms + 1) * step_ms + self.hold_ms
        if self._holds and until_ms <= self._holds[-1].until_ms:
            offset, until_ms = min(offset, self._holds[-1].offset), self._holds[-1].until_ms
            self._holds.pop()
        self._holds.append(Hold(offset, until_ms))

    def discard_below(self, offset: int) -> None:
        """Forget the records below `offset`, which were deleted."""
        self._limit.in_all -= self._offsets.discard_below(offset)
        self._forget_stale()
        self._forget_decided()

    def clear(self) -> None:
        """Forget all records and holds."""
        self._limit.in_all -= self._offsets.count
        self._offsets = OffsetRanges()
        self._by_due.clear()
        self._undecided.clear()
        self._holds.clear()

    def _discard_all(self, offsets: list[int]) -> bool:
        """Take offsets out of the waiting ones. Return whether any of them was waiting."""
        if len(offsets) > _FEW:
            gone = self._offsets.discard_all(sorted(offsets))
        else:
            gone = sum(map(self._offsets.discard, offsets))
        if not gone:
            return False
        self._limit.in_all -= gone
        self._releases.append((self._releases[-1][0] + 1, min(offsets)))
        return True

    def _forget_stale(self, allowed: int | None = None) -> None:
        """Drop stale heap entries once there are more than `allowed`, by default in proportion to the waiting records."""
        if allowed is None:
            allowed = self._offsets.count + _STALE_ALLOWED
        if len(self._by_due) > self._offsets.count + allowed:
            self._by_due = [entry for entry in self._by_due if entry[1] in self._offsets]
            heapq.heapify(self._by_due)

    def _forget_decided(self) -> None:
        """Drop released offsets of open transactions once there are too many in proportion to the waiting records."""
        if sum(map(len, self._undecided.values())) <= 2 * self._offsets.count + _STALE_ALLOWED:
            return
        for producer_id, offsets in list(self._undecided.items()):
            left = [offset for offset in offsets if offset in self._offsets]
            if left:
                self._undecided[producer_id] = left
            else:
                del self._undecided[producer_id]
