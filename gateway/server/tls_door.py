"""The handshake of one accepted socket: TLS comes first, then the connection's requests.

The connection counts from the moment its socket is accepted, so that clients which never finish their handshake stay within
the limits, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # its stub leaves the class out

from gateway.server.connection import Connection
from gateway.server.handshake_turns import HandshakeTurns

logger = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S: Final = 10.0
"""Time (s) in which a client must read its last answers and answer the end of TLS, before its socket is closed."""
_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS record that holds a part of a handshake."""
_NO_TLS: Final = {
    "HTTP_REQUEST": "it sent an HTTP request without TLS",
    "HTTPS_PROXY_REQUEST": "it sent an HTTP request without TLS",
    "WRONG_VERSION_NUMBER": "what it sent is not TLS; a Kafka client needs security.protocol=SSL",
    _NO_CERTIFICATE: "it showed no certificate, which ssl.client.auth=required asks for",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with the listener",
}


class TlsDoor(asyncio.Protocol):
    """Protocol of an accepted socket until its handshake begins."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        context: Callable[[], ssl.SSLContext],
        timeout_s: float,
        turns: HandshakeTurns,
        note_refused: Callable[[Connection, str], None],
    ) -> None:
        """`note_refused` is called for a client whose certificate is missing or not accepted, with the reason."""
        self._note_refused = note_refused
        self._loop = loop
        self._connection = connection
        self._context = context
        self._timeout_s = timeout_s
        self._turns = turns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless the connection exceeds a limit."""
        accepted = cast("asyncio.Transport", transport)
        if not self._connection.meet(accepted):
            return
        done: asyncio.Future[Any] = self._loop.create_future()
        handshake = Handshake(self._context(), accepted, self._connection.peer_host, self._turns)
        done.add_done_callback(partial(self._handshake_done, handshake))
        protocol = SSLProtocol(
            self._loop,
            self._connection,
            handshake,
            done,
            server_side=True,
            ssl_handshake_timeout=self._timeout_s,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        handshake.resume = protocol.buffer_updated
        accepted.set_protocol(protocol)
        protocol.connection_made(accepted)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, because its socket was closed before the handshake."""
        self._connection.connection_lost(exc)

    def _handshake_done(self, handshake: Handshake, done: asyncio.Future[Any]) -> None:
        handshake.resume = None
        connection = self._connection
        error = done.exception()
        if connection.is_open:
            return
        if error is not None:
            reason = _reason(error)
            logger.warning("refused a TLS handshake of %s: %s", connection.name, reason)
            if _is_of_certificate(error):
                self._note_refused(connection, reason)
        connection.connection_lost(None)


class Handshaking(ssl.SSLObject):
    """The TLS object of one connection. Its handshake works only when it is the connection's turn."""

    handshake: Handshake

    def do_handshake(self) -> None:
        self.handshake.step(super().do_handshake)


class Handshake:
    """The handshake of one connection: it works in turns, and reports to the client why it failed. The event
    loop's protocol uses this object as the TLS context of the connection.
    """

    def __init__(
        self, context: ssl.SSLContext, transport: asyncio.Transport, host: str, turns: HandshakeTurns
    ) -> None:
        """`host` is the address of the client."""
        context.sslobject_class = Handshaking
        self._host = host
        self._context = context
        self._transport = transport
        self._turns = turns
        self._has_turn = False
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self.resume: Callable[[int], None] | None = None
        """The function that continues the handshake; None when the handshake is over."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> Handshaking:
        made = cast("Handshaking", self._context.wrap_bio(incoming, outgoing, **options))
        self._incoming, self._outgoing = incoming, outgoing
        made.handshake = self
        return made

    def step(self, work: Callable[[], None]) -> None:
        """Continue the handshake if it is this connection's turn. Raises the errors of `work`. Otherwise read
        nothing from the client until its turn, and report to the protocol that bytes are missing.

        The event loop's protocol closes the socket before it sends the alert of an error, so this method
        sends the alert. Without the alert a JVM client treats the end of the connection as an outage and
        retries forever.
        """
        if self._incoming.pending and not self._has_turn and not self._turns.has_time():
            self._transport.pause_reading()
            self._turns.wait(self._host, self._take_turn)
            raise ssl.SSLWantReadError
        try:
            with self._turns.measured():
                work()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self._send_alert()
            raise

    def _take_turn(self) -> None:
        if self.resume is None or self._transport.is_closing():
            return
        if _has_hung_up(self._transport) and self._holds_handshake():
            # the event loop does not notice, because it has read nothing from the client since
            self._transport.abort()
            return
        self._transport.resume_reading()
        self._has_turn = True
        self.resume(0)
        self._has_turn = False

    def _holds_handshake(self) -> bool:
        """Return whether the waiting bytes are TLS; other bytes cost little and are refused with their reason."""
        waiting = self._incoming.read()
        self._incoming.write(waiting)
        return waiting[:1] == _HANDSHAKE

    def _send_alert(self) -> None:
        alert = self._outgoing.read()
        if alert and not self._transport.get_write_buffer_size():
            with contextlib.suppress(OSError):
                os.write(self._transport.get_extra_info("socket").fileno(), alert)


def _is_of_certificate(error: BaseException) -> bool:
    """Return whether a handshake failed because of the client's certificate."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason == _NO_CERTIFICATE
    )


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Return whether the client has closed the connection, as the system reports it."""
    if not hasattr(select, "POLLRDHUP"):
        return False
    asked = select.poll()
    asked.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(asked.poll(0))


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _NO_TLS.get(error.reason, error.reason.lower().replace("_", " "))
    if isinstance(error, ConnectionError):
        return "it hung up"
    return str(error) or type(error).__name__
