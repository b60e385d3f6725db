"""Decides whether producers may append to a partition, between two measurements of its backlog.

Each append counts a size quota down, so that only the last batch exceeds it. A batch is refused before anything is
written, and its producer sends it again. Until then the gate refuses later batches of that producer. Otherwise the
log would accept such a batch as the first of an unknown producer, whose first sequence may be any (KIP-360).

In a cluster, a gateway begins to lead a partition while batches for it are under way. It may have refused the first of them before it knew the
partition, or another gateway has. So for a while the gate refuses, once, the batch of an unknown producer that is not the producer's first. The producer
sends its batches again in their order, and the gate takes the earliest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from gateway.quota.backlog import BacklogRules, Limit, Policy, Usage

UNLIMITED_BYTES: Final = 2**63 - 1
REMEMBERED_MS: Final = 30_000
"""Time for which the gate waits for a refused batch; clients send it again within seconds."""
_HALF_OF_SEQUENCES: Final = 2**30
_SEQUENCE_MASK: Final = 2**31 - 1
_NOT_THE_FIRST: Final = "this gateway has just begun to lead the partition and lacks earlier batches of this producer; send it again"
_AFTER_A_REFUSED_ONE: Final = "an earlier batch of this producer was refused; send that batch first"


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    refused_ms: int


class ProduceGate:
    """The gate of one partition; it remembers the refused batches of at most `max_refused` producers."""

    __slots__ = (
        "_max_refused",
        "_refused",
        "_why",
        "holds",
        "refused_batches",
        "room_bytes",
        "strict_until_ms",
    )

    def __init__(self, max_refused: int) -> None:
        """Start with an open gate."""
        self._max_refused = max_refused
        self._refused: OrderedDict[int, _Refused] = OrderedDict()
        self._why = ""
        self.room_bytes = UNLIMITED_BYTES
        self.holds = False
        """Whether requests wait while the gate is closed, instead of being refused at once."""
        self.strict_until_ms = 0
        """Until when a batch of an unknown producer must be the producer's first; 0 if it need not."""
        self.refused_batches = 0
        """Batches refused since the start."""

    @property
    def is_closed(self) -> bool:
        """Whether the gate takes no batch now."""
        return self.room_bytes <= 0

    def update(self, usage: Usage, rules: BacklogRules) -> None:
        """Open or close the gate according to a measurement."""
        self.holds = rules.policy is Policy.HOLD
        if usage.slowest is None:
            self.room_bytes = UNLIMITED_BYTES
            return
        room_bytes = UNLIMITED_BYTES
        if rules.quota_bytes >= 0:
            room_bytes = rules.quota_bytes + 1 - usage.backlog_bytes
        if usage.exceeded is Limit.QUOTA_MS:
            room_bytes = 0
            self._why = (
                f"group {usage.slowest.group} has not read a record that is {usage.age_ms} ms old; "
                f"{Limit.QUOTA_MS} is {rules.quota_ms}"
            )
        else:
            self._why = f"group {usage.slowest.group} has too many unread bytes; {Limit.QUOTA_BYTES} is {rules.quota_bytes}"
        self.room_bytes = room_bytes

    def count_append(self, size_bytes: int) -> None:
        """Count the bytes of an appended batch."""
        self.room_bytes -= size_bytes

    @property
    def lets_all_pass(self) -> bool:
        """Whether any batch passes, so that nobody needs to ask with `refusal`."""
        return self.room_bytes > 0 and not self._refused and not self.strict_until_ms

    def is_strict(self, now_ms: int) -> bool:
        """Return whether a batch of an unknown producer must be the producer's first."""
        if now_ms >= self.strict_until_ms or not _is_recent(self.strict_until_ms, now_ms):
            self.strict_until_ms = 0
        return self.strict_until_ms > 0

    def refusal(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        must_be_first: bool = False,
    ) -> str | None:
        """Return why a batch is refused, None when it is taken; producer id −1 means none."""
        reason = self._why if self.room_bytes <= 0 else None
        if producer_id >= 0:
            batch = _Refused(producer_epoch, base_sequence, now_ms)
            if must_be_first and reason is None and base_sequence and self._is_earliest(batch, producer_id):
                reason = _NOT_THE_FIRST
            reason = self._in_order(batch, producer_id, reason)
        if reason is not None:
            self.refused_batches += 1
        return reason

    def remember_refusal(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int
    ) -> None:
        """Remember a batch that was refused for another reason; its producer will send it again."""
        if producer_id >= 0:
            self._remember(producer_id, _Refused(producer_epoch, base_sequence, now_ms))

    def note_stored(self, producer_id: int, producer_epoch: int, last_sequence: int) -> None:
        """Forget the refused batch of a producer if the log has it. It was stored before this gateway refused it, and may never come again."""
        known = self._refused.get(producer_id)
        if known is None or known.producer_epoch > producer_epoch:
            return
        if known.producer_epoch < producer_epoch or not _is_after(known.base_sequence, last_sequence):
            del self._refused[producer_id]

    def _is_earliest(self, batch: _Refused, producer_id: int) -> bool:
        """Return whether no batch of the producer was refused that is this one or an earlier one."""
        known = self._refused.get(producer_id)
        if known is None or known.producer_epoch != batch.producer_epoch:
            return True
        return _is_after(known.base_sequence, batch.base_sequence)

    def _in_order(self, batch: _Refused, producer_id: int, reason: str | None) -> str | None:
        """Refuse a batch that follows a refused one of its producer, and remember a batch that `reason` refuses."""
        known = self._refused.get(producer_id)
        is_known = (
            known is not None
            and known.producer_epoch == batch.producer_epoch
            and _is_recent(known.refused_ms, batch.refused_ms)
        )
        if known is not None and is_known and _is_after(batch.base_sequence, known.base_sequence):
            return reason or _AFTER_A_REFUSED_ONE
        if reason is not None:
            self._remember(producer_id, batch)
        elif known is not None and (not is_known or batch.base_sequence == known.base_sequence):
            del self._refused[producer_id]
        return reason

    def _remember(self, producer_id: int, refused: _Refused) -> None:
        self._refused[producer_id] = refused
        self._refused.move_to_end(producer_id)
        while len(self._refused) > self._max_refused:
            self._refused.popitem(last=False)


def _is_recent(then_ms: int, now_ms: int) -> bool:
    """Return whether two times are close to each other; they are not once the clock was set."""
    return abs(now_ms - then_ms) <= REMEMBERED_MS


def strict_gate(kept: ProduceGate | None, max_refused: int, now_ms: int) -> ProduceGate:
    """Return the gate of a partition that this gateway begins to lead; `kept` remembers what was refused before, if anything was."""
    gate = ProduceGate(max_refused) if kept is None else kept
    gate.strict_until_ms = now_ms + REMEMBERED_MS
    return gate


def _is_after(sequence: int, other: int) -> bool:
    """Return whether a sequence follows another one; sequences wrap from 2**31 - 1 to 0."""
    return 0 < (sequence - other) & _SEQUENCE_MASK < _HALF_OF_SEQUENCES
