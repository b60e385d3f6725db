"""Decides which part of a log can be cleaned now, and whether to clean it.

The log was cleaned before from its start up to `first_dirty_offset`. From there up to `first_uncleanable_offset` the log can be
cleaned: whole closed segments, decided (below the last stable offset), durable, and older than `min.compaction.lag.ms`.
A cleaning is due when the dirty share of the bytes exceeds `min.cleanable.dirty.ratio`, or when a dirty record has waited for
`max.compaction.lag.ms`. Source: Kafka's `LogCleanerManager.cleanableOffsets`, `maxCompactionDelay`, `LogToClean`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class SegmentAge(NamedTuple):
    """A closed segment; `end_offset` is exclusive. Timestamps in ms, -1 without any."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    first_timestamp: int


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """A topic's settings for compaction. Times in ms."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The range that can be cleaned. `reason` says why a cleaning is due now, None when it is not."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_bytes: int
    dirty_ratio: float
    reason: str | None
    checkpoint_was_wrong: bool
    """Whether the end offset of the last cleaning lies outside of this log."""


def cleanable(
    closed: Sequence[SegmentAge],
    rules: CompactionRules,
    *,
    clean_end_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    decided_end_offset: int,
    now_ms: int,
) -> Cleanable:
    """Return the cleanable range of a log, from facts about its closed segments. Offsets with `end` in their names are exclusive.

    `clean_end_offset` is where the last cleaning ended, None before the first. Segments that end after `decided_end_offset` are
    not cleaned.
    """
    first_dirty = log_start_offset if clean_end_offset is None else clean_end_offset
    is_wrong = not log_start_offset <= first_dirty <= log_end_offset
    if is_wrong:
        first_dirty = log_start_offset
    first_uncleanable = first_dirty
    clean_bytes = dirty_bytes = 0
    oldest = now_ms
    for segment in closed:
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if segment.end_offset <= first_dirty:
            continue
        if segment.end_offset > decided_end_offset or (
            rules.min_lag_ms > 0 and segment.largest_timestamp > now_ms - rules.min_lag_ms
        ):
            break
        first_uncleanable = segment.end_offset
        dirty_bytes += segment.size_bytes
        if segment.first_timestamp > 0:
            oldest = min(oldest, segment.first_timestamp)
    total_bytes = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    return Cleanable(
        first_dirty,
        first_uncleanable,
        dirty_bytes,
        ratio,
        _reason(rules, dirty_bytes, ratio, now_ms - oldest),
        is_wrong,
    )


def _reason(rules: CompactionRules, dirty_bytes: int, ratio: float, waited_ms: int) -> str | None:
    if not dirty_bytes:
        return None
    if waited_ms > rules.max_lag_ms:
        return f"its oldest dirty record has waited for more than max.compaction.lag.ms={rules.max_lag_ms}"
    if ratio > rules.min_dirty_ratio:
        return f"{ratio:.0%} of it is dirty, more than min.cleanable.dirty.ratio={rules.min_dirty_ratio}"
    return None
