"""Quotas of rates: bytes, percentages of the gateway's time, connections."""

from __future__ import annotations

from gateway.quota.clients.limits import Limits
from gateway.quota.clients.meters import Meters
from gateway.quota.clients.rate import INT_MAX, Rate, Windows


class RateQuota:
    """The quotas of one rate. A client that exceeds its quota waits until the rate is within the quota again."""

    __slots__ = ("_longest_ms", "limits", "meters", "windows")

    def __init__(self, windows: Windows, most_meters: int, *, longest_ms: int = INT_MAX) -> None:
        """Begin without quotas. `longest_ms` is the longest time for which a client must wait."""
        self.windows = windows
        self._longest_ms = longest_ms
        self.limits = Limits()
        self.meters = Meters(lambda: Rate(windows), most_meters)

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

        A client that used nothing in all windows need not wait. Otherwise a use that exceeds the quota by
        itself would never be allowed.
        """
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return 0
        rate = self.meters.of(quota, now_ms)
        is_first = rate.total(now_ms) <= 0
        rate.record(value, now_ms)
        throttle_ms = min(rate.throttle_ms(quota.per_second, now_ms), self._longest_ms)
        if throttle_ms and not is_first:
            rate.record(-value, now_ms)
            return throttle_ms
        return 0

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Return the largest value that exceeds no quota when nothing else was used; None when there is no quota."""
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return None
        return quota.per_second * (self.windows.number - 1) * self.windows.length_ms / 1000
