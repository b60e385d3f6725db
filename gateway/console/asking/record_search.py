"""Finds the records for one page: from an offset or a time on, or the newest. Bounded in time, bytes and records."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.admin.remote.cluster import Cluster
from gateway.console.asking.fetching import Limits, ReadRecord, Stretch, fetch
from gateway.console.asking.record_filter import RecordFilter
from gateway.console.asking.topic_details import TopicPlaces

MOST_SECONDS: Final = 8.0
MOST_BYTES: Final = 64 << 20
"""Bytes that a search reads; after more it ends with what it has found."""
LONGEST_KEPT: Final = 16 << 10
"""Bytes that a search keeps of a key, a value or a header; of longer ones it keeps the beginning."""
SEARCHES: Final = 3
"""Searches that run at a time; each may hold a record of any size. Others wait."""
_TURNS: Final = threading.BoundedSemaphore(SEARCHES)


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of a partition that a search reads, from `first` (inclusive) to `end` (exclusive)."""

    first: int
    end: int


class Kept:
    """A record of which long contents are kept in part only, with their whole sizes (None for null)."""

    __slots__ = ("key_bytes", "record", "value_bytes")

    def __init__(self, record: ReadRecord, longest: int) -> None:
        """Keep a record with at most `longest` bytes of key and value."""
        self.key_bytes = None if record.key is None else len(record.key)
        self.value_bytes = None if record.value is None else len(record.value)
        key = record.key if record.key is None else record.key[:longest]
        value = record.value if record.value is None else record.value[:longest]
        headers = tuple(
            (name, None if content is None else content[:longest]) for name, content in record.headers
        )
        self.record = record._replace(key=key, value=value, headers=headers)

    @property
    def is_key_cut(self) -> bool:
        """Whether only the beginning of the key is kept."""
        return self.record.key is not None and len(self.record.key) != self.key_bytes

    @property
    def is_value_cut(self) -> bool:
        """Whether only the beginning of the value is kept."""
        return self.record.value is not None and len(self.record.value) != self.value_bytes


@dataclass(slots=True)
class Found:
    """The records of a search. `positions` are the offsets after what was searched, by partition.

    `stopped` says why the search ended before the end of its spans; None when it did not.
    """

    records: list[Kept] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    searched: int = 0
    size_bytes: int = 0
    stopped: str | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Search:
    """A search in some spans of a topic. It ends when each partition has `most` matches, or at its bounds."""

    topic: TopicPlaces
    spans: Mapping[int, Span]
    wanted: RecordFilter
    most: int
    committed: bool = False
    longest_kept: int = LONGEST_KEPT

    def run(self, cluster: Cluster) -> Found:
        """Return what the spans hold. Raises ControlError."""
        with _TURNS:
            return self._run(cluster)

    def _run(self, cluster: Cluster) -> Found:
        found = Found(positions={partition: span.first for partition, span in self.spans.items()})
        matches = dict.fromkeys(self.spans, 0)
        deadline = time.monotonic() + MOST_SECONDS
        left = {partition for partition, span in self.spans.items() if span.first < span.end}
        while left:
            found.stopped = _bound(found, deadline)
            if found.stopped is not None:
                break
            stretches = fetch(
                cluster,
                self.topic,
                {partition: found.positions[partition] for partition in left},
                Limits(),
                committed=self.committed,
            )
            left &= stretches.keys()
            for partition, stretch in stretches.items():
                matches[partition] += self._take(found, partition, stretch, self.most - matches[partition])
                if self._is_done(found, partition, stretch) or matches[partition] >= self.most:
                    left.discard(partition)
        return found

    def _take(self, found: Found, partition: int, stretch: Stretch, room: int) -> int:
        """Keep the matches of a stretch, at most `room`; return their number."""
        taken = 0
        for record in stretch.records():
            if record.offset >= self.spans[partition].end:
                break
            found.searched += 1
            found.size_bytes += len(record.key or b"") + len(record.value or b"")
            if self.wanted.accepts(record):
                found.records.append(Kept(record, self.longest_kept))
                taken += 1
            if taken >= room or found.size_bytes >= MOST_BYTES:
                found.positions[partition] = record.offset + 1
                found.problems += stretch.problems
                return taken
        found.problems += stretch.problems
        found.positions[partition] = max(found.positions[partition], stretch.next_offset)
        return taken

    def _is_done(self, found: Found, partition: int, stretch: Stretch) -> bool:
        """Return whether a partition has no more for this search. A stretch without progress is the last."""
        position = found.positions[partition]
        nothing_came = not stretch.size_bytes
        return position >= self.spans[partition].end or position >= stretch.end_offset or nothing_came


def _bound(found: Found, deadline: float) -> str | None:
    if found.size_bytes >= MOST_BYTES:
        return f"The search ended after {MOST_BYTES >> 20} MiB."
    if time.monotonic() >= deadline:
        return f"The search ended after {MOST_SECONDS:g} s."
    return None
