"""The newest figures, one ring for each series."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

POINTS: Final = 1_800
"""Points that are kept: one hour at two seconds each."""
MOST_SERIES: Final = 400
"""Series that are kept; further ones are left out."""


class History:
    """Points in time with a value for each series. A series that begins late has None before. Thread-safe."""

    def __init__(self, points: int = POINTS) -> None:
        """Begin without points."""
        self._lock = threading.Lock()
        self._points = points
        self._times: deque[int] = deque(maxlen=points)
        self._series: dict[str, deque[float | None]] = {}

    def add(self, time_ms: int, values: Mapping[str, float | None]) -> None:
        """Add a point in time. A series without a value for a whole ring is dropped."""
        with self._lock:
            before = len(self._times)
            self._times.append(time_ms)
            for name in values:
                if name not in self._series and len(self._series) < MOST_SERIES:
                    empty: list[float | None] = [None] * before
                    self._series[name] = deque(empty, maxlen=self._points)
            for name, series in list(self._series.items()):
                series.append(values.get(name))
                if values.get(name) is None and all(value is None for value in series):
                    del self._series[name]

    def since(self, time_ms: int, names: Sequence[str]) -> tuple[list[int], dict[str, list[float | None]]]:
        """Return the times after `time_ms`, and the values of these series at them."""
        with self._lock:
            skipped = sum(1 for time in self._times if time <= time_ms)
            times = list(self._times)[skipped:]
            empty: list[float | None] = [None] * len(times)
            return times, {
                name: list(self._series[name])[skipped:] if name in self._series else list(empty)
                for name in names
            }

    def last(self, name: str) -> float | None:
        """Return the newest value of a series."""
        with self._lock:
            series = self._series.get(name)
            return series[-1] if series else None
