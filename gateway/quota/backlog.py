"""Who is behind in a partition, by how much, and who is moved forward.

    message TTL       every reader goes to the first record that is young enough
    quota exceeded    hold, refuse   nobody moves: producers wait or are refused (`produce_gate`)
                      evict          every reader that is too far behind goes to where the quota is kept

A quota by size is kept again when nine tenths of it are left, so that not every append moves somebody. Nobody moves beyond
what all consumers may read, nor beyond records that are held, and nobody whose offset an open transaction is about to set.
Source: Apache Pulsar's `BacklogQuotaManager` (its reduction factor is 0.9, too) and `PersistentMessageExpiryMonitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

NO_LIMIT: Final = -1
KEPT_TENTHS: Final = 9
"""Tenths of a quota by size that an eviction leaves."""


class Policy(StrEnum):
    """What happens beyond a quota; the values are those of `backlog.quota.policy`."""

    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


class Limit(StrEnum):
    """The topic setting that a verdict or a move follows from."""

    QUOTA_BYTES = "backlog.quota.bytes"
    QUOTA_MS = "backlog.quota.ms"
    TTL = "message.ttl.ms"


@dataclass(frozen=True, slots=True)
class BacklogRules:
    """The settings of one topic; −1 sets no limit."""

    quota_bytes: int = NO_LIMIT
    quota_ms: int = NO_LIMIT
    policy: Policy = Policy.HOLD
    ttl_ms: int = NO_LIMIT

    @property
    def has_quota(self) -> bool:
        """Whether any backlog is too much."""
        return self.quota_bytes >= 0 or self.quota_ms >= 0

    @property
    def limits_producers(self) -> bool:
        """Whether producers can be held or refused."""
        return self.has_quota and self.policy is not Policy.EVICT

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done for the topic."""
        return not self.has_quota and self.ttl_ms < 0


class Reader(NamedTuple):
    """A group that has a committed offset in the partition, or a share group by its start offset.

    One `in_transaction` has an offset that an open transaction is about to commit.
    """

    group: str
    is_share: bool
    offset: int
    in_transaction: bool = False


class PartitionView(Protocol):
    """What must be known of a partition's log; see `log.measured_log`."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that is kept."""

    @property
    def log_end_offset(self) -> int:
        """After the last record."""

    @property
    def skippable_end_offset(self) -> int:
        """Nobody is moved beyond it: what lies there is undecided, not yet visible, or held."""

    def bytes_from(self, offset: int) -> int:
        """Bytes from an offset to the end."""

    def newest_timestamp_at(self, offset: int) -> int | None:
        """The timestamp of the first batch from an offset on, −1 without one; None without a batch."""

    def expired_until(self, offset: int, before_ms: int) -> int:
        """The offset before which, from `offset` on, all is older."""

    def offset_with_bytes_left(self, max_bytes: int) -> int:
        """The lowest offset of a batch from which on there are at most so many bytes."""


class Move(NamedTuple):
    """A reader goes from one offset to a larger one."""

    reader: Reader
    from_offset: int
    to_offset: int
    limit: Limit


class Usage(NamedTuple):
    """The backlog of a partition is that of its `slowest` reader; None when nobody reads it, and nothing counts then.

    `age_ms` is that of the first record that it has not read, None when there is none or it has no timestamp.
    """

    slowest: Reader | None
    backlog_bytes: int
    age_ms: int | None
    exceeded: Limit | None


NOBODY_READS: Final = Usage(None, 0, None, None)


def position(view: PartitionView, reader: Reader) -> int:
    """Where a reader goes on: what it committed, unless that is no longer, or not yet, in the log."""
    return min(max(reader.offset, view.log_start_offset), view.log_end_offset)


def measure(view: PartitionView, readers: Iterable[Reader], rules: BacklogRules, now_ms: int) -> Usage:
    """The backlog of a partition, and which quota it exceeds: bytes before time."""
    slowest = min(readers, key=lambda reader: (reader.offset, reader.group), default=None)
    if slowest is None:
        return NOBODY_READS
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
    view: PartitionView, readers: Iterable[Reader], rules: BacklogRules, now_ms: int
) -> list[Move]:
    """Who goes on by the message TTL."""
    if rules.ttl_ms < 0:
        return []
    return _moves_by_time(view, readers, now_ms - rules.ttl_ms, Limit.TTL)


def eviction_moves(
    view: PartitionView, readers: Sequence[Reader], rules: BacklogRules, now_ms: int
) -> list[Move]:
    """Who goes on because a quota is exceeded and the policy says so."""
    if rules.policy is not Policy.EVICT:
        return []
    moves: dict[Reader, Move] = {}
    if measure(view, readers, rules, now_ms).exceeded is Limit.QUOTA_BYTES:
        target = view.offset_with_bytes_left(rules.quota_bytes * KEPT_TENTHS // 10)
        by_size = _moves(view, readers, lambda _: target, Limit.QUOTA_BYTES)
        moves = {move.reader: move for move in by_size}
    if rules.quota_ms >= 0:
        # from where they are by then: what is old may come behind what is young
        moved = {_after(reader, moves.get(reader)): reader for reader in readers}
        for move in _moves_by_time(view, moved, now_ms - rules.quota_ms, Limit.QUOTA_MS):
            reader = moved[move.reader]
            first = moves.get(reader, move)
            moves[reader] = Move(reader, first.from_offset, move.to_offset, move.limit)
    return list(moves.values())


def _after(reader: Reader, move: Move | None) -> Reader:
    return reader if move is None else reader._replace(offset=move.to_offset)


def _moves_by_time(
    view: PartitionView, readers: Iterable[Reader], before_ms: int, limit: Limit
) -> list[Move]:
    reached = -1

    def target(offset: int) -> int:
        # the readers come in the order of their positions: what one skips need not be looked at again
        nonlocal reached
        if offset >= reached:
            reached = view.expired_until(offset, before_ms)
        return reached

    return _moves(view, readers, target, limit)


def _moves(
    view: PartitionView, readers: Iterable[Reader], target: Callable[[int], int], limit: Limit
) -> list[Move]:
    found = []
    end_offset = view.skippable_end_offset
    for offset, reader in sorted((position(view, reader), reader) for reader in readers):
        if reader.in_transaction or offset >= end_offset:
            continue
        to_offset = min(target(offset), end_offset)
        if to_offset > offset:
            found.append(Move(reader, offset, to_offset, limit))
    return found
