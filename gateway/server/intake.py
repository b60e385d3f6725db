"""The input of one connection: it cuts received bytes into requests, and begins them unless there is a reason
to wait.

A connection stops beginning requests while any of these holds, and then stops reading, so that the client's
own socket fills up and nothing grows here:

    a request holds the later ones back      (long polls, administration; one at a time, as in Kafka)
    too many answers are outstanding         (seqgate.connection.max.in.flight.requests)
    the client does not read its answers     (seqgate.connection.response.backlog.bytes; large ones at all)
    there is no room for its next request    (queued.max.request.bytes)
    its client is over a quota               (client quotas; nothing is read until the time is over)
    it had its share of this turn            (REQUESTS_PER_TURN, TURN_S)

`FrameReader` cuts the bytes of one connection into frames without copying frames that arrive whole. Complete
frames are handed on as views of the receive buffer that all connections share. Only a frame that arrives in
parts gets memory of its own. This memory grows with the bytes that really arrive, up to the limits of the
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from seqgate.gateway.protocol.frames import MalformedRequest, size_complaint
from seqgate.gateway.runtime.loop.request_memory import RequestMemory

if TYPE_CHECKING:
    from seqgate.gateway.server.connection import Connection
    from seqgate.gateway.server.server import Server

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
MUTED: Final = 512
NO_MEMORY: Final = "there is no memory for its request"
HEADWAY_BYTES: Final = 64 << 10
"""A request that grows by less than this between two checks is stalled."""
REQUESTS_PER_TURN: Final = 32
"""Requests that a connection begins in one turn of the event loop; the rest begin in the next turns."""
TURN_S: Final = 0.05
"""Seconds that one turn of a connection may take: a request whose records are decoded begins slowly."""


class Intake:
    """The received bytes that are not requests yet, and the reasons why no request may begin."""

    __slots__ = (
        "_connection",
        "_headway",
        "_holds_room",
        "_memory",
        "_muted_until_s",
        "_server",
        "_transport",
        "_unmuting",
        "held",
        "is_consuming",
        "is_paused",
        "reader",
        "stops",
    )

    def __init__(self, server: Server, connection: Connection, request_max_bytes: int) -> None:
        self._server = server
        self._memory = server.memory
        self._connection: Connection | None = connection
        self._transport: asyncio.Transport | None = None
        self.reader = FrameReader(request_max_bytes)
        self.stops = 0
        """The reasons why no request begins, as bits; 0 while requests begin."""
        self.is_consuming = False
        """Whether requests are being begun. Then code that removes a reason to wait need not resume."""
        self.is_paused = False
        """Whether the transport reads nothing."""
        self.held: bytes = b""
        """Bytes that arrived while no more requests were allowed to begin."""
        self._muted_until_s = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._headway = (0, 0, 0.0)
        """Frames that came in parts, bytes of the present frame, and the time since which it is stalled."""
        self._holds_room = False
        """Whether a whole request, which holds back the later ones, keeps its room until it is decoded."""

    def attach(self, transport: asyncio.Transport) -> None:
        """Pause and resume reading of this transport from now on."""
        self._transport = transport

    def limit(self, request_max_bytes: int, memory: RequestMemory) -> None:
        """Set the largest size of a request, and the memory for requests that arrive in parts."""
        self.reader.max_bytes = request_max_bytes
        self._memory.give_back(self)
        self._memory = memory

    @property
    def is_attached(self) -> bool:
        return self._transport is not None

    def detach(self) -> None:
        """Drop all received bytes, because the client has hung up."""
        self._hold(b"")
        if self._unmuting is not None:
            self._unmuting.cancel()
        if not self._holds_room:
            self._memory.give_back(self)
        self._transport = None
        self._connection = None  # the intake and its connection refer to each other

    # received bytes

    def buffer(self) -> memoryview:
        """Return the memory that the socket is read into."""
        server = self._server
        reader = self.reader
        if reader.between_frames or self.stops & CLOSING:
            return server.receive_buffer
        try:
            return reader.direct_buffer() or server.receive_buffer
        except MemoryError:
            # The bytes will be dropped, but the transport needs a buffer: it can't be closed while it asks
            # for one.
            self.stops |= CLOSING
            server.loop.call_soon(self._abort)
            return server.receive_buffer

    def take(self, size: int) -> None:
        """Take the bytes that the socket has written to `buffer`, and begin every whole request."""
        if self.stops & CLOSING:
            return
        reader = self.reader
        if reader.in_parts and reader.direct_buffer() is not None:
            frame = reader.wrote_direct(size)
            if frame is not None:
                self._begin_parted(frame)
            else:
                self._grow_or_wait()
            return
        self._consume(self._server.received[:size])

    def resume(self) -> None:
        """Begin requests again, unless a reason to wait remains."""
        if self.stops or self.is_consuming:
            return
        if self.held:
            held = self.held
            self._hold(b"")
            self._consume(memoryview(held))
        if self.is_paused and not self.stops and self._transport is not None:
            self.is_paused = False
            self._transport.resume_reading()

    def pause(self) -> None:
        if not self.is_paused and not self.stops & CLOSING and self._transport is not None:
            self.is_paused = True
            self._transport.pause_reading()

    def mute(self, throttle_ms: int) -> None:
        """Read nothing for this time, counted from now. A longer pause that has begun continues."""
        loop = self._server.loop
        until_s = loop.time() + throttle_ms / 1000
        if self._transport is None or until_s <= self._muted_until_s:
            return
        self._muted_until_s = until_s
        self.stops |= MUTED
        self.pause()
        if self._unmuting is None:
            self._unmuting = loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        loop = self._server.loop
        if loop.time() < self._muted_until_s:
            self._unmuting = loop.call_at(self._muted_until_s, self._unmute)
            return
        self._unmuting = None
        self.stops &= ~MUTED
        self.resume()

    @property
    def waits_unread(self) -> bool:
        """Whether a long poll or quota paused reading, so that nothing reports that the client hung up."""
        return self.is_paused and bool(self.stops & (HELD_BACK | MUTED)) and not self.stops & CLOSING

    def _abort(self) -> None:
        if self._connection is not None:
            self._connection.abort(NO_MEMORY)

    # requests

    def _consume(self, view: memoryview) -> None:
        self.is_consuming = True
        try:
            rest = self._consume_frames(view)
        except MalformedRequest as error:
            if self._connection is not None:
                self._connection.close_in_turn(f"it can't be read: {error}")
            rest = len(view)
        except MemoryError:
            self._abort()
            rest = len(view)
        finally:
            self.is_consuming = False
        if rest < len(view) and not self.stops & CLOSING:
            self._hold(bytes(view[rest:]))
        if self.stops and (self.held or self.stops & NO_ROOM):
            self.pause()

    def _consume_frames(self, view: memoryview) -> int:
        connection = self._connection
        if connection is None:
            return len(view)
        position = 0
        end = len(view)
        reader = self.reader
        left = REQUESTS_PER_TURN
        now_s = self._server.loop.time
        until_s = None  # reading the clock would cost too much for a single request
        while position < end and not self.stops:
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
                connection.begin_request(view[position : position + size])
                position += size
                continue
            reader.frame_size = size
            first_bytes = min(size, max(FIRST_PART_BYTES, GROWTH * (end - position)))
            if self._memory.acquire(self, first_bytes, self._memory_granted):
                reader.start(size, first_bytes)
            else:
                self.stops |= NO_ROOM
        return position

    def _grow_or_wait(self) -> None:
        try:
            if not self._has_grown():
                self.pause()
        except MemoryError:
            self._abort()

    def _has_grown(self) -> bool:
        """Whether the request that arrives in parts has memory for its next part."""
        reader = self.reader
        more_bytes = reader.growth_bytes
        if more_bytes:
            if not self._memory.acquire(self, more_bytes, self._memory_granted):
                self.stops |= NO_ROOM
                return False
            reader.grow()
        return True

    def _hold(self, data: bytes) -> None:
        """Keep received bytes while no more requests may begin."""
        self._server.count_held(len(data) - len(self.held))
        self.held = data

    def _yield_turn(self) -> None:
        """Let other connections go first: the buffer may hold thousands of small requests of this one."""
        self.stops |= OTHERS_FIRST
        self._server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self.stops &= ~OTHERS_FIRST
        self.resume()

    def _memory_granted(self) -> None:
        self.stops &= ~NO_ROOM
        reader = self.reader
        try:
            if reader.in_parts:
                reader.grow()
            else:
                reader.start(reader.frame_size, self._memory.held_bytes(self))
        except MemoryError:
            self._abort()
            return
        self.resume()

    def _begin_parted(self, frame: memoryview) -> None:
        if self._connection is not None:
            self._connection.begin_request(frame)
        if not self._holds_room:
            self._memory.give_back(self)

    def hold_room(self, size_bytes: int) -> Callable[[], None]:
        """Keep the room of the request that begins until the returned function is called. One that has come
        whole has none yet, and takes it.
        """
        if not self._memory.held_bytes(self):
            self._memory.used_bytes += size_bytes
            return partial(self._memory.release, size_bytes)
        self._holds_room = True
        return self._let_go

    def _let_go(self) -> None:
        self._holds_room = False
        self._memory.give_back(self)

    # a stalled request

    @property
    def holds_memory(self) -> bool:
        """Whether the connection holds memory for an incomplete request and waits for no more memory."""
        memory = self._memory
        return memory.held_bytes(self) > 0 and not memory.is_waiting(self)

    def slow_s(self, now_s: float) -> float:
        """Seconds for which the incomplete request has been stalled; 0 without one."""
        reader = self.reader
        frames, arrived_bytes, since_s = self._headway
        arrived_now = reader.arrived_bytes
        if (
            not arrived_now
            or self.stops
            or reader.frames != frames
            or arrived_now - arrived_bytes >= HEADWAY_BYTES
            or not since_s
        ):
            self._headway = reader.frames, arrived_now, now_s
            return 0.0
        return now_s - since_s


SIZE_BYTES = 4
FIRST_PART_BYTES = 8 << 10
"""The first memory (bytes) of a frame that arrives in parts, whatever size the frame announces. A frame whose
first part is large gets GROWTH times the bytes of that part, if these are more.
"""
GROWTH = 4
"""The most memory of a frame, as a multiple of the bytes that have arrived. Each growth copies these bytes.
"""
DIRECT_BYTES = 16 << 10
"""With more bytes than this missing, the socket is read straight into the frame's own memory."""


class FrameReader:
    __slots__ = ("_filled", "_frame", "_prefix", "between_frames", "frame_size", "frames", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.between_frames = True
        """Whether no byte of the next frame has arrived."""
        self._prefix = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self.frame_size = -1
        """The size of the incomplete frame; −1 while its size has not arrived."""
        self.frames = 0
        """The number of completed frames that arrived in parts, since the start."""

    def direct_buffer(self) -> memoryview | None:
        """Return the memory that the socket may write straight to, when many bytes are missing."""
        frame = self._frame
        if frame is None or self.frame_size - self._filled < DIRECT_BYTES or self._filled == len(frame):
            return None
        return memoryview(frame)[self._filled :]

    @property
    def arrived_bytes(self) -> int:
        """Return how many bytes of the incomplete frame have arrived, its size field included."""
        return len(self._prefix) if self._frame is None else SIZE_BYTES + self._filled

    @property
    def growth_bytes(self) -> int:
        """Return by how many bytes the frame's memory must grow before it can take more bytes."""
        frame = self._frame
        if frame is None or self._filled < len(frame):
            return 0
        return min(self.frame_size, GROWTH * len(frame)) - len(frame)

    def grow(self) -> None:
        assert self._frame is not None
        grown = bytearray(len(self._frame) + self.growth_bytes)
        grown[: self._filled] = self._frame
        self._frame = grown

    def wrote_direct(self, size: int) -> memoryview | None:
        """Count `size` bytes that the socket wrote to the direct buffer; return the frame if complete."""
        self._filled += size
        return self._complete()

    def next_size(self, view: memoryview, position: int) -> tuple[int, int]:
        """Return the size of the next frame (−1 if it has not arrived) and the position after this field.
        Raises MalformedRequest for a size that is negative or over the limit.
        """
        missing = SIZE_BYTES - len(self._prefix)
        if len(view) - position < missing:
            self._prefix += view[position:]
            self.between_frames = False
            return -1, len(view)
        if self._prefix:
            raw = self._prefix + bytes(view[position : position + missing])
            self._prefix = b""
            self.between_frames = True
            self.frames += 1
        else:
            raw = bytes(view[position : position + SIZE_BYTES])
        size = int.from_bytes(raw, "big", signed=True)
        if not 0 <= size <= self.max_bytes:
            raise MalformedRequest(size_complaint(size, self.max_bytes))
        return size, position + missing

    def start(self, size: int, memory_bytes: int = FIRST_PART_BYTES) -> None:
        """Begin an incomplete frame; its memory has at first `memory_bytes` at most."""
        self.frame_size = size
        self.between_frames = False
        self._frame = bytearray(min(size, memory_bytes))
        self._filled = 0

    @property
    def in_parts(self) -> bool:
        return self._frame is not None

    def add(self, view: memoryview, position: int) -> tuple[memoryview | None, int]:
        """Copy bytes into the frame in parts, as many as it has memory for; return the frame if it is
        complete now, and the position after the copied bytes.
        """
        frame = self._frame
        assert frame is not None
        part = min(len(view) - position, len(frame) - self._filled)
        frame[self._filled : self._filled + part] = view[position : position + part]
        self._filled += part
        return self._complete(), position + part

    def _complete(self) -> memoryview | None:
        if self._filled < self.frame_size:
            return None
        frame, self._frame = self._frame, None
        self.between_frames = True
        self.frames += 1
        assert frame is not None
        return memoryview(frame).toreadonly()
