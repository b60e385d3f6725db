"""The quota of changes of metadata: created and deleted partitions (KIP-599)."""

from __future__ import annotations

from gateway.quota.clients.limits import Limits
from gateway.quota.clients.meters import Meters
from gateway.quota.clients.rate import Windows
from gateway.quota.clients.token_bucket import TokenBucket


class MutationQuota:
    """The quotas of `controller_mutation_rate`."""

    __slots__ = ("limits", "meters")

    def __init__(self, windows: Windows, most_meters: int) -> None:
        self.limits = Limits()
        self.meters = Meters(lambda: TokenBucket(windows), most_meters)

    def charge(self, user: str, client_id: str, count: int, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Count changes of a client; return whether it may make them, and the time for which it must wait.

        `strict` refuses and does not count changes while the permits are overdrawn; otherwise every change is made, and
        the client waits after the one that overdraws.
        """
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return True, 0
        bucket = self.meters.of(quota, now_ms)
        if strict:
            throttle_ms = bucket.throttle_ms(quota.per_second, now_ms)
            if throttle_ms:
                return False, throttle_ms
            bucket.take(count, quota.per_second, now_ms)
            return True, 0
        bucket.take(count, quota.per_second, now_ms)
        return True, bucket.throttle_ms(quota.per_second, now_ms)
