"""The memory of waiting requests: incomplete ones, and whole ones held or kept (Kafka's MemoryPool)."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class RequestMemory:
    """A budget of `limit_bytes`; −1 sets none."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._kept: dict[str, int] = {}
        """The bytes that each client keeps."""
        self.held: dict[Hashable, int] = {}
        """The room of each incomplete request, in the order in which the requests began."""
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    def acquire(self, holder: Hashable, size: int, granted: Callable[[], None]) -> bool:
        """Return True when `holder` has room for `size` more bytes; otherwise call `granted` once it has."""
        held = self.held.setdefault(holder, 0)
        if not (self._is_first(holder) or (not self._waiting and self._fits(size))):
            self._waiting[holder] = size, granted
            return False
        self.held[holder] = held + size
        self.used_bytes += size
        return True

    def give_back(self, holder: Hashable) -> None:
        """Give back the room of a holder whose request is complete or given up. It waits no longer."""
        self._waiting.pop(holder, None)
        self.used_bytes -= self.held.pop(holder, 0)
        self._grant()

    def held_bytes(self, holder: Hashable) -> int:
        return self.held.get(holder, 0)

    def is_waiting(self, holder: Hashable) -> bool:
        return holder in self._waiting

    def try_acquire(self, size: int) -> bool:
        """Take room if there is some now and no connection waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self.used_bytes += size
        return True

    def try_keep(self, client: str, size: int) -> bool:
        """Take room for a whole request that is kept, if there is some, or if no other request is kept. A
        client with other kept requests must leave at least as much free as it keeps, so that one that sends
        requests over many connections leaves room for others.
        """
        kept = self._kept.get(client, 0)
        if self.limit_bytes >= 0 and kept and kept + size > self.limit_bytes - self.used_bytes - size:
            return False
        if not self.try_acquire(size):
            if self._kept:
                return False
            self.used_bytes += size
        if size:
            self._kept[client] = kept + size
        return True

    def release_kept(self, client: str, size: int) -> None:
        """Give back what `try_keep` took."""
        left = self._kept.pop(client, 0) - size
        if left:
            self._kept[client] = left
        self.release(size)

    def release(self, size: int) -> None:
        """Give back what `try_acquire` took."""
        self.used_bytes -= size
        self._grant()

    def _grant(self) -> None:
        first = next(iter(self.held), None)
        if first in self._waiting:
            self._let_in(first)
        while self._waiting:
            holder = next(iter(self._waiting))
            if not self._fits(self._waiting[holder][0]):
                return
            self._let_in(holder)

    def _let_in(self, holder: Hashable) -> None:
        size, granted = self._waiting.pop(holder)
        self.held[holder] += size
        self.used_bytes += size
        granted()

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)

    def _is_first(self, holder: Hashable) -> bool:
        return next(iter(self.held)) == holder

    def _fits(self, size: int) -> bool:
        return self.limit_bytes < 0 or not self.used_bytes or self.used_bytes + size <= self.limit_bytes
