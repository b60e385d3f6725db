"""How much the members of all groups of one partition of `__consumer_offsets` may hold.

What a member brings is added as it comes; what goes with members that left is found out by counting all anew, when the
sum comes to the limit. Counting takes as long as there are members, so it is not done at each refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MEMBER_BYTES: Final = 1_000
"""What a member takes beside what it brings."""
_LOOK_AGAIN_MS: Final = 1_000
_LOOK_AGAIN_SHARE: Final = 8


class MemberBytes:
    """A budget of `limit_bytes`; `count` finds out how much there is."""

    def __init__(self, limit_bytes: int, count: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self._count = count
        self._sum_bytes = 0
        """At least as much as there is."""
        self._counted_bytes = 0
        self._counted_ms: int | None = None

    def admit(self, size_bytes: int, now_ms: int) -> bool:
        """Whether so much more may come; it is then taken to have come."""
        if self._sum_bytes + size_bytes > self.limit_bytes and self._may_count(now_ms):
            self._sum_bytes = self._counted_bytes = self._count()
            self._counted_ms = now_ms
        if self._sum_bytes + size_bytes > self.limit_bytes:
            return False
        self._sum_bytes += size_bytes
        return True

    def _may_count(self, now_ms: int) -> bool:
        if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < _LOOK_AGAIN_MS:
            return True
        return self._sum_bytes - self._counted_bytes > self.limit_bytes // _LOOK_AGAIN_SHARE
