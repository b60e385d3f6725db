"""A bucket of permits that fills up at the rate of a quota. Source: Kafka's TokenBucket, ControllerMutationQuotaManager."""

from __future__ import annotations

from gateway.quota.clients.rate import INT_MAX, Windows


class TokenBucket:
    """The unused permits of a quota, at most those of `windows`.

    A negative number means that the permits are overdrawn.
    """

    __slots__ = ("_permits", "_refilled_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._permits: float | None = None
        self._refilled_ms = 0

    def permits(self, per_second: float, now_ms: int) -> float:
        """Return the unused permits."""
        most = per_second * self._windows.seconds
        if self._permits is None:
            self._permits = most
        else:
            passed_s = max(0, now_ms - self._refilled_ms) / 1000
            self._permits = min(most, self._permits + per_second * passed_s)
        self._refilled_ms = now_ms
        return self._permits

    def take(self, count: float, per_second: float, now_ms: int) -> None:
        """Take permits; the bucket may become overdrawn."""
        self._permits = self.permits(per_second, now_ms) - count

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return the time after which no permit is overdrawn; 0 when none is."""
        permits = self.permits(per_second, now_ms)
        return int(min(-permits / per_second * 1000 + 0.5, INT_MAX)) if permits < 0 else 0
