"""Requests that wait before they are carried out, in the order they came; bounded in number, bytes and time.

One connection has at most one of them, because its later requests begin only after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

SHARE_OF_TIMEOUT: Final = 0.9
"""A client whose time-out is over has hung up; it should have an answer before."""
IMPATIENT_S: Final = 0.05
"""What a client had sent behind a request that waited in vain does not wait anew."""


class Room(Protocol):
    """The memory of requests that are not done."""

    def try_acquire(self, size: int) -> bool:
        """Take `size` bytes if there is room now."""

    def try_keep(self, size: int) -> bool:
        """Take `size` bytes if there is room now, or if nobody else has taken any so."""

    def release_kept(self, size: int) -> None:
        """Give them back."""

    def release(self, size: int) -> None:
        """Give them back."""


class _NoLimit:
    def try_acquire(self, size: int) -> bool:  # noqa: ARG002 - there is always room
        return True

    def try_keep(self, size: int) -> bool:  # noqa: ARG002 - there is always room
        return True

    def release_kept(self, size: int) -> None:
        pass

    def release(self, size: int) -> None:
        pass


@dataclass(slots=True, eq=False)
class HeldRequest:
    """`may_go` tells whether it need wait no longer, `go` carries it out, whether it may or its time is over."""

    sender: object
    size_bytes: int
    may_go: Callable[[], bool]
    go: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


class HeldRequests:
    """`room` is the memory that requests share. It and the limits may be set at any time; nothing waits before."""

    def __init__(self) -> None:
        self.max_requests = 0
        self.max_bytes = 0
        self.max_wait_ms = 0
        self._held: dict[HeldRequest, None] = {}
        self._impatient: dict[object, float] = {}
        self.held_bytes = 0
        self.room: Room = _NoLimit()
        self.timed_out = 0
        """Requests whose time was over, since the start."""

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
        """Have a request wait; None when it can't, and is to be carried out as it is now."""
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
        """Carry out what may be now."""
        if self._impatient:
            now_s = asyncio.get_running_loop().time()
            self._impatient = {sender: until for sender, until in self._impatient.items() if until > now_s}
        for held in list(self._held):
            if held in self._held and held.may_go():
                self._carry_out(held)

    def end_all(self) -> None:
        """Carry out everything, as if its time were over."""
        for held in list(self._held):
            self._time_is_over(held)

    def drop(self, held: HeldRequest) -> None:
        """Its sender is gone: carry it out never."""
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
