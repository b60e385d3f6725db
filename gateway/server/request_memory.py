"""How many bytes of incomplete requests all connections may hold together (Kafka's MemoryPool).

A connection asks before it takes up a request. When there is no room it waits, without reading; those
that were granted room read on, so that room comes free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """A budget of `limit_bytes`; −1 sets none.

    A request larger than the whole budget is granted when nothing else is.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def acquire(self, size: int, granted: Callable[[], None]) -> bool:
        """True when there is room now; otherwise `granted` is called once there is."""
        if not self._waiting and self._fits(size):
            self.used_bytes += size
            return True
        self._waiting.append((size, granted))
        return False

    def try_acquire(self, size: int) -> bool:
        """Take room if there is some now and nobody waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self.used_bytes += size
        return True

    def release(self, size: int) -> None:
        self.used_bytes -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            waiting_size, granted = self._waiting.popleft()
            self.used_bytes += waiting_size
            granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """A waiting connection went away."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    @property
    def is_short(self) -> bool:
        """Whether connections wait for room."""
        return bool(self._waiting)

    def _fits(self, size: int) -> bool:
        return self.limit_bytes < 0 or not self.used_bytes or self.used_bytes + size <= self.limit_bytes
