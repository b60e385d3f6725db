"""Keeps what the console samples: 15 minutes as sampled, a day in minutes, and a file that outlives restarts.

Pages read it through `Console.history`:

    history.series(LAG, {"group": "g1"}, HOUR_MS)    times and values of one series, oldest first
    history.columns([Key, ...], HOUR_MS)             several series at the same times
    history.last(DISK_FREE, {"broker": "1"})         the newest value, None where the newest sample has none
    history.labels_of(TOPIC_RECORDS)                 the labels of each series of a metric
    history.last_write_ms("orders")                  the time of a topic's last write; None: none was seen

The history is what the console may see. A page shows a person only series of topics and groups that the
person may see: it takes their names from an answer that the cluster gave to the person.

A minute of the day has the mean of a rate, and the highest value of everything else: a peak of the lag or of
a time must not vanish. A value is None where nothing was sampled.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

# The metrics with labels; metrics/rates.py has the names of those of the whole gateway.

LAG: Final = "lag"
"""Records that a group has not read or acknowledged. Labels: group."""
TOPIC_LAG: Final = "topic_lag"
"""The part of a group's lag in one topic. Labels: group, topic."""
TOPIC_RECORDS: Final = "topic_records_per_s"
"""Records stored. Labels: topic."""
TOPIC_BYTES_IN: Final = "topic_bytes_in_per_s"
"""Bytes stored. Labels: topic."""
TOPIC_BYTES_OUT: Final = "topic_bytes_out_per_s"
"""Bytes fetched. Labels: topic."""
TOPIC_SIZE: Final = "topic_size_bytes"
"""Bytes on disk, of the leaders' copies. Labels: topic."""
DISK_USED: Final = "disk_used_bytes"
"""Bytes of all partitions of a broker. Labels: broker."""
DISK_FREE: Final = "disk_free_bytes"
"""Free bytes of the disks of a broker. Labels: broker."""

# The ranges of time, and the limits.

QUARTER_MS: Final = 15 * 60_000
HOUR_MS: Final = 60 * 60_000
DAY_MS: Final = 24 * HOUR_MS
MINUTE_MS: Final = 60_000
GAP_MS: Final = 3 * MINUTE_MS
"""Time without a sample after which a chart shows a gap instead of a line."""
MOST_SERIES: Final = 2_000
"""Series that are kept. For a new one the series goes that has had no value for longest, if that is 15
minutes or more; otherwise the new one is not kept.
"""
MOST_POINTS: Final = 900
"""Samples of the newest 15 minutes that are kept; the oldest go first."""
LONGEST_NAME: Final = 600
"""Characters of the labels of one series; a series with longer ones is not kept."""
MOST_WRITTEN: Final = 5_000
"""Topics whose last write is remembered; the one that was written longest ago goes first."""
PER_SECOND: Final = "_per_s"
"""The end of the name of a rate."""

NO_LABELS: Final[Mapping[str, str]] = {}


class Key(NamedTuple):
    """The key of a series: its metric, and the names and values of its labels by turns."""

    metric: str
    labels: tuple[str, ...] = ()


class Series(NamedTuple):
    """Times in milliseconds, oldest first, and the value at each."""

    times: list[int]
    values: list[float | None]


def key_of(metric: str, labels: Mapping[str, str] = NO_LABELS) -> Key:
    return Key(metric, tuple(chain.from_iterable(sorted(labels.items()))))


class _Table:
    """Points in time, oldest first, and a column of values for each series; NaN stands for no value."""

    def __init__(self, kept_ms: int, most: int, code: str) -> None:
        self.times = array("q")
        self.columns: dict[Key, array[float]] = {}
        self._kept_ms = kept_ms
        self._most = most
        self._code = code

    def add(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """Add a point. When the clock was set back, the points that it has not reached again are dropped."""
        self.cut(bisect_left(self.times, time_ms))
        for key in values:
            if key not in self.columns:
                self.columns[key] = array(self._code, [math.nan]) * len(self.times)
        self.times.append(time_ms)
        for key, column in self.columns.items():
            column.append(values.get(key, math.nan))
        surplus = max(bisect_left(self.times, time_ms - self._kept_ms), len(self.times) - self._most)
        if surplus > 0:
            del self.times[:surplus]
            for column in self.columns.values():
                del column[:surplus]

    def cut(self, begin: int) -> None:
        """Drop the points from an index on."""
        if begin < len(self.times):
            del self.times[begin:]
            for column in self.columns.values():
                del column[begin:]

    def value(self, key: Key, index: int) -> float | None:
        column = self.columns.get(key)
        return None if column is None or math.isnan(column[index]) else column[index]


class History:
    """The samples of a console. Thread-safe."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._lock = threading.Lock()
        self._most_series = most_series
        self._newest = _Table(QUARTER_MS, MOST_POINTS, "d")
        self._day = _Table(DAY_MS, DAY_MS // MINUTE_MS + 1, "f")
        self._seen: dict[Key, int] = {}
        """When each series had its last value."""
        self._minute: dict[Key, tuple[float, int]] = {}
        """The sum or the highest value of each series in the minute that runs, and how many values it had."""
        self._written: dict[str, int] = {}

    def add(self, time_ms: int, values: Mapping[Key, float | None]) -> None:
        """Add a sample. Values that are None, infinite or of too many series are left out."""
        with self._lock:
            known = {
                key: value
                for key, value in values.items()
                if value is not None and math.isfinite(value) and self._has_room(key, time_ms)
            }
            self._seen.update(dict.fromkeys(known, time_ms))
            self._end_minute(time_ms)
            self._newest.add(time_ms, known)
            for key, value in known.items():
                before, count = self._minute.get(key, (0.0, 0))
                joined = before + value if key.metric.endswith(PER_SECOND) else max(before, value)
                self._minute[key] = (joined if count else value, count + 1)
            for key in [key for key, seen in self._seen.items() if seen < time_ms - DAY_MS]:
                self._forget(key)

    def wrote(self, topic: str, time_ms: int) -> None:
        """Note that somebody wrote to a topic."""
        with self._lock:
            self._written.pop(topic, None)
            self._written[topic] = time_ms
            if len(self._written) > MOST_WRITTEN:
                del self._written[next(iter(self._written))]

    def _has_room(self, key: Key, time_ms: int) -> bool:
        if key in self._seen:
            return True
        if sum(map(len, key.labels)) > LONGEST_NAME:
            return False
        if len(self._seen) >= self._most_series:
            oldest = min(self._seen, key=self._seen.__getitem__)
            if self._seen[oldest] > time_ms - QUARTER_MS:
                return False
            self._forget(oldest)
        self._seen[key] = time_ms
        return True

    def _forget(self, key: Key) -> None:
        del self._seen[key]
        self._newest.columns.pop(key, None)
        self._day.columns.pop(key, None)
        self._minute.pop(key, None)

    def _end_minute(self, time_ms: int) -> None:
        """Move the minute that ran into the day when a sample of another minute comes."""
        if not self._newest.times:
            return
        newest_ms = self._newest.times[-1]
        if _minute_of(newest_ms) == _minute_of(time_ms):
            return
        if time_ms > newest_ms:
            self._day.add(_minute_of(newest_ms), self._so_far())
        else:
            self._day.cut(bisect_left(self._day.times, _minute_of(time_ms)))
        self._minute.clear()

    def _so_far(self) -> dict[Key, float]:
        return {
            key: value / count if key.metric.endswith(PER_SECOND) else value
            for key, (value, count) in self._minute.items()
        }

    def series(self, metric: str, labels: Mapping[str, str] = NO_LABELS, range_ms: int = HOUR_MS) -> Series:
        """Return a series over the time before the newest sample: as sampled for up to 15 minutes, otherwise
        in minutes.
        """
        times, (values,) = self.columns([key_of(metric, labels)], range_ms)
        return Series(times, values)

    def columns(self, keys: Sequence[Key], range_ms: int) -> tuple[list[int], list[list[float | None]]]:
        """Return the times of a range, and the values of each series at them. Where nothing was sampled for
        some minutes, a point without values stands.
        """
        with self._lock:
            points = list(self._points(keys, range_ms))
        times: list[int] = []
        values: list[list[float | None]] = [[] for _ in keys]
        for time_ms, row in points:
            if times and time_ms - times[-1] > GAP_MS:
                times.append(times[-1] + MINUTE_MS)
                for column in values:
                    column.append(None)
            times.append(time_ms)
            for column, value in zip(values, row, strict=True):
                column.append(value)
        return times, values

    def _points(self, keys: Sequence[Key], range_ms: int) -> Iterator[tuple[int, list[float | None]]]:
        newest, day = self._newest, self._day
        if not newest.times:
            return
        begin = newest.times[-1] - range_ms
        is_fine = range_ms <= QUARTER_MS
        end = bisect_left(day.times, newest.times[0] - MINUTE_MS + 1) if is_fine else len(day.times)
        for index in range(bisect_left(day.times, begin), end):
            yield day.times[index], [day.value(key, index) for key in keys]
        if is_fine:
            for index in range(bisect_left(newest.times, begin), len(newest.times)):
                yield newest.times[index], [newest.value(key, index) for key in keys]
        else:
            so_far = self._so_far()
            yield newest.times[-1], [so_far.get(key) for key in keys]

    def last(self, metric: str, labels: Mapping[str, str] = NO_LABELS) -> float | None:
        """Return the value of the newest sample."""
        with self._lock:
            return self._newest.value(key_of(metric, labels), -1)

    def labels_of(self, metric: str) -> list[dict[str, str]]:
        """Return the labels of each series of a metric that is kept."""
        with self._lock:
            found = [key.labels for key in self._seen if key.metric == metric]
        return [dict(zip(labels[::2], labels[1::2], strict=True)) for labels in found]

    def last_write_ms(self, topic: str) -> int | None:
        """Return when somebody last wrote to a topic; None where no sample has shown a write."""
        with self._lock:
            return self._written.get(topic)

    @property
    def since_ms(self) -> int | None:
        """The time of the oldest point."""
        with self._lock:
            tables = (self._day.times, self._newest.times)
            return min((times[0] for times in tables if times), default=None)


def _minute_of(time_ms: int) -> int:
    return time_ms - time_ms % MINUTE_MS
