"""Answers leave together at the end of the event loop's turn.

A send that wakes a sleeping client costs several times one that does not. Writing the small answers of all
connections one after the other, after the turn's requests were handled, wakes a client once for many.
"""

from __future__ import annotations

import asyncio

from gateway.handlers.api import Pieces

LARGE_PIECES = 2
"""An answer in more than one piece carries records; it leaves at once, so that back-pressure is felt at once."""
TOGETHER = 32
"""With so many waiting they leave before the turn ends: the clients then work while the gateway does."""


class Outbox:
    """The answers of this turn, in the order in which they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.Transport, bytes | memoryview]] = []

    def write(self, transport: asyncio.Transport, pieces: Pieces) -> None:
        """Have an answer written, after those given before it."""
        if len(pieces) >= LARGE_PIECES:
            self.flush()
            transport.writelines(pieces)
            return
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append((transport, pieces[0]))
        if len(self._waiting) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a connection that went away meanwhile drops its answer itself."""
        waiting, self._waiting = self._waiting, []
        for transport, piece in waiting:
            transport.write(piece)
