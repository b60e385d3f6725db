"""Quotas of rates: bytes, percentages of the gateway's time, connections."""

from __future__ import annotations

from gateway.quota.clients.limits import Limits, Quota
from gateway.quota.clients.meters import Meters
from gateway.quota.clients.rate import INT_MAX, Rate, Windows


class _Meter(Rate):
    """The rate of what one client used, and since when it has waited for a use that no windows can hold."""

    __slots__ = ("due_ms",)

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self.due_ms: int | None = None
        """The time from which such a use is allowed; None when the client waits for none."""


class RateQuota:
    """The quotas of one rate. A client that exceeds its quota waits until the rate is within the quota again."""

    __slots__ = ("_longest_ms", "limits", "meters", "windows")

    def __init__(self, windows: Windows, most_meters: int, *, longest_ms: int = INT_MAX) -> None:
        """Begin without quotas. `longest_ms` is the longest time for which a client must wait."""
        self.windows = windows
        self._longest_ms = longest_ms
        self.limits = Limits()
        self.meters = Meters(lambda: _Meter(windows), most_meters)

    def charge(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client used; return the time for which it must wait."""
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return 0
        rate = self.meters.of(quota, now_ms)
        rate.record(value, now_ms)
        return min(rate.throttle_ms(quota.per_second, now_ms), self._longest_ms)

    def try_charge(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client wants to use, unless it must wait for that; return the time for which it must wait.

        A use that exceeds the quota even when nothing else was used is refused once. It is allowed when the
        client asks again after the time for which it had to wait. Otherwise it would never be allowed.
        """
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return 0
        meter = self.meters.of(quota, now_ms)
        meter.record(value, now_ms)
        throttle_ms = min(meter.throttle_ms(quota.per_second, now_ms), self._longest_ms)
        if not throttle_ms:
            return 0
        if value > self._most(quota):
            if meter.due_ms is not None and now_ms >= meter.due_ms:
                meter.due_ms = None
                return 0
            # The first refusal counts. A later one only ends the wait earlier, after the clock was set back.
            due_ms = now_ms + throttle_ms
            meter.due_ms = due_ms if meter.due_ms is None else min(meter.due_ms, due_ms)
        meter.record(-value, now_ms)
        return throttle_ms

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Return the largest value that exceeds no quota when nothing else was used; None when there is no quota."""
        quota = self.limits.quota_of(user, client_id)
        return None if quota is None else self._most(quota)

    def _most(self, quota: Quota) -> float:
        return quota.per_second * (self.windows.number - 1) * self.windows.length_ms / 1000
