"""The records and bytes of each topic since the start, for a bounded number of topics.

An open partition counts what was appended and fetched since it was opened. When it is closed, its counts are added to those of its
topic's series. So a series never falls, whatever moves to another gateway or is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions

OTHERS: Final = "(other topics)"
"""The series of all topics beyond the limit; no topic can have this name."""


@dataclass(slots=True)
class Traffic:
    """What went through the partitions of one series, and what they hold now."""

    records: int = 0
    """Appended since the start."""
    bytes: int = 0
    """Appended since the start."""
    fetched_bytes: int = 0
    partitions: int = 0
    """Open partitions now."""
    size_bytes: int = 0
    """The size of the open partitions now."""

    def count(self, partition: Partition) -> None:
        """Add what was appended to and fetched from a partition since it was opened."""
        self.records += partition.appended_records
        self.bytes += partition.appended_bytes
        self.fetched_bytes += partition.fetched_bytes

    def add(self, closed: Traffic) -> None:
        """Add the counts of closed partitions."""
        self.records += closed.records
        self.bytes += closed.bytes
        self.fetched_bytes += closed.fetched_bytes


class TopicTraffic:
    """Sums the traffic of partitions by topic. The first `most` topics have series of their own, the rest share one."""

    def __init__(self, partitions: Partitions, most: int) -> None:
        self._partitions = partitions
        self._most = most
        self._own = 0
        """The topics with series of their own."""
        self._series: dict[str, str] = {}
        """The series of each topic. A topic keeps its series, because a counter must not fall."""
        self._closed: dict[str, Traffic] = {}
        """The counts of closed partitions, by series."""
        partitions.when_closed.append(self._note_closed)

    def read(self) -> Iterator[dict[str, Traffic] | None]:
        """Yield None after each partition, and at the end the traffic by series."""
        self._forget_deleted()
        # Partitions open and close between two slices. Count those that are open now, and the closed ones up to now. Otherwise a partition
        # that closes meanwhile counts twice or not at all, and a counter falls at the next read.
        opened = list(self._partitions)
        found = {series: replace(closed) for series, closed in self._closed.items()}
        for partition in opened:
            traffic = found.setdefault(self._series_of(partition.topic), Traffic())
            traffic.count(partition)
            if not partition.closed:
                traffic.partitions += 1
                traffic.size_bytes += partition.log.size_bytes
            yield None
        yield found

    def _note_closed(self, partition: Partition) -> None:
        topic = partition.topic
        if topic in self._series or topic in self._partitions.by_name:
            series = self._series_of(topic)
        elif self._own < self._most:
            return  # a deleted topic whose series nobody has read; keep nothing of it
        else:
            series = OTHERS
        self._closed.setdefault(series, Traffic()).count(partition)

    def _series_of(self, topic: str) -> str:
        series = self._series.get(topic)
        if series is None:
            series = self._series[topic] = topic if self._own < self._most else OTHERS
            self._own += series != OTHERS
        return series

    def _forget_deleted(self) -> None:
        """Drop the series of deleted topics. What deleted topics have added to the common series stays there."""
        for topic in [topic for topic in self._series if topic not in self._partitions.by_name]:
            if self._series.pop(topic) != OTHERS:
                self._own -= 1
                self._closed.pop(topic, None)
