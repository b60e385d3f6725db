"""The way of small answers to their sockets: together, at the end of the event loop's turn.

A send that wakes a sleeping client costs several times one that does not, so clients are woken once for many.
"""

from __future__ import annotations

import asyncio

TOGETHER = 128
"""With so many waiting they leave before the turn ends: the clients then work while the gateway does."""


class Outbox:
    """The small answers of this turn, in the order in which they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def write(self, transport: asyncio.Transport, frame: bytes) -> None:
        """Have an answer written, after those given before it."""
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self.flush)
        waiting.append((transport, frame))
        if len(waiting) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write what waits; the answers of connections that went away meanwhile are dropped."""
        waiting, self._waiting = self._waiting, []
        for transport, frame in waiting:
            # uvloop raises on a write to a transport whose end is over, which would cost the others theirs
            if not transport.is_closing():
                transport.write(frame)
