"""Writes small answers to their sockets together, at the end of the event loop's turn.

A send that wakes a sleeping client costs several times as much as another send, so one wake-up serves many answers.
"""

from __future__ import annotations

import asyncio

TOGETHER = 128
"""The number of waiting answers at which they are written before the turn ends, so that clients work while the gateway
does.
"""


class Outbox:
    """The small answers of this turn, in the order in which they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def write(self, transport: asyncio.Transport, frame: bytes) -> None:
        """Write an answer with the next flush, after the answers given before it."""
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self.flush)
        waiting.append((transport, frame))
        if len(waiting) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the waiting answers; those of closed connections are dropped."""
        waiting, self._waiting = self._waiting, []
        for transport, frame in waiting:
            # uvloop raises on a write to a closed transport; the answers of other connections must still be written
            if not transport.is_closing():
                transport.write(frame)
