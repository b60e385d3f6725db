"""The memory budget of the group members in one partition of `__consumer_offsets`.

The bytes of a new member are added at once. The bytes of members that left are noticed only by a recount,
which runs when the sum reaches the limit. A recount visits every member, so it does not run at each refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

MEMBER_BYTES: Final = 1_000
"""Bytes of memory that a member takes in addition to the data that it sent."""
_COUNT_AGAIN_MS: Final = 1_000
_COUNT_AGAIN_SHARE: Final = 8


def classic_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """Return the bytes of a member of a classic group, without its assignment."""
    return MEMBER_BYTES + sum(len(name) + len(data) for name, data in protocols)


def consumer_bytes(subscribed_names: Iterable[str]) -> int:
    """Return the bytes of a member of the consumer protocol."""
    return MEMBER_BYTES + sum(map(len, subscribed_names))


class MemberBytes:
    """A budget of `limit_bytes`; `count` returns the bytes of all present members."""

    def __init__(self, limit_bytes: int, count: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self._count = count
        self._sum_bytes = 0
        """An upper bound of the bytes of all present members."""
        self._counted_bytes = 0
        self._counted_ms: int | None = None

    def admit(self, size_bytes: int, now_ms: int, held_bytes: int = 0) -> bool:
        """Add `size_bytes` to the sum if they fit into the budget; return whether they do. They take the
        place of `held_bytes`, which are in the sum: a member that joins again needs room for the rest only.
        """
        size_bytes = max(0, size_bytes - held_bytes)
        if not size_bytes:
            return True
        if self._sum_bytes + size_bytes > self.limit_bytes and self._may_count(now_ms):
            self._sum_bytes = self._counted_bytes = self._count()
            self._counted_ms = now_ms
        if self._sum_bytes + size_bytes > self.limit_bytes:
            return False
        self._sum_bytes += size_bytes
        return True

    def _may_count(self, now_ms: int) -> bool:
        if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < _COUNT_AGAIN_MS:
            return True
        return self._sum_bytes - self._counted_bytes > self.limit_bytes // _COUNT_AGAIN_SHARE
