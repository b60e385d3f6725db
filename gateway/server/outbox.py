"""The way of answers to their sockets.

Small answers leave together at the end of the event loop's turn: a send that wakes a sleeping client costs
several times one that does not, so clients are woken once for many. Large ones go at once, their records from
the segment file to the socket inside the kernel (sendfile) as far as the socket takes them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence

from gateway.handlers.api import Pieces
from log import FileRegion

logger = logging.getLogger(__name__)

TOGETHER = 32
"""With so many waiting they leave before the turn ends: the clients then work while the gateway does."""


class Outbox:
    """The answers of this turn, in the order in which they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def write(self, transport: asyncio.Transport, pieces: Pieces) -> None:
        """Have an answer written, after those given before it."""
        only = pieces[0]
        if len(pieces) > 1 or isinstance(only, FileRegion):
            self.flush()
            self._write_pieces(transport, pieces)
            return
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append((transport, only))
        if len(self._waiting) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write what waits; the answers of connections that went away meanwhile are dropped."""
        waiting, self._waiting = self._waiting, []
        for transport, piece in waiting:
            # uvloop raises on a write to a transport whose end is over, which would cost the others theirs
            if not transport.is_closing():
                transport.write(piece)

    def _write_pieces(self, transport: asyncio.Transport, pieces: Pieces) -> None:
        try:
            if transport.is_closing():
                return
            if transport.get_write_buffer_size() == 0 and any(
                isinstance(piece, FileRegion) for piece in pieces
            ):
                rest = _send_now(transport, pieces)
            else:
                rest = [_in_memory(piece) for piece in pieces]
        except OSError as error:
            # the frame is begun and can't be finished
            logger.warning("an answer could not be sent: %s", error)
            transport.abort()
            return
        if rest:
            transport.writelines(rest)


def _in_memory(piece: bytes | FileRegion) -> bytes:
    return piece.read() if isinstance(piece, FileRegion) else piece


def _send_now(transport: asyncio.Transport, pieces: Pieces) -> Sequence[bytes]:
    """Give the socket as much as it takes; returns what is left, in memory. Raises OSError.

    Only for a transport that has nothing waiting, so that nothing is overtaken.
    """
    shared = transport.get_extra_info("socket")
    taken = socket.socket(shared.family, shared.type, shared.proto, fileno=shared.fileno())
    try:
        for number, piece in enumerate(pieces):
            sent = _send_piece(taken, piece, more=number + 1 < len(pieces))
            if sent < len(piece):
                rest = piece.read(sent) if isinstance(piece, FileRegion) else piece[sent:]
                return [rest, *(_in_memory(later) for later in pieces[number + 1 :])]
    finally:
        taken.detach()
    return ()


def _send_piece(taken: socket.socket, piece: bytes | FileRegion, *, more: bool) -> int:
    """How many bytes of the piece the socket took."""
    sent = 0
    try:
        if not isinstance(piece, FileRegion):
            return taken.send(piece, socket.MSG_DONTWAIT | (socket.MSG_MORE if more else 0))
        while sent < len(piece):
            count = piece.send(taken.fileno(), sent)
            if not count:
                raise OSError(f"the segment file ends {len(piece) - sent} bytes early")
            sent += count
    except BlockingIOError:
        pass
    return sent
