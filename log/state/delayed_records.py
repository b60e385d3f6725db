"""Which records of a partition are not due yet, and from where on the log is held for them.

A record is tracked from its append until it is due, or until its transaction is aborted or it is deleted. After it is due
the log is held for it for a while longer, so that it is not older than retention allows at the moment it can be read.
Source: Pulsar's InMemoryDelayedDeliveryTracker, which keeps the same for a subscription (PIP-26).
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
"""After a record is due it is held to the end of a step; records of one step are remembered together."""
_STALE_ALLOWED: Final = 1024
RELEASED_AT_ONCE: Final = 5_000
"""So that many that are due at the same time hold nobody up."""
_RELEASES_KEPT: Final = 256
_FEW: Final = 50
"""So many offsets are better taken out one by one than in a walk over all."""


class Hold(NamedTuple):
    """The log is held from `offset` on until `until_ms`."""

    offset: int
    until_ms: int


class DelayedRecords:
    """The records of one partition that are not due. Times are ms and come from the caller."""

    def __init__(self, limit: DelayedLimit, hold_ms: int) -> None:
        """Begin with none; `hold_ms` is how long the log is held for a record after it is due."""
        self._limit = limit
        self.hold_ms = hold_ms
        self._offsets = OffsetRanges()
        self._by_due: list[tuple[int, int]] = []
        """A heap of (due_ms, offset), with some that are no longer among the offsets."""
        self._undecided: dict[int, list[int]] = {}
        """Offsets by the producer whose transaction is open."""
        self._holds: deque[Hold] = deque()
        self._releases: deque[tuple[int, int]] = deque([(0, 0)], maxlen=_RELEASES_KEPT)
        """(number, lowest offset) of the last times that offsets began to wait no longer."""

    def __len__(self) -> int:
        return self._offsets.count

    @property
    def held_from(self) -> int:
        """The offset from which on the log is held; NOT_HELD when it is not."""
        first = self._offsets.first
        held = min((hold.offset for hold in self._holds), default=NOT_HELD)
        return held if first is None else min(first, held)

    @property
    def next_due_ms(self) -> int:
        """When the next record is due, or a little earlier; NEVER_DUE without any."""
        return self._by_due[0][0] if self._offsets.count else NEVER_DUE

    def first_due(self, offset: int) -> int:
        """The first offset from `offset` on that does not wait."""
        return self._offsets.first_outside(offset)

    def released_since(self, mark: int) -> tuple[int, int]:
        """(lowest offset, mark): which offsets wait no longer since a mark, and the mark to ask with next time; 0 at first."""
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
        """The ranges of offsets that wait between two, all inclusive."""
        return self._offsets.within(first_offset, last_offset)

    def entries(self) -> list[tuple[int, int]]:
        """(due_ms, offset) of all that wait, in no order."""
        self._forget_stale(allowed=0)
        return self._by_due.copy()

    def holds(self) -> list[Hold]:
        """What is held although it is due."""
        return list(self._holds)

    def restore(self, entries: Iterable[tuple[int, int]], holds: Iterable[Hold]) -> None:
        """Begin with what was stored, (due_ms, offset) each, all of it decided."""
        for due_ms, offset in sorted(entries, key=itemgetter(1)):
            self.add(offset, due_ms)
        self._holds.extend(sorted(holds, key=lambda hold: hold.until_ms))

    def refusal(self, adding: int) -> str | None:
        """Why so many more may not be added; None when they may."""
        return self._limit.refusal(self._offsets.count, adding)

    def add(self, offset: int, due_ms: int, transaction_of: int | None = None) -> None:
        """Track a record behind all others, with the producer whose open transaction it is in."""
        self._offsets.append(offset)
        heapq.heappush(self._by_due, (due_ms, offset))
        self._limit.in_all += 1
        if transaction_of is not None:
            self._undecided.setdefault(transaction_of, []).append(offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A producer's transaction ended; what was aborted waits for nothing and holds nothing."""
        offsets = self._undecided.pop(producer_id, [])
        if not commit:
            self._discard_all(offsets)
            self._forget_stale()

    def release(self, now_ms: int) -> bool:
        """Let go of what is due, at most RELEASED_AT_ONCE records; whether there was any."""
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
        """Records below `offset` were deleted."""
        self._limit.in_all -= self._offsets.discard_below(offset)
        self._forget_stale()
        self._forget_decided()

    def clear(self) -> None:
        """Track nothing any more."""
        self._limit.in_all -= self._offsets.count
        self._offsets = OffsetRanges()
        self._by_due.clear()
        self._undecided.clear()
        self._holds.clear()

    def _discard_all(self, offsets: list[int]) -> bool:
        """Have offsets wait no longer; whether any did."""
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
        """Keep the heap in proportion to what waits, or with so many more at most."""
        if allowed is None:
            allowed = self._offsets.count + _STALE_ALLOWED
        if len(self._by_due) > self._offsets.count + allowed:
            self._by_due = [entry for entry in self._by_due if entry[1] in self._offsets]
            heapq.heapify(self._by_due)

    def _forget_decided(self) -> None:
        """Keep what is known of open transactions in proportion to what waits."""
        if sum(map(len, self._undecided.values())) <= 2 * self._offsets.count + _STALE_ALLOWED:
            return
        for producer_id, offsets in list(self._undecided.items()):
            left = [offset for offset in offsets if offset in self._offsets]
            if left:
                self._undecided[producer_id] = left
            else:
                del self._undecided[producer_id]
