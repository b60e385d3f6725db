"""A slow and plain share partition that tracks every offset separately, for comparison with the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.share.share_partition import (
    DONE,
    LETTERS_PER_ROUND,
    RETRY_STEP_MS,
    Acknowledgement,
    AcknowledgeType,
    DeliveryState,
    ShareLimits,
)


@dataclass(slots=True)
class Offset:
    """The share state of one offset."""

    state: DeliveryState = DeliveryState.AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = NEVER
    reason: str = ""
    round: int = 0
    is_skipped: bool = False

    def end(self, state: DeliveryState) -> None:
        self.state, self.member_id, self.deadline_ms = state, "", NEVER
        self.is_skipped = False

    def release(self, limits: ShareLimits, now_ms: int) -> None:
        if self.is_skipped:
            self.end(DeliveryState.ARCHIVED)
            return
        if self.delivery_count >= limits.delivery_count_limit:
            self.bury(limits, "delivered too often")
            return
        self.end(DeliveryState.AVAILABLE)
        delays = limits.retry_backoff_ms
        if delays:
            self.deadline_ms = now_ms + delays[min(self.delivery_count, len(delays)) - 1]
            while self.deadline_ms % RETRY_STEP_MS:
                self.deadline_ms += 1

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.AVAILABLE and self.deadline_ms == NEVER

    def bury(self, limits: ShareLimits, reason: str) -> None:
        if self.is_skipped:
            self.end(DeliveryState.ARCHIVED)
            return
        self.end(DeliveryState.ARCHIVING if limits.has_dead_letters else DeliveryState.ARCHIVED)
        self.reason = reason if limits.has_dead_letters else ""


Stored = tuple[DeliveryState, int, str, int, int]
"""State, delivery count, reason of the death, round of dead letters (0 outside of the present one), and the
time until which it waits.
"""
FRESH: Stored = (DeliveryState.AVAILABLE, 0, "", 0, NEVER)


class NaivePartition:
    """The offsets from `start_offset` to `end_offset`, and the states that the log stores."""

    def __init__(self, start_offset: int, limits: ShareLimits) -> None:
        self.start_offset = start_offset
        self.limits = limits
        self.offsets: dict[int, Offset] = {}
        self.stored: dict[int, Stored] = {}
        self.stored_start_offset = start_offset
        self.round = self.stored_round = 0
        """The number of the newest round of dead letters."""

    @property
    def end_offset(self) -> int:
        return max(self.offsets, default=self.start_offset - 1) + 1

    @property
    def next_offset(self) -> int:
        found = (offset for offset, known in self.offsets.items() if known.is_available)
        return min(found, default=self.end_offset)

    def acquire(
        self,
        member_id: str,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        now_ms: int,
        *,
        is_strict: bool,
    ) -> list[tuple[int, int]]:
        """Acquire offsets; return each with its delivery count."""
        acquired: list[tuple[int, int]] = []
        position = self.next_offset
        left = self.limits.max_record_locks - self.given_out
        for base_offset, last_offset in batches:
            if len(acquired) >= max_records:
                break
            for offset in range(position, base_offset):
                if offset in self.offsets and self.offsets[offset].state is DeliveryState.AVAILABLE:
                    self.offsets[offset].end(DeliveryState.ARCHIVED)
            position = max(position, last_offset + 1)
            room = self.limits.max_record_locks - (self.end_offset - self.start_offset)
            new_of_batch = False
            counts = bool(self.limits.retry_backoff_ms)
            for offset in range(max(base_offset, self.start_offset), last_offset + 1):
                is_enough = is_strict and len(acquired) >= max_records
                if is_enough and not new_of_batch:
                    break
                if offset not in self.offsets:
                    room = left if counts and not new_of_batch else room
                    new_of_batch = True
                    if room <= 0:
                        break
                    room -= 1
                    for missing in range(self.end_offset, offset):
                        self.offsets[missing] = Offset(DeliveryState.ARCHIVED)
                    self.offsets[offset] = Offset()
                known = self.offsets[offset]
                is_held_up = counts and not known.delivery_count and left <= 0
                if known.is_available and not is_enough and not is_held_up:
                    left -= not known.delivery_count
                    known.state, known.member_id = DeliveryState.ACQUIRED, member_id
                    known.delivery_count += 1
                    known.deadline_ms = now_ms + self.limits.lock_duration_ms
                    acquired.append((offset, known.delivery_count))
        return acquired

    @property
    def given_out(self) -> int:
        """The number of offsets that were handed out and are not done."""
        return sum(bool(known.delivery_count) and known.state not in DONE for known in self.offsets.values())

    def holds(self, member_id: str, offset: int) -> bool:
        """Return whether the member may acknowledge an offset. Offsets below the start may always be
        acknowledged.
        """
        known = self.offsets.get(offset)
        if known is None:
            return offset < self.start_offset
        return known.state is DeliveryState.ACQUIRED and known.member_id == member_id

    def acknowledge(self, member_id: str, said: Sequence[Acknowledgement], now_ms: int) -> bool:
        """Acknowledge an offset; return whether it was accepted."""
        each = [
            (offset, types[0] if len(types) == 1 else types[offset - first])
            for first, last, types in said
            for offset in range(first, last + 1)
        ]
        if not all(self.holds(member_id, offset) for offset, _ in each):
            return False
        changed = []
        for offset, kind in each:
            known = self.offsets.get(offset)
            if known is None:
                continue
            if kind == AcknowledgeType.RENEW:
                known.deadline_ms = now_ms + self.limits.lock_duration_ms
                continue
            changed.append(offset)
            if kind == AcknowledgeType.ACCEPT:
                known.end(DeliveryState.ACKNOWLEDGED)
            elif kind == AcknowledgeType.RELEASE:
                known.release(self.limits, now_ms)
            elif kind == AcknowledgeType.REJECT:
                known.bury(self.limits, "rejected")
            else:
                known.end(DeliveryState.ARCHIVED)
        self._settle(changed)
        return True

    def release_where(self, chosen: Callable[[Offset], bool], now_ms: int) -> None:
        changed = [offset for offset, known in self.offsets.items() if chosen(known)]
        for offset in changed:
            self.offsets[offset].release(self.limits, now_ms)
        self._settle(changed)

    def expire(self, now_ms: int) -> None:
        due = [known for known in self.offsets.values() if known.deadline_ms <= now_ms]
        for known in due:
            if known.state is DeliveryState.AVAILABLE:
                known.deadline_ms = NEVER
        if any(known.state is DeliveryState.ACQUIRED for known in due):
            self.release_where(lambda known: known.deadline_ms <= now_ms, now_ms)

    def letters(self) -> dict[int, tuple[int, str]]:
        """Return delivery count and reason of the records of the present round of dead letters."""
        return {
            offset: (known.delivery_count, known.reason)
            for offset, known in sorted(self.offsets.items())
            if known.state is DeliveryState.ARCHIVING and known.round
        }

    def end_round(self) -> None:
        """Archive the records of the present round: their letters are written."""
        sent = list(self.letters())
        for offset in sent:
            self.offsets[offset].end(DeliveryState.ARCHIVED)
            self.offsets[offset].reason, self.offsets[offset].round = "", 0
        if sent:
            self._settle(sent)

    def split_round(self) -> None:
        """Leave half as many records in the present round; it begins anew with the first that died."""
        sent = list(self.letters())
        for offset in sent:
            self.offsets[offset].round = 0
        if sent:
            self._settle(sent, most=max(1, len(sent) // 2))

    def _begin_round(self, most: int) -> list[int]:
        if self.letters():
            return []
        dead = sorted(
            offset for offset, known in self.offsets.items() if known.state is DeliveryState.ARCHIVING
        )
        self.round += bool(dead)
        for offset in dead[:most]:
            self.offsets[offset].round = self.round
        return dead[:most]

    def log_starts_at(self, log_start_offset: int) -> None:
        if log_start_offset <= self.start_offset:
            return
        if any(known.state is DeliveryState.ARCHIVING for known in self.offsets.values()):
            changed = []
            for offset in range(self.start_offset, log_start_offset):
                known = self.offsets.setdefault(offset, Offset())
                if known.state is DeliveryState.AVAILABLE:
                    known.end(DeliveryState.ARCHIVED)
                    changed.append(offset)
                elif known.state is DeliveryState.ACQUIRED:
                    known.is_skipped = True
                    changed.append(offset)
            self._settle(changed)
            return
        self.offsets = {offset: known for offset, known in self.offsets.items() if offset >= log_start_offset}
        self.start_offset = log_start_offset
        self._settle([])

    def _settle(self, changed: Sequence[int], most: int = LETTERS_PER_ROUND) -> None:
        while self.start_offset in self.offsets and self.offsets[self.start_offset].state in DONE:
            del self.offsets[self.start_offset]
            self.start_offset += 1
        changed = [*changed, *self._begin_round(most)]
        for offset in changed:
            if offset in self.offsets:
                self._store(offset)
        self.stored_round = self.round
        if changed or self.start_offset != self.stored_start_offset:
            self.stored_start_offset = self.start_offset
        self.stored = {offset: one for offset, one in self.stored.items() if offset >= self.start_offset}

    def _store(self, offset: int) -> None:
        known = self.offsets[offset]
        self.stored[offset] = known.state, known.delivery_count, known.reason, known.round, known.deadline_ms
        if known.state is DeliveryState.ACQUIRED:
            self.stored[offset] = DeliveryState.AVAILABLE, known.delivery_count - 1, "", 0, NEVER
            if known.is_skipped:
                self.stored[offset] = DeliveryState.ARCHIVED, known.delivery_count, "", 0, NEVER

    def store_all(self) -> None:
        """Store the whole state, as a snapshot does."""
        for offset in self.offsets:
            self._store(offset)

    def crash(self) -> None:
        """Keep only the stored state, as a crash and a restart do."""
        end_offset = max((offset for offset, one in self.stored.items() if one != FRESH), default=-1) + 1
        self.offsets = {
            offset: restored(*self.stored.get(offset, FRESH))
            for offset in range(self.start_offset, end_offset)
        }
        self.round = self.stored_round


def restored(state: DeliveryState, delivery_count: int, reason: str, number: int, due_ms: int) -> Offset:
    return Offset(state, delivery_count, deadline_ms=due_ms, reason=reason, round=number)
