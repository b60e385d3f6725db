"""Holds requests back before they are carried out, in order of arrival, with limits on number, bytes and
time.

A connection has at most one held request, because its later requests begin only after that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

SHARE_OF_TIMEOUT: Final = 0.9
"""The share of a client's timeout for which its request is held. A client hangs up at its timeout, so the
answer must come earlier.
"""
IMPATIENT_S: Final = 0.05
"""The time (s) after a held request was refused, during which the next requests of its connection are not
held.
"""


class Room(Protocol):
    """The memory that held requests may use."""

    def try_acquire(self, size: int) -> bool:
        """Take `size` bytes if there is room now; return whether there was."""

    def try_keep(self, size: int) -> bool:
        """Take `size` bytes if there is room now, or if no other held request has taken any; return whether
        it did.
        """

    def release_kept(self, size: int) -> None:
        """Give back the bytes that `try_keep` took."""

    def release(self, size: int) -> None:
        """Give back the bytes that `try_acquire` took."""


class _NoLimit:
    def try_acquire(self, size: int) -> bool:  # noqa: ARG002 - this room has no limit
        return True

    def try_keep(self, size: int) -> bool:  # noqa: ARG002 - this room has no limit
        return True

    def release_kept(self, size: int) -> None:
        pass

    def release(self, size: int) -> None:
        pass


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A held request. `may_go` returns whether it can be carried out now; `go` carries it out, also when its
    time is over.
    """

    sender: object
    size_bytes: int
    may_go: Callable[[], bool]
    go: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


class HeldRequests:
    """The held requests. They share the memory in `room`.

    `room` and the limits may be set at any time. Before that, no request is held.
    """

    def __init__(self) -> None:
        self.max_requests = 0
        self.max_bytes = 0
        self.max_wait_ms = 0
        self._held: dict[HeldRequest, None] = {}
        self._impatient: dict[object, float] = {}
        self.held_bytes = 0
        self.room: Room = _NoLimit()
        self.timed_out = 0
        """The number of requests whose time ran out, since the start."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self,
        sender: object,
        size_bytes: int,
        timeout_ms: int,
        may_go: Callable[[], bool],
        go: Callable[[], None],
    ) -> HeldRequest | None:
        """Hold a request. Return None if it can't be held and must be carried out now."""
        loop = asyncio.get_running_loop()
        wait_s = min(timeout_ms * SHARE_OF_TIMEOUT, self.max_wait_ms) / 1000
        if wait_s <= 0 or self._impatient.get(sender, 0.0) > loop.time():
            return None
        if len(self._held) >= self.max_requests or self.held_bytes + size_bytes > self.max_bytes:
            return None
        if not self.room.try_acquire(size_bytes):
            return None
        held = HeldRequest(sender, size_bytes, may_go, go)
        held.timer = loop.call_later(wait_s, self._time_is_over, held)
        self._held[held] = None
        self.held_bytes += size_bytes
        return held

    def look_again(self) -> None:
        """Carry out the requests that no longer need to wait."""
        if self._impatient:
            now_s = asyncio.get_running_loop().time()
            self._impatient = {sender: until for sender, until in self._impatient.items() if until > now_s}
        for held in list(self._held):
            if held in self._held and held.may_go():
                self._carry_out(held)

    def end_all(self) -> None:
        """Carry out all requests as if their time had run out."""
        for held in list(self._held):
            self._time_is_over(held)

    def drop(self, held: HeldRequest) -> None:
        """Drop a request whose client is gone; it is never carried out."""
        if held in self._held:
            del self._held[held]
            self._give_back(held)

    def _time_is_over(self, held: HeldRequest) -> None:
        if held in self._held:
            self.timed_out += 1
            self._impatient[held.sender] = asyncio.get_running_loop().time() + IMPATIENT_S
            self._carry_out(held)

    def _carry_out(self, held: HeldRequest) -> None:
        del self._held[held]
        try:
            held.go()
        finally:
            self._give_back(held)

    def _give_back(self, held: HeldRequest) -> None:
        if held.timer is not None:
            held.timer.cancel()
        self.held_bytes -= held.size_bytes
        self.room.release(held.size_bytes)
