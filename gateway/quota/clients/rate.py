"""The rate of a quantity over the last windows of time, and the time after which the rate is within a quota.

Source: Kafka's Rate and SampledStat. Windows before the first use count as empty ones, so that a short burst is no
violation.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

INT_MAX: Final = 2**31 - 1


class Windows(NamedTuple):
    """The number of windows of a rate, the present one included, and the length of each."""

    number: int
    length_ms: int

    @property
    def seconds(self) -> float:
        """The length of all windows together."""
        return self.number * self.length_ms / 1000


class _Sample:
    """The sum of the quantity in one window of time."""

    __slots__ = ("begun_ms", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """The rate of a quantity over the last windows of time."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the present window; a negative value is subtracted."""
        samples = self._samples
        if samples and now_ms < samples[-1].begun_ms:
            samples.clear()  # the clock was set back
        if not samples or now_ms - samples[-1].begun_ms >= self._windows.length_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._windows.number + 1:
                samples.popleft()
        samples[-1].total += value
        samples[-1].last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return the sum of the windows that count."""
        self._drop_old(now_ms)
        return sum(sample.total for sample in self._samples)

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long nothing may be added until the rate is `per_second` again; 0 when it is not exceeded."""
        total = self.total(now_ms)
        over_ms = self._measured_ms(now_ms)
        if over_ms <= 0:
            return 0
        rate = total * 1000 / over_ms
        if not rate > per_second:
            return 0
        return int(min((rate - per_second) / per_second * over_ms + 0.5, INT_MAX))

    def _drop_old(self, now_ms: int) -> None:
        number, length_ms = self._windows
        samples = self._samples
        if samples and now_ms < samples[-1].begun_ms:
            samples.clear()
        while samples and now_ms - samples[0].last_ms >= number * length_ms:
            samples.popleft()

    def _measured_ms(self, now_ms: int) -> int:
        """Return the time over which the rate is measured: whole windows are missing at the beginning."""
        number, length_ms = self._windows
        elapsed_ms = now_ms - self._samples[0].begun_ms if self._samples else 0
        missing = number - 1 - elapsed_ms // length_ms
        return elapsed_ms + max(0, missing) * length_ms
