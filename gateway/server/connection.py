"""One client's connection: bytes come in, requests begin in order, answers go out in order. The `Intake` cuts
the bytes into requests, and delays them while a limit is exceeded or an earlier request must be answered
first.

`UnreadAnswers` limits the bytes of unread answers of all connections together. A connection with many unread
bytes begins no further request, but the answers that it already asked for may be large, and there may be
thousands of connections. Beyond the limit, the connections with the most unread bytes are dropped, until the
others are within the limit.

`Outbox` writes small answers to their sockets together, at the end of the event loop's turn. A send that
wakes a sleeping client costs several times as much as another send, so one wake-up serves many answers.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from seqgate.gateway.config import Config
from seqgate.gateway.handlers.answering.api import (
    REQUEST_FAILED,
    UNKNOWN_SOFTWARE,
    CloseConnection,
    Deferred,
    HoldingBack,
    ResponseBytes,
)
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.security.principals import ANONYMOUS, Unidentified
from seqgate.gateway.server.intake import (
    CLOSING,
    DRAINING,
    GONE,
    HELD_BACK,
    NOT_READ,
    SENDING,
    SIZE_BYTES,
    TOO_MANY,
    Intake,
)
from seqgate.gateway.server.record_sender import RecordSender
from seqgate.gateway.server.sasl import Begin, RequestLimits
from seqgate.seq_validator import RefusedBatches

if TYPE_CHECKING:
    from seqgate.gateway.server.server import Server

logger = logging.getLogger(__name__)

TLS_READ_AHEAD_BYTES: Final = 64 << 10
"""Encrypted bytes that TLS may hold of a connection that is not read from."""

_size_of = Struct(">i").unpack_from


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_answers",
        "_begin",
        "_gone_callbacks",
        "_held_back_by",
        "_identify",
        "_intake",
        "_piece_bytes",
        "_sender",
        "_server",
        "_transport",
        "active",
        "is_nameless",
        "last_active_s",
        "listener_name",
        "number",
        "peer_host",
        "peer_port",
        "principal",
        "producer_epoch",
        "producer_id",
        "refused",
        "software",
        "token_id",
    )

    def __init__(
        self, server: Server, listener_name: str, identify: Callable[[asyncio.Transport], str] | None = None
    ) -> None:
        """`identify` returns the principal of a client after its TLS handshake; it raises Unidentified."""
        self._server = server
        self._identify = identify
        self.listener_name, self.principal, self.software = listener_name, ANONYMOUS, UNKNOWN_SOFTWARE
        self.token_id: str | None = None
        self.is_nameless = False
        self.refused: RefusedBatches | None = None
        """The refused batches that the client will send again (`seqgate.seq_validator.refused`)."""
        self.producer_id = self.producer_epoch = -1
        self._begin: Begin = server.dispatcher.begin
        self.peer_host, self.peer_port, self.number = "", -1, 0
        self.active = True
        """Whether bytes came since the last `Server.close_idle`."""
        self.last_active_s = 0.0
        self._intake = Intake(server, self, server.limits.request_max_bytes)
        self._transport: asyncio.Transport | None = None
        self._answers: deque[Deferred] = deque()
        self._held_back_by: Deferred | None = None
        self._piece_bytes = 0
        """Bytes in memory of answers sent by sendfile."""
        self._sender: RecordSender | None = None
        self._gone_callbacks: dict[Hashable, Callable[[], None]] | None = None

    @property
    def name(self) -> str:
        """The address and port of the client, for people."""
        host = f"[{self.peer_host}]" if ":" in self.peer_host else self.peer_host
        return f"{host}:{self.peer_port}" if self.peer_port >= 0 else host

    # the socket

    def meet(self, transport: asyncio.Transport) -> bool:
        """Count an accepted socket and return True; close it and return False when it exceeds a limit."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = peer[:2]
        else:  # a client that has reset the connection already has no address any more
            self.peer_host = "unknown"
        connected = transport.get_extra_info("socket")
        if connected is not None:
            self._server.suit_peer(connected, self.peer_host)
        self.last_active_s = self._server.loop.time()
        refused_after_s = self._server.admit(self)
        if refused_after_s is None:
            return True
        self._intake.stops |= CLOSING
        if refused_after_s:
            transport.pause_reading()
            self._server.loop.call_later(refused_after_s, transport.abort)
        else:
            transport.abort()
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to take requests of an accepted socket, or of a client after its TLS handshake."""
        connected = cast("asyncio.Transport", transport)
        is_new = self._transport is None
        self._transport = connected
        self._intake.attach(connected)
        connected.set_write_buffer_limits(high=self._server.limits.response_backlog_bytes)
        if is_new:
            self.meet(connected)
        elif self._intake.stops & CLOSING:
            connected.abort()
        elif self._identify is not None:
            connected.set_read_buffer_limits(high=TLS_READ_AHEAD_BYTES)  # type: ignore[attr-defined]
            try:
                self.principal = self._identify(connected)
            except Unidentified as error:
                self._server.note_refused(self, str(error))
                self.abort(str(error))

    def limits_changed(self) -> None:
        """Apply the present `Server.limits`."""
        backlog_bytes = self._server.limits.response_backlog_bytes
        if self._sender is not None:
            self._sender.backlog_bytes = backlog_bytes
        if self._transport is not None and not self._intake.stops & (SENDING | GONE):
            self._transport.set_write_buffer_limits(high=backlog_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size of the buffer is fixed
        intake = self._intake
        if intake.reader.between_frames or intake.stops & CLOSING:
            return self._server.receive_buffer
        return intake.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        intake = self._intake
        reader = intake.reader
        if reader.between_frames and not intake.stops and nbytes > SIZE_BYTES:
            received = self._server.received
            if _size_of(received)[0] + SIZE_BYTES == nbytes <= reader.max_bytes:
                # the usual case: the bytes are one whole request
                self.begin_request(received[SIZE_BYTES:nbytes])
                return
        intake.take(nbytes)

    def pause_writing(self) -> None:
        self._intake.stops |= NOT_READ
        if self._identify is not None:
            # A client can make TLS itself write answers, without any request.
            self._intake.pause()
        self._note_unread()

    def resume_writing(self) -> None:
        self._intake.stops &= ~NOT_READ
        self._server.unread.forget(self)
        if self._intake.stops & SENDING:
            self._send_records()
        else:
            self._intake.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        if self._intake.stops & GONE:
            return
        self._intake.stops |= CLOSING | GONE
        for answer in self._answers:
            answer.abandon()
        self._answers.clear()
        self._intake.detach()
        if self._sender is not None:
            self._sender.close()
        self._transport = self._sender = None  # TLS and its connection refer to each other
        self._server.unread.forget(self)
        self._server.dismiss(self)
        callbacks, self._gone_callbacks = self._gone_callbacks, None
        for callback in list((callbacks or {}).values()):
            callback()

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the client hangs up, at once if it has already. A key has one callback."""
        if self._intake.stops & GONE:
            callback()
            return
        if self._gone_callbacks is None:
            self._gone_callbacks = {}
        self._gone_callbacks[key] = callback

    def forget_gone(self, key: Hashable) -> None:
        if self._gone_callbacks is not None:
            self._gone_callbacks.pop(key, None)

    def mute(self, throttle_ms: int) -> None:
        """Read nothing from the client for this time, because it is over a quota."""
        self._intake.mute(throttle_ms)

    def hold_room(self, size_bytes: int) -> Callable[[], None]:
        """Keep the room of the request that begins until the returned function is called."""
        return self._intake.hold_room(size_bytes)

    # requests

    def take(self, begin: Begin, limits: RequestLimits) -> None:
        """Begin requests with this function from now on, within these limits."""
        self._begin = begin
        self._intake.limit(limits.max_bytes, limits.memory)

    def begin_request(self, frame: memoryview) -> None:
        """Begin one whole request, and write its answer when it is the answer's turn."""
        try:
            answer = self._begin(frame, self)
        except (MalformedRequest, CloseConnection) as error:
            self.close_in_turn(str(error))
            return
        except Exception:
            # Another connection may have called this method, and this connection's error must not reach that
            # one.
            logger.exception("a request of %s can't be begun", self.name)
            self.close_in_turn(REQUEST_FAILED)
            return
        if isinstance(answer, Deferred):
            self._await_answer(answer)
        elif answer is not None and not self._answers:
            self._write(answer)
        elif answer is not None:
            later = Deferred()
            later.answer = answer
            self._append(later)

    # answers

    def _await_answer(self, answer: Deferred) -> None:
        self._append(answer)
        if answer.holds_back:
            self._held_back_by = answer
            self._intake.stops |= HELD_BACK
            answer.on_others_may_begin = self._begin_others
        if answer.answer is not None:
            self._write_ready()
        else:
            answer.on_resolved = self._write_ready

    def _begin_others(self) -> None:
        """Begin the requests that an earlier one held back, although that one has no answer yet."""
        self._held_back_by = None
        self._intake.stops &= ~HELD_BACK
        if not self._intake.is_consuming:
            self._intake.resume()

    def _append(self, answer: Deferred) -> None:
        self._answers.append(answer)
        if len(self._answers) >= self._server.limits.in_flight_requests:
            self._intake.stops |= TOO_MANY

    def _write_ready(self) -> None:
        """Write the answers that are ready, up to the first that is not."""
        intake = self._intake
        answers = self._answers
        while answers and answers[0].answer is not None:
            answer = answers.popleft()
            if intake.stops & TOO_MANY and len(answers) < self._server.limits.in_flight_requests:
                intake.stops &= ~TOO_MANY
            if answer is self._held_back_by:
                self._held_back_by = None
                intake.stops &= ~HELD_BACK
            if answer.failed:
                if not answer.answer:
                    self.close(answer.closed_because)
                self._write(answer.answer or b"")
                self.hang_up()
                return
            self._write(answer.answer or b"")
        if (intake.held or intake.is_paused) and not intake.is_consuming:
            intake.resume()

    def _write(self, answer: ResponseBytes) -> None:
        transport = self._transport
        intake = self._intake
        if transport is None or intake.stops & CLOSING:
            return
        server = self._server
        sending = intake.stops & SENDING
        if isinstance(answer, bytes):
            if not sending:
                server.outbox.write(transport, answer)
                if intake.stops & NOT_READ or len(answer) > server.limits.response_backlog_bytes:
                    server.outbox.flush()
                    if intake.stops & NOT_READ:
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
            # Send the earlier answers before this one.
            server.outbox.flush()
            intake.stops |= SENDING
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
        intake = self._intake
        intake.stops &= ~SENDING
        self._piece_bytes = 0
        if intake.stops & CLOSING:
            self.hang_up()
        elif not intake.is_consuming:
            intake.resume()

    def _note_unread(self) -> None:
        if self._transport is not None and not self._intake.stops & GONE:
            self._server.unread.note(self, self._transport.get_write_buffer_size() + self._piece_bytes)

    # the end

    @property
    def is_closing(self) -> bool:
        """Whether the connection only waits for the client to read the last answers."""
        return bool(self._intake.stops & CLOSING)

    @property
    def is_open(self) -> bool:
        """Whether requests can arrive: the connection is open, and the client has not closed it."""
        return self._intake.is_attached

    @property
    def holds_memory(self) -> bool:
        return self._intake.holds_memory

    def slow_s(self, now_s: float) -> float:
        return self._intake.slow_s(now_s)

    @property
    def awaits_answers(self) -> bool:
        """Whether begun requests have no answer yet."""
        return bool(self._answers)

    @property
    def waits_unread(self) -> bool:
        return self._intake.waits_unread

    def fileno(self) -> int:
        """The descriptor of the socket; −1 when the socket is closed, or the transport has none."""
        connected = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connected is None else int(connected.fileno())

    @property
    def has_work(self) -> bool:
        """Whether answers are outstanding, or not yet given to the socket."""
        return bool(self._answers or self._intake.stops & SENDING)

    def drain(self) -> None:
        """Begin no more requests, and answer those that have begun."""
        self._intake.stops |= DRAINING

    def close(self, reason: str) -> None:
        """Log `reason` if there is one, and close after the answers already written."""
        if self._intake.stops & CLOSING:
            return
        self._intake.stops |= CLOSING
        if reason:
            logger.warning("closing the connection of %s: %s", self.name, reason)
        self.hang_up()

    def close_in_turn(self, reason: str) -> None:
        """Begin no more requests; log `reason`, and close after the answers to earlier requests. Otherwise a
        producer would not learn that its batch is stored, and would send the batch again.
        """
        if not self._answers:
            self.close(reason)
            return
        last = HoldingBack()
        last.closed_because = reason
        last.resolve_last(b"")
        self._await_answer(last)

    def hang_up(self) -> None:
        """Close after the answers already written."""
        self._intake.stops |= CLOSING
        if self._transport is not None:
            self._server.outbox.flush()
            if not self._intake.stops & SENDING:
                self._transport.close()

    def abort(self, reason: str = "") -> None:
        """Log `reason` if there is one, and close at once; answers that the client has not read are lost."""
        self._intake.stops |= CLOSING
        if reason:
            logger.warning("dropping the connection of %s: %s", self.name, reason)
        if self._transport is not None:
            self._transport.abort()


def hung_up(numbers: Iterable[int]) -> list[int]:
    """Return the descriptors of sockets whose clients have hung up, as the system reports it."""
    if not hasattr(select, "POLLRDHUP"):
        return []
    asked = select.poll()
    for number in numbers:
        asked.register(number, select.POLLRDHUP)
    return [number for number, _ in asked.poll(0)]


class UnreadAnswers:
    """A budget of `limit_bytes`. A single reader may exceed it by any amount."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.dropped = 0
        """The number of readers dropped since the start."""
        self._unread: dict[Connection, int] = {}

    def __len__(self) -> int:
        return len(self._unread)

    def note(self, reader: Connection, unread_bytes: int) -> None:
        """Set how many bytes wait for a reader now."""
        self.total_bytes += unread_bytes - self._unread.get(reader, 0)
        self._unread[reader] = unread_bytes
        while self.total_bytes > self.limit_bytes and len(self._unread) > 1:
            largest = max(self._unread, key=self._unread.__getitem__)
            self.forget(largest)
            self.dropped += 1
            largest.abort("it reads its answers too slowly, and others need the memory")

    def forget(self, reader: Connection) -> None:
        """Forget a connection that has read its answers, or has ended."""
        self.total_bytes -= self._unread.pop(reader, 0)


TOGETHER = 128
"""Waiting answers at which they are written before the turn ends, so that clients work meanwhile."""


class Outbox:
    """The small answers of this turn, in the order in which they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._flushing: asyncio.Handle | None = None
        """The flush at the end of the turn; an earlier one takes its place."""

    def write(self, transport: asyncio.Transport, frame: bytes) -> None:
        """Write an answer with the next flush, after the answers given before it."""
        waiting = self._waiting
        if not waiting:
            self._flushing = self._loop.call_soon(self.flush)
        waiting.append((transport, frame))
        if len(waiting) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the waiting answers; those of closed connections are dropped."""
        waiting, self._waiting = self._waiting, []
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        for transport, frame in waiting:
            # uvloop raises on a write to a closed transport; the answers of other connections must still be
            # written
            if not transport.is_closing():
                transport.write(frame)


class ConnectionLimits(NamedTuple):
    """The limits of connections; `docs/configuration.md` describes the settings of the same names."""

    request_max_bytes: int
    response_backlog_bytes: int
    in_flight_requests: int
    idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    loopback_congestion_control: str | None

    @classmethod
    def of(cls, config: Config) -> ConnectionLimits:
        return cls(
            request_max_bytes=config.int("socket.request.max.bytes"),
            response_backlog_bytes=config.int("seqgate.connection.response.backlog.bytes"),
            in_flight_requests=config.int("seqgate.connection.max.in.flight.requests"),
            idle_ms=config.int("connections.max.idle.ms"),
            send_buffer_bytes=config.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.int("socket.receive.buffer.bytes"),
            loopback_congestion_control=config.optional_str("seqgate.loopback.congestion.control"),
        )
