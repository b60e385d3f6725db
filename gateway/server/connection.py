"""One client's connection: bytes in, requests begun in order, answers out in order.

A connection stops beginning requests while any of these holds, and then stops reading, so that the
client's own socket fills up and nothing grows here:

    a request holds the later ones back      (long polls, administration; one at a time, as in Kafka)
    too many answers are outstanding         (seqgate.connection.max.in.flight.requests)
    the client does not read its answers     (seqgate.connection.response.backlog.bytes; large ones at all)
    there is no room for its next request    (queued.max.request.bytes)
    it had its share of this turn            (REQUESTS_PER_TURN, TURN_S)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from struct import Struct
from typing import Final, cast

from gateway.handlers.answering.api import Answer, CloseConnection, Deferred
from gateway.protocol.frames import MalformedRequest
from gateway.server.connection_owner import ConnectionOwner
from gateway.server.frame_reader import FIRST_PART_BYTES, GROWTH, SIZE_BYTES, FrameReader
from gateway.server.record_sender import RecordSender

logger = logging.getLogger(__name__)

_size_of = Struct(">i").unpack_from
# the reasons why a connection begins no requests, as bits
HELD_BACK: Final = 1
TOO_MANY: Final = 2
NOT_READ: Final = 4
NO_ROOM: Final = 8
OTHERS_FIRST: Final = 16
DRAINING: Final = 32
CLOSING: Final = 64
SENDING: Final = 128
GONE: Final = 256
NO_MEMORY: Final = "there is no memory for its request"
HEADWAY_BYTES: Final = 64 << 10
"""A request that grows by less than this between two checks is stalled."""
REQUESTS_PER_TURN: Final = 32
"""Requests that a connection begins in one turn of the event loop; the rest begin in the next turns."""
TURN_S: Final = 0.05
"""Seconds that one turn of a connection may take; requests may take long to begin when their records are decoded."""


class Connection(asyncio.BufferedProtocol):
    """Protocol of one accepted socket."""

    __slots__ = (
        "_answers",
        "_consuming",
        "_gone_callbacks",
        "_headway",
        "_held",
        "_held_back_by",
        "_piece_bytes",
        "_reader",
        "_reading_paused",
        "_sender",
        "_server",
        "_stops",
        "_transport",
        "active",
        "last_active_s",
        "listener_name",
        "peer_host",
    )

    def __init__(self, server: ConnectionOwner[Connection], listener_name: str) -> None:
        self._server = server
        self.listener_name = listener_name
        self.peer_host = ""
        self.active = True
        """Whether bytes came since the last `Server.close_idle`."""
        self.last_active_s = 0.0
        self._stops = 0
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(server.limits.request_max_bytes)
        self._answers: deque[Deferred] = deque()
        self._held: bytes = b""
        self._held_back_by: Deferred | None = None
        self._piece_bytes = 0
        """Bytes in memory of answers sent by sendfile."""
        self._headway = (0, 0, 0.0)
        """The number of frames that came in parts, the bytes of the present one, and the time since which it is stalled."""
        self._consuming = False
        self._reading_paused = False
        self._sender: RecordSender | None = None
        self._gone_callbacks: dict[Hashable, Callable[[], None]] | None = None

    # the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = peer[0] if isinstance(peer, tuple) else "unix"
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._server.suit_peer(connected, self.peer_host)
        transport.set_write_buffer_limits(high=self._server.limits.response_backlog_bytes)
        self.last_active_s = self._server.loop.time()
        if not self._server.admit(self):
            self._stops |= CLOSING
            transport.abort()

    def limits_changed(self) -> None:
        """Apply the present `Server.limits`."""
        backlog_bytes = self._server.limits.response_backlog_bytes
        if self._sender is not None:
            self._sender.backlog_bytes = backlog_bytes
        if self._transport is not None and not self._stops & (SENDING | GONE):
            self._transport.set_write_buffer_limits(high=backlog_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer has its own size
        reader = self._reader
        if reader.between_frames or self._stops & CLOSING:
            return self._server.receive_buffer
        try:
            return reader.direct_buffer() or self._server.receive_buffer
        except MemoryError:
            # the bytes are dropped; the transport can't be closed while it asks for a buffer
            self._stops |= CLOSING
            self._server.loop.call_soon(self.abort, NO_MEMORY)
            return self._server.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        reader = self._reader
        if reader.between_frames and not self._stops and nbytes > SIZE_BYTES:
            received = self._server.received
            if _size_of(received)[0] + SIZE_BYTES == nbytes <= reader.max_bytes:
                # the usual case: the bytes are one whole request
                self._begin(received[SIZE_BYTES:nbytes])
                return
        if self._stops & CLOSING:
            return
        if reader.in_parts and reader.direct_buffer() is not None:
            frame = reader.wrote_direct(nbytes)
            if frame is not None:
                self._begin_parted(frame)
            else:
                self._grow_or_wait()
            return
        self._consume(self._server.received[:nbytes])

    def pause_writing(self) -> None:
        self._stops |= NOT_READ
        self._note_unread()

    def resume_writing(self) -> None:
        self._stops &= ~NOT_READ
        self._server.unread.forget(self)
        if self._stops & SENDING:
            self._send_records()
        else:
            self._resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter here
        self._stops |= CLOSING | GONE
        for answer in self._answers:
            answer.abandon()
        self._answers.clear()
        self._hold(b"")
        if self._sender is not None:
            self._sender.close()
        self._server.memory.give_back(self)
        self._server.unread.forget(self)
        self._server.dismiss(self)
        callbacks, self._gone_callbacks = self._gone_callbacks, None
        for callback in list((callbacks or {}).values()):
            callback()

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the client has hung up, at once if it already has. A key has one callback."""
        if self._stops & GONE:
            callback()
            return
        if self._gone_callbacks is None:
            self._gone_callbacks = {}
        self._gone_callbacks[key] = callback

    def forget_gone(self, key: Hashable) -> None:
        """Drop the callback of this key."""
        if self._gone_callbacks is not None:
            self._gone_callbacks.pop(key, None)

    # frames

    def _consume(self, view: memoryview) -> None:
        """Begin every whole request and keep the rest."""
        self._consuming = True
        try:
            rest = self._consume_frames(view)
        except MalformedRequest as error:
            self.close(f"malformed request: {error}")
            rest = len(view)
        except MemoryError:
            self.abort(NO_MEMORY)
            rest = len(view)
        finally:
            self._consuming = False
        if rest < len(view) and not self._stops & CLOSING:
            self._hold(bytes(view[rest:]))
        if self._stops and (self._held or self._stops & NO_ROOM):
            self._pause_reading()

    def _consume_frames(self, view: memoryview) -> int:
        position = 0
        end = len(view)
        reader = self._reader
        left = REQUESTS_PER_TURN
        now_s = self._server.loop.time
        until_s = None  # reading the clock would cost too much for a single request
        while position < end and not self._stops:
            if not left or (until_s is not None and now_s() >= until_s):
                self._yield_turn()
                break
            left -= 1
            if reader.in_parts:
                if not self._has_grown():
                    break
                frame, position = reader.add(view, position)
                if frame is not None:
                    if position < end:
                        until_s = now_s() + TURN_S
                    self._begin_parted(frame)
                continue
            size, position = reader.next_size(view, position)
            if size < 0:
                break
            if end - position >= size:
                if until_s is None and end - position > size:
                    until_s = now_s() + TURN_S
                self._begin(view[position : position + size])
                position += size
                continue
            reader.frame_size = size
            first_bytes = min(size, max(FIRST_PART_BYTES, GROWTH * (end - position)))
            if self._server.memory.acquire(self, first_bytes, self._memory_granted):
                reader.start(size, first_bytes)
            else:
                self._stops |= NO_ROOM
        return position

    def _grow_or_wait(self) -> None:
        try:
            if not self._has_grown():
                self._pause_reading()
        except MemoryError:
            self.abort(NO_MEMORY)

    def _has_grown(self) -> bool:
        """Whether the request that comes in parts has memory to grow."""
        reader = self._reader
        more_bytes = reader.growth_bytes
        if more_bytes:
            if not self._server.memory.acquire(self, more_bytes, self._memory_granted):
                self._stops |= NO_ROOM
                return False
            reader.grow()
        return True

    def _hold(self, data: bytes) -> None:
        """Keep received bytes while no more requests may begin."""
        self._server.count_held(len(data) - len(self._held))
        self._held = data

    def _yield_turn(self) -> None:
        """Let other connections go first: one receive buffer may hold thousands of small requests."""
        self._stops |= OTHERS_FIRST
        self._server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._stops &= ~OTHERS_FIRST
        self._resume()

    def _memory_granted(self) -> None:
        self._stops &= ~NO_ROOM
        reader = self._reader
        try:
            if reader.in_parts:
                reader.grow()
            else:
                reader.start(reader.frame_size, self._server.memory.held_bytes(self))
        except MemoryError:
            self.abort(NO_MEMORY)
            return
        self._resume()

    def _begin_parted(self, frame: memoryview) -> None:
        self._begin(frame)
        self._server.memory.give_back(self)

    def _begin(self, frame: memoryview) -> None:
        try:
            answer = self._server.dispatcher.begin(frame, self)
        except (MalformedRequest, CloseConnection) as error:
            self.close(str(error))
            return
        except Exception:
            # another connection may have called this method: an error must not reach it
            logger.exception("a request of %s can't be begun", self.peer_host)
            self.close("its request failed in the gateway")
            return
        if isinstance(answer, Deferred):
            self._await_answer(answer)
        elif answer is not None:
            if not self._answers:
                self._write(answer)
                return
            later = Deferred()
            later.answer = answer
            self._append(later)

    # answers

    def _await_answer(self, answer: Deferred) -> None:
        self._append(answer)
        if answer.holds_back:
            self._held_back_by = answer
            self._stops |= HELD_BACK
        if answer.answer is not None:
            self._write_ready()
        else:
            answer.when_resolved(self._write_ready)

    def _append(self, answer: Deferred) -> None:
        self._answers.append(answer)
        if len(self._answers) >= self._server.limits.in_flight_requests:
            self._stops |= TOO_MANY

    def _write_ready(self) -> None:
        """Write the answers that are ready, up to the first that is not."""
        answers = self._answers
        while answers and answers[0].answer is not None:
            answer = answers.popleft()
            if self._stops & TOO_MANY and len(answers) < self._server.limits.in_flight_requests:
                self._stops &= ~TOO_MANY
            if answer is self._held_back_by:
                self._held_back_by = None
                self._stops &= ~HELD_BACK
            if answer.failed:
                self.close("its request failed in the gateway")
                return
            self._write(answer.answer or b"")
        if not self._consuming:
            self._resume()

    def _write(self, answer: Answer) -> None:
        transport = self._transport
        if transport is None or self._stops & CLOSING:
            return
        server = self._server
        sending = self._stops & SENDING
        if isinstance(answer, bytes):
            if not sending:
                server.outbox.write(transport, answer)
                if self._stops & NOT_READ or len(answer) > server.limits.response_backlog_bytes:
                    server.outbox.flush()
                    if self._stops & NOT_READ:
                        self._note_unread()
                return
            answer = (answer,)
        if self._sender is None:
            self._sender = RecordSender(
                transport, server.limits.response_backlog_bytes, server.cold_reads, self._send_records
            )
        self._sender.add(answer)
        self._piece_bytes += sum(len(piece) for piece in answer if isinstance(piece, bytes))
        if not sending:
            # what was answered before goes first
            server.outbox.flush()
            self._stops |= SENDING
            self._send_records()

    def _send_records(self) -> None:
        """Send as much of a large answer as the socket takes."""
        sender = self._sender
        if sender is None or sender.is_done():
            return
        self.active = True
        try:
            if sender.send():
                self._server.loop.call_soon(self._send_records)
        except OSError as error:
            self.abort(f"an answer could not be sent: {error}")
            return
        if not sender.is_done():
            return
        self._stops &= ~SENDING
        self._piece_bytes = 0
        if self._stops & CLOSING:
            self.hang_up()
        elif not self._consuming:
            self._resume()

    def _note_unread(self) -> None:
        if self._transport is not None and not self._stops & GONE:
            unread_bytes = self._transport.get_write_buffer_size() + self._piece_bytes
            self._server.unread.note(self, unread_bytes)

    # flow

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._stops & CLOSING and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._stops or self._consuming:
            return
        if self._held:
            held = self._held
            self._hold(b"")
            self._consume(memoryview(held))
        if self._reading_paused and not self._stops and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # the end

    @property
    def is_closing(self) -> bool:
        """Whether the connection only waits for the client to read the last answers."""
        return bool(self._stops & CLOSING)

    @property
    def holds_memory(self) -> bool:
        """Whether the connection holds memory for an incomplete request and waits for no more memory."""
        memory = self._server.memory
        return memory.held_bytes(self) > 0 and not memory.is_waiting(self)

    def slow_s(self, now_s: float) -> float:
        """Seconds for which the incomplete request has been stalled; 0 without one."""
        reader = self._reader
        frames, arrived_bytes, since_s = self._headway
        arrived_now = reader.arrived_bytes
        if (
            not arrived_now
            or self._stops
            or reader.frames != frames
            or arrived_now - arrived_bytes >= HEADWAY_BYTES
            or not since_s
        ):
            self._headway = reader.frames, arrived_now, now_s
            return 0.0
        return now_s - since_s

    @property
    def awaits_answers(self) -> bool:
        """Whether begun requests have no answer yet."""
        return bool(self._answers)

    @property
    def waits_unread(self) -> bool:
        """Whether a long poll has paused reading, so that nothing reports that the client has hung up."""
        return self._reading_paused and bool(self._stops & HELD_BACK) and not self._stops & CLOSING

    def fileno(self) -> int:
        """The descriptor of the socket; −1 when the socket is closed."""
        return -1 if self._transport is None else int(self._transport.get_extra_info("socket").fileno())

    @property
    def has_work(self) -> bool:
        """Whether answers are outstanding, or not yet given to the socket."""
        return bool(self._answers or self._stops & SENDING)

    def drain(self) -> None:
        """Begin no more requests, and answer those that have begun."""
        self._stops |= DRAINING

    def close(self, reason: str) -> None:
        """Log `reason`, and close after the answers already written."""
        if self._stops & CLOSING:
            return
        self._stops |= CLOSING
        logger.warning("closing the connection of %s: %s", self.peer_host, reason)
        self.hang_up()

    def hang_up(self) -> None:
        """Close after the answers already written."""
        self._stops |= CLOSING
        if self._transport is not None:
            self._server.outbox.flush()
            if not self._stops & SENDING:
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; answers that the client has not read are lost."""
        self._stops |= CLOSING
        logger.warning("dropping the connection of %s: %s", self.peer_host, reason)
        if self._transport is not None:
            self._transport.abort()
