"""Measures the backlog of a partition's readers, and decides which readers are moved forward.

    message TTL                      every reader moves to the first record that is young enough
    quota exceeded   hold, refuse    no reader moves: producers wait or are refused (`ProduceGate`)
                     evict           every reader that is too far behind moves to an offset within the quota

An eviction by size leaves nine tenths of the quota, so that not every append moves a reader. No reader moves
past records that are not visible to all consumers, or past delayed records. A reader whose offset an open
transaction is about to commit does not move. Source: Apache Pulsar's `BacklogQuotaManager` (its reduction
factor is 0.9, too) and `PersistentMessageExpiryMonitor`.

Decides whether producers may append to a partition, between two measurements of its backlog.

Each append counts a size quota down, so that only the last batch exceeds it. A batch is refused before
anything is written, and its producer sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

NO_LIMIT: Final = -1
KEPT_TENTHS: Final = 9
"""Tenths of a size quota that an eviction leaves."""


class Policy(StrEnum):
    """The action when a quota is exceeded; the values are those of `backlog.quota.policy`."""

    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


class Limit(StrEnum):
    """The topic setting that made the gateway refuse a batch, or move a group forward."""

    QUOTA_BYTES = "backlog.quota.bytes"
    QUOTA_MS = "backlog.quota.ms"
    TTL = "message.ttl.ms"


class BacklogRules(msgspec.Struct, frozen=True):
    """The backlog settings of one topic; −1 sets no limit."""

    quota_bytes: int = NO_LIMIT
    quota_ms: int = NO_LIMIT
    policy: Policy = Policy.HOLD
    ttl_ms: int = NO_LIMIT

    @property
    def has_quota(self) -> bool:
        return self.quota_bytes >= 0 or self.quota_ms >= 0

    @property
    def limits_producers(self) -> bool:
        """Whether producers can be held or refused."""
        return self.has_quota and self.policy is not Policy.EVICT

    @property
    def is_empty(self) -> bool:
        return not self.has_quota and self.ttl_ms < 0


class GroupReader(NamedTuple):
    """A group that has a committed offset in the partition, or a share group by its start offset.
    `in_transaction` means that an open transaction is about to commit an offset of the group.
    """

    group: str
    is_share: bool
    offset: int
    in_transaction: bool = False


class PartitionView(Protocol):
    """The facts about a partition's log that a decision needs."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that is kept."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""

    @property
    def skippable_end_offset(self) -> int:
        """The offset past which no reader moves: later records are undecided, not yet visible, or delayed."""

    def bytes_from(self, offset: int) -> int:
        """Return the bytes from an offset to the end of the log."""

    def newest_timestamp_at(self, offset: int) -> int | None:
        """Return the newest timestamp of the first batch from an offset on; −1 if none, None at the end."""

    def expired_until(self, offset: int, before_ms: int) -> int:
        """Return the offset before which all records, from `offset` on, are older than `before_ms`."""

    def offset_with_bytes_left(self, max_bytes: int) -> int:
        """Return the lowest offset of a batch from which on the log has at most `max_bytes`."""


class OffsetMove(NamedTuple):
    reader: GroupReader
    from_offset: int
    to_offset: int
    limit: Limit


class Usage(NamedTuple):
    """The backlog of a partition: that of its `slowest` reader; None without readers, and nothing counts.
    `age_ms` is the age of the reader's first unread record; None without one, or without its timestamp.
    """

    slowest: GroupReader | None
    backlog_bytes: int
    age_ms: int | None
    exceeded: Limit | None


def position(view: PartitionView, reader: GroupReader) -> int:
    """Return the offset at which a reader continues: its committed offset, moved into the log."""
    return min(max(reader.offset, view.log_start_offset), view.log_end_offset)


def measure(view: PartitionView, readers: Iterable[GroupReader], rules: BacklogRules, now_ms: int) -> Usage:
    """Measure the backlog of a partition, and the quota that it exceeds, if any; bytes come before time."""
    slowest = min(readers, key=lambda reader: (reader.offset, reader.group), default=None)
    if slowest is None:
        return Usage(None, 0, None, None)
    offset = position(view, slowest)
    backlog_bytes = view.bytes_from(offset)
    timestamp = view.newest_timestamp_at(offset) if offset < view.log_end_offset else None
    age_ms = None if timestamp is None or timestamp < 0 else max(0, now_ms - timestamp)
    exceeded = None
    if 0 <= rules.quota_bytes < backlog_bytes:
        exceeded = Limit.QUOTA_BYTES
    elif age_ms is not None and 0 <= rules.quota_ms < age_ms:
        exceeded = Limit.QUOTA_MS
    return Usage(slowest, backlog_bytes, age_ms, exceeded)


def expired_moves(
    view: PartitionView, readers: Iterable[GroupReader], rules: BacklogRules, now_ms: int
) -> list[OffsetMove]:
    """Return the moves that the message TTL causes."""
    if rules.ttl_ms < 0:
        return []
    return _moves_by_time(view, readers, now_ms - rules.ttl_ms, Limit.TTL)


def eviction_moves(
    view: PartitionView, readers: Sequence[GroupReader], rules: BacklogRules, now_ms: int
) -> list[OffsetMove]:
    """Return the moves that an exceeded quota causes under the policy EVICT."""
    if rules.policy is not Policy.EVICT:
        return []
    moves: dict[GroupReader, OffsetMove] = {}
    if measure(view, readers, rules, now_ms).exceeded is Limit.QUOTA_BYTES:
        target = view.offset_with_bytes_left(rules.quota_bytes * KEPT_TENTHS // 10)
        by_size = _moves(view, readers, lambda _: target, Limit.QUOTA_BYTES)
        moves = {move.reader: move for move in by_size}
    if rules.quota_ms >= 0:
        # start from the positions after the moves by size: old records may come after young ones
        moved = {_after(reader, moves.get(reader)): reader for reader in readers}
        for move in _moves_by_time(view, moved, now_ms - rules.quota_ms, Limit.QUOTA_MS):
            reader = moved[move.reader]
            first = moves.get(reader, move)
            moves[reader] = OffsetMove(reader, first.from_offset, move.to_offset, move.limit)
    return list(moves.values())


def _after(reader: GroupReader, move: OffsetMove | None) -> GroupReader:
    return reader if move is None else reader._replace(offset=move.to_offset)


def _moves_by_time(
    view: PartitionView, readers: Iterable[GroupReader], before_ms: int, limit: Limit
) -> list[OffsetMove]:
    reached = -1

    def target(offset: int) -> int:
        # readers come in the order of their positions, so records that one reader skips need no second check
        nonlocal reached
        if offset >= reached:
            reached = view.expired_until(offset, before_ms)
        return reached

    return _moves(view, readers, target, limit)


def _moves(
    view: PartitionView, readers: Iterable[GroupReader], target: Callable[[int], int], limit: Limit
) -> list[OffsetMove]:
    found = []
    end_offset = view.skippable_end_offset
    for offset, reader in sorted((position(view, reader), reader) for reader in readers):
        if reader.in_transaction or offset >= end_offset:
            continue
        to_offset = min(target(offset), end_offset)
        if to_offset > offset:
            found.append(OffsetMove(reader, offset, to_offset, limit))
    return found


UNLIMITED_BYTES: Final = 2**63 - 1


class ProduceGate:
    __slots__ = ("_why", "holds", "refused_batches", "room_bytes")

    def __init__(self) -> None:
        self._why = ""
        self.room_bytes = UNLIMITED_BYTES
        self.holds = False
        """Whether requests wait while the gate is closed, instead of being refused at once."""
        self.refused_batches = 0
        """Batches refused since the start."""

    @property
    def is_closed(self) -> bool:
        return self.room_bytes <= 0

    def update(self, usage: Usage, rules: BacklogRules) -> None:
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
            self._why = (
                f"group {usage.slowest.group} has too many unread bytes; "
                f"{Limit.QUOTA_BYTES} is {rules.quota_bytes}"
            )
        self.room_bytes = room_bytes

    def count_append(self, size_bytes: int) -> None:
        self.room_bytes -= size_bytes

    def refuse(self) -> str:
        """Count a batch that the closed gate refuses; return why it does."""
        self.refused_batches += 1
        return self._why
