"""Sends answers with many records to one socket.

The records go from the segment file to the socket inside the kernel (sendfile) as far as the socket takes
them. The rest stays in the file until the socket has room again, so a slow reader costs the gateway a small
buffer and no more, however large its answer is. Records that are not in the page cache are first read into it
by other threads: the socket waits, the event loop does not.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from seqgate.gateway.runtime.partitions.cold_reads import BLOCK_BYTES, ColdReader, ColdReads
from seqgate.log import FileRegion, KeptRegion

HANDED_OVER_BYTES: Final = 64 << 10
"""Bytes given to the transport when the socket is full, so that the transport reports when it has room."""
BYTES_PER_TURN: Final = 4 << 20
"""Bytes sent in one turn; then other connections go first, although this reader would take more."""
_AT_ONCE: Final = int(socket.MSG_DONTWAIT)
_AT_ONCE_AND_MORE: Final = _AT_ONCE | int(getattr(socket, "MSG_MORE", 0))
"""Flags of a send, as plain numbers: joining members of an enum takes as long as the system call."""


class RecordSender:
    """Sends pieces in order past a transport. Nothing else may write to the transport until all are sent."""

    __slots__ = (
        "_cold_reads",
        "_go_on",
        "_is_sending",
        "_pieces",
        "_ready",
        "_sent",
        "_socket",
        "_transport",
        "_waits",
        "_wanted",
        "backlog_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        backlog_bytes: int,
        cold_reads: ColdReads | None,
        go_on: Callable[[], None],
    ) -> None:
        """Take the transport. `backlog_bytes` is its usual limit of bytes that wait to be written; `go_on` is
        called when `send` can continue, because its records are in the page cache.
        """
        self._cold_reads = cold_reads
        self._go_on = go_on
        self._ready = 0
        """The end of the bytes of the first piece that are known to be in the page cache."""
        self._wanted: ColdReader | None = None
        self._transport = transport
        self.backlog_bytes = backlog_bytes
        shared = None if transport.get_extra_info("sslcontext") else transport.get_extra_info("socket")
        self._socket = (
            None
            if shared is None
            else socket.socket(shared.family, shared.type, shared.proto, fileno=shared.fileno())
        )
        """The socket for sendfile. None where the transport encrypts, or has no socket: records then go
        through the transport's buffer, a little at a time.
        """
        self._pieces: deque[bytes | FileRegion] = deque()
        self._sent = 0
        self._is_sending = False
        self._waits = False

    def is_done(self) -> bool:
        return not self._pieces

    def add(self, pieces: Sequence[bytes | FileRegion]) -> None:
        self._pieces.extend(pieces)

    def send(self) -> bool:
        """Send as much as the socket takes; return True when it would take more, but others should go first.
        When it is full the transport holds a little, and calls `resume_writing` once that is sent. Raises
        OSError when an answer that has begun can't be finished.
        """
        if self._is_sending:
            # A TLS transport calls `resume_writing` from within its `write`. The outer call sends the rest.
            return False
        self._is_sending = True
        try:
            return self._send_a_turn()
        finally:
            self._is_sending = False

    def _send_a_turn(self) -> bool:
        left = BYTES_PER_TURN
        while self._pieces and self._wanted is None and not self._transport.get_write_buffer_size():
            left -= self._send_now(left)
            if left <= 0 and self._pieces:
                return True
            if self._pieces and self._wanted is None:
                self._tell_when_drained(True)
                left -= self._hand_over()
        self._tell_when_drained(bool(self._pieces))
        return False

    def close(self) -> None:
        """Drop the pieces that are left; the transport closes the socket."""
        for piece in self._pieces:
            if isinstance(piece, KeptRegion):
                piece.release()
        self._pieces.clear()
        if self._wanted is not None:
            self._wanted.cancel()
        if self._socket is not None:
            self._socket.detach()

    def _tell_when_drained(self, wanted: bool) -> None:
        """Make the transport call `resume_writing` when its buffer is empty, or at its usual limit again."""
        if wanted is not self._waits:
            self._waits = wanted
            self._transport.set_write_buffer_limits(high=0 if wanted else self.backlog_bytes)

    def _send_now(self, limit: int) -> int:
        """Send to the socket; return how many bytes it took."""
        total = 0
        try:
            while self._pieces and total < limit:
                piece = self._pieces[0]
                if self._ready <= self._sent and not self._get_ready(piece):
                    break
                count = self._send_piece(piece)
                total += count
                self._advance(count, len(piece))
        except BlockingIOError:
            pass
        return total

    def _get_ready(self, piece: bytes | FileRegion) -> bool:
        """Return whether some bytes of the piece can be sent without waiting for the disk."""
        cold_reads = self._cold_reads
        if cold_reads is None or not cold_reads.is_on or not isinstance(piece, FileRegion):
            self._ready = len(piece)
            return True
        sent = self._sent
        size_bytes = min(len(piece) - sent, BLOCK_BYTES)
        if piece.is_cached(sent, size_bytes):
            self._ready = sent + size_bytes
            if cold_reads.blocks_kept:
                cold_reads.passing(piece.place(sent, size_bytes))
            return True
        to_block_end = BLOCK_BYTES - piece.place(sent, 0).position % BLOCK_BYTES
        if to_block_end < size_bytes:
            size_bytes = to_block_end
            if piece.is_cached(sent, size_bytes):
                self._ready = sent + size_bytes
                cold_reads.passing(piece.place(sent, size_bytes))
                return True
        self._wanted = cold_reads.want(
            (piece.place(sent, size_bytes),), partial(self._brought_in, sent + size_bytes)
        )
        return False

    def _brought_in(self, ready: int) -> None:
        """Continue to send, without asking the page cache again. If memory is so short that the records were
        dropped from the cache, `send` waits for the disk.
        """
        self._wanted = None
        self._ready = ready
        self._go_on()

    def _send_piece(self, piece: bytes | FileRegion) -> int:
        if self._socket is None:
            raise BlockingIOError
        if isinstance(piece, FileRegion):
            count = piece.send(self._socket.fileno(), self._sent, self._ready - self._sent)
            if not count:
                raise OSError(f"the segment file ends {len(piece) - self._sent} bytes early")
            return count
        flags = _AT_ONCE_AND_MORE if len(self._pieces) > 1 else _AT_ONCE
        return self._socket.send(memoryview(piece)[self._sent :], flags)

    def _hand_over(self) -> int:
        """Give the transport a part of the first piece; return its size in bytes."""
        piece = self._pieces[0]
        size = min(HANDED_OVER_BYTES, self._ready - self._sent)
        if isinstance(piece, FileRegion):
            part = piece.read(self._sent, size)
            if not part:
                raise OSError(f"the segment file ends {len(piece) - self._sent} bytes early")
        else:
            part = piece[self._sent : self._sent + size]
        self._advance(len(part), len(piece))
        self._ready = (
            0  # the socket may stay full for long, and by then the page cache may have dropped the records
        )
        self._transport.write(part)
        return len(part)

    def _advance(self, count: int, size: int) -> None:
        self._sent += count
        if self._sent == size:
            self._sent = self._ready = 0
            piece = self._pieces.popleft()
            if isinstance(piece, KeptRegion):
                piece.release()
