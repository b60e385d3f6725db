"""One other gateway: its connection, which is opened when it is needed, and the requests that wait for room
on it.

A gateway connects to the others by the protocol, TLS files and login of the listener between brokers. As in
Kafka, the listener's own `ssl.` settings are those of the client, too, and the client logs in with the user
of the JAAS line.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import ssl
from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from seqgate.gateway.config import Config
from seqgate.gateway.config.cluster import MECHANISM, NAME_CHECK
from seqgate.gateway.config.load import inter_broker_listener, peer_login
from seqgate.gateway.peer.peers import PeerAddress, PeerUnavailable
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.protocol.messages import correlation_id_of, decode_answer, encode_request
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.tasks import end_tasks, settle

logger = logging.getLogger(__name__)

MOST_IN_FLIGHT: Final = 100
"""Requests without an answer on one connection; further ones wait. A gateway carries out as many at once."""
MOST_WAITING: Final = 10_000
"""Requests to one gateway that have no answer yet; further ones are refused with PeerUnavailable."""
SILENCE_S: Final = 10.0
"""A connection without any answer for this time is closed when a request on it times out."""
IDLE_SHARE: Final = 0.75
"""The share of `connections.max.idle.ms` after which a connection is replaced; the peer soon closes it."""
SESSION_SHARE: Final = 0.85
"""The share of a login's session (`connections.max.reauth.ms`) after which its connection is replaced. At the
end the other gateway closes it. Kafka's clients log in again after 85 to 95 %.
"""
FIRST_DELAY_S: Final = 0.05
MOST_DELAY_S: Final = 1.0
"""Delays between attempts to connect double from the first to the most: Kafka's reconnect.backoff.ms and its
maximum.
"""
_DOUBLINGS: Final = 10
UNREPORTED_S: Final = 5.0
"""The time after the first failed attempt from which failures are logged: one of several gateways that start
together is asked before it listens.
"""


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


class OnePeer:
    """Asks one address by one connection at a time; refuses requests in the delay after a failed attempt."""

    def __init__(self, config: Config, node_id: int, address: PeerAddress, client_id: bytes) -> None:
        self.address = address
        self._config = config
        self._node_id = node_id
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._line: Line | None = None
        self._finishing: set[PeerConnection] = set()
        """Connections that were replaced, and still have requests without an answer."""
        self._dialling: asyncio.Task[Line] | None = None
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._waiting = 0
        self._failures = 0
        self._next_attempt_s = 0.0
        self._failed_because = ""
        self._reported = ""
        """The reason that was logged last, since the last connection."""
        self._failing_since_s = 0.0
        self._closed_because: str | None = None

    async def ask(self, request: Any, timeout_s: float) -> Any:
        """Return the answer to a request. Raises PeerUnavailable."""
        name = f"broker {self._node_id} at {self.address.host}:{self.address.port}"
        if self._waiting >= MOST_WAITING:
            raise PeerUnavailable(f"{name}: {MOST_WAITING} requests wait for it already")
        self._waiting += 1
        try:
            return await self._ask(request, timeout_s)
        except PeerUnavailable as error:
            raise PeerUnavailable(f"{name}: {error}") from None
        finally:
            self._waiting -= 1

    async def close(self, reason: str) -> None:
        """Close the connection; its requests raise PeerUnavailable with this reason."""
        self._closed_because = reason
        await end_tasks(self._dialling)
        current = () if self._line is None else (self._line.connection,)
        for connection in (*current, *self._finishing):
            connection.close(reason)
            await connection.finished()

    async def _ask(self, request: Any, timeout_s: float) -> Any:
        line: Line | None = None
        try:
            async with asyncio.timeout(timeout_s), self._room:
                line = await self._ready()
                if not line.knows(request):
                    name = type(request).__name__
                    raise PeerUnavailable(f"it does not know version {request.__version__} of {name}")
                return await line.connection.send(request)
        except TimeoutError:
            if line is not None and line.connection.silent_s() >= min(SILENCE_S, timeout_s):
                line.connection.close("it does not answer")
            raise PeerUnavailable(f"no answer within {timeout_s:g} s") from None

    async def _ready(self) -> Line:
        """Return an open connection. Raises PeerUnavailable."""
        if self._closed_because is not None:
            raise PeerUnavailable(self._closed_because)
        if self._line is not None:
            connection = self._line.connection
            is_over = self._loop.time() >= self._line.renew_s
            if not is_over and not self._is_idle(self._line) and connection.closed_because is None:
                return self._line
            connection.finish("the session of its login ends" if is_over else "the connection was idle")
            self._finishing = {each for each in (*self._finishing, connection) if each.in_flight}
            self._line = None
        if self._dialling is None:
            if self._loop.time() < self._next_attempt_s:
                raise PeerUnavailable(self._failed_because)
            self._dialling = self._loop.create_task(self._dial())
            # The error of an attempt whose callers have given up has nobody left to take it.
            self._dialling.add_done_callback(lambda done: done.cancelled() or done.exception())
        dialling = self._dialling
        try:
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            if not dialling.cancelled() or _is_cancelled():
                raise
            raise PeerUnavailable("the connection was not opened any more") from None

    def _is_idle(self, line: Line) -> bool:
        idle_s = IDLE_SHARE * self._config.int("connections.max.idle.ms") / 1000
        return not line.connection.in_flight and self._loop.time() >= line.connection.heard_s + idle_s

    async def _dial(self) -> Line:
        try:
            line = await dial(self._config, self.address, self._client_id)
        except PeerUnavailable as error:
            self._note_failure(str(error))
            raise
        finally:
            self._dialling = None
        if self._reported:
            logger.info("connected to broker %d at %s:%d again", self._node_id, *self.address)
        self._failures = 0
        self._failed_because = self._reported = ""
        self._line = line
        return line

    def _note_failure(self, reason: str) -> None:
        """Delay the next attempt, and log a new reason once if the failures last."""
        now_s = self._loop.time()
        if not self._failures:
            self._failing_since_s = now_s
        if reason != self._reported and now_s - self._failing_since_s >= UNREPORTED_S:
            logger.warning("broker %d at %s:%d can't be asked: %s", self._node_id, *self.address, reason)
            self._reported = reason
        self._failed_because = reason
        delay_s = min(MOST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self._failures, _DOUBLINGS))
        self._failures += 1
        self._next_attempt_s = now_s + delay_s * (1 - random.random() / 2)


CONNECT_TIMEOUT_S: Final = 10.0
"""Time for a connection to be ready: Kafka's socket.connection.setup.timeout.ms."""
_SOFTWARE: Final = "seqgate"
_MOST_STEPS: Final = 5
"""Messages of one login; a login with more fails."""


class Line(NamedTuple):
    """A connection that is ready for requests, and the versions of each API that the other gateway knows."""

    address: PeerAddress
    connection: PeerConnection
    versions: Mapping[int, tuple[int, int]]
    renew_s: float
    """The loop's time at which another connection takes this one's place: its login soon counts no more."""

    def knows(self, request: Any) -> bool:
        """Return whether the other gateway knows the API and the version of a request."""
        lowest, highest = self.versions.get(request.__api_key__, (0, -1))
        return bool(lowest <= request.__version__ <= highest)


async def dial(config: Config, address: PeerAddress, client_id: bytes) -> Line:
    """Return a connection that is ready. Raises PeerUnavailable."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _dial(config, address, client_id)
    except TimeoutError:
        raise PeerUnavailable(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise PeerUnavailable(f"its certificate is not accepted: {error.verify_message}") from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise PeerUnavailable(f"the TLS handshake failed: {reason}") from None
    except OSError as error:
        raise PeerUnavailable(f"no connection: {error.strerror or error}") from None
    except UnicodeError as error:
        raise PeerUnavailable(f"its host {address.host!r} can't be looked up: {error}") from None
    except StoreError as error:
        raise PeerUnavailable(f"this gateway can't connect with TLS: {error}") from None


async def _dial(config: Config, address: PeerAddress, client_id: bytes) -> Line:
    loop = asyncio.get_running_loop()
    name = inter_broker_listener(config)
    protocol = config.protocol_of(name)
    try:
        login = peer_login(config, name) if protocol.has_logins else None
    except ValueError as error:
        raise PeerUnavailable(f"this gateway can't log in: {error}") from None
    context = await loop.run_in_executor(None, peer_context, config, name) if protocol.has_tls else None
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=address.host if context else None
    )
    connection = PeerConnection(reader, writer, client_id)
    try:
        session_s = math.inf if login is None else await _log_in(connection, config.str(MECHANISM), *login)
        renew_s = loop.time() + SESSION_SHARE * session_s
        asked = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1")
        answer = await connection.send(asked)
    except BaseException:
        connection.close("the connection is not ready")
        raise
    versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    return Line(address, connection, versions, renew_s)


async def _log_in(connection: PeerConnection, mechanism: str, username: str, password: str) -> float:
    """Log in with SASL; return for how long (s) the login counts. Raises PeerUnavailable."""
    # only a gateway whose peers ask for a login needs it
    from seqgate.gateway.security.sasl.client_login import client_login  # noqa: PLC0415
    from seqgate.gateway.security.sasl.exchange import LoginRefused  # noqa: PLC0415

    agreed = await connection.send(SaslHandshakeRequest(mechanism=mechanism))
    if agreed.error_code:
        raise PeerUnavailable(
            f"it lets nobody log in with {mechanism}, but with {', '.join(agreed.mechanisms)}"
        )
    loop = asyncio.get_running_loop()
    login = client_login(mechanism, username, password)
    message: bytes | None = login.first()
    for _ in range(_MOST_STEPS):
        answer = await connection.send(SaslAuthenticateRequest(auth_bytes=message or b""))
        if answer.error_code:
            reason = answer.error_message or f"error {answer.error_code}"
            raise PeerUnavailable(f"it refuses the login of {username}: {reason}")
        try:
            message = await loop.run_in_executor(None, login.step, answer.auth_bytes)
        except LoginRefused as error:
            raise PeerUnavailable(f"the login of {username} failed: {error}") from None
        if message is None:
            return answer.session_lifetime.total_seconds() or math.inf
    raise PeerUnavailable(f"it does not end the login of {username}")


MOST_ANSWER_BYTES: Final = 64 << 20
"""Bytes of the largest answer; a larger one closes the connection."""
_SIZE: Final = Struct(">i")
_HIGHEST_CORRELATION_ID: Final = 2**31 - 1


class _Asked(NamedTuple):
    """A request that was sent, at `sent_s` of the loop's time, and the future of its answer."""

    correlation_id: int
    sent_s: float
    request: Any
    answer: asyncio.Future[Any]


class PeerConnection:
    """A connection that is ready, or was closed: then it answers every request with PeerUnavailable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self.closed_because: str | None = None
        """Why the connection is closed; None while it is open."""
        self.heard_s = self._loop.time()
        """The time (s) at which the last answer came, or the connection opened."""
        self._finishing_because: str | None = None
        self._reading = self._loop.create_task(self._read())

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._asked)

    def silent_s(self) -> float:
        """Return for how long (s) a request has waited without any answer; 0 without a request."""
        return self._loop.time() - max(self._asked[0].sent_s, self.heard_s) if self._asked else 0.0

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Send a request; return the future of its answer, which raises PeerUnavailable when the connection
        breaks. The caller may cancel the future: the answer is then dropped when it comes.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed_because is not None:
            answer.set_exception(PeerUnavailable(self.closed_because))
            return answer
        self._correlation_id = self._correlation_id % _HIGHEST_CORRELATION_ID + 1
        frame = encode_request(request, self._correlation_id, self._client_id)
        self._asked.append(_Asked(self._correlation_id, self._loop.time(), request, answer))
        self._writer.write(frame)
        return answer

    def finish(self, reason: str) -> None:
        """Close the connection once its requests in flight are answered. Send nothing on it any more."""
        self._finishing_because = reason
        if not self._asked:
            self.close(reason)

    def close(self, reason: str) -> None:
        """Close the connection; the requests in flight raise PeerUnavailable with this reason."""
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self._reading.cancel()
        self._writer.transport.abort()
        while self._asked:
            answer = self._asked.popleft().answer
            if not answer.done():
                answer.set_exception(PeerUnavailable(reason))

    async def finished(self) -> None:
        """Wait until a closed connection has ended its reading."""
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                _check_size(size)
                self._take(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            self.close("the connection was closed")
        except OSError as error:
            self.close(f"the connection broke: {error.strerror or error}")
        except MalformedRequest as error:
            self.close(f"an answer is malformed: {error}")
        except Exception as error:
            logger.exception("an answer of another gateway can't be read")
            self.close(f"an answer can't be read: {type(error).__name__}")

    def _take(self, frame: bytes) -> None:
        """Hand out one answer. Raises MalformedRequest."""
        self.heard_s = self._loop.time()
        number = correlation_id_of(frame)
        if not self._asked or self._asked[0].correlation_id != number:
            raise MalformedRequest(f"an answer to request {number}, which was not the next")
        asked = self._asked[0]
        response = decode_answer(asked.request, frame)
        self._asked.popleft()
        settle(asked.answer, response)
        if not self._asked and self._finishing_because is not None:
            self.close(self._finishing_because)


def _check_size(size: int) -> None:
    if not 0 <= size <= MOST_ANSWER_BYTES:
        raise MalformedRequest(f"an answer claims {size} bytes; at most {MOST_ANSWER_BYTES} are allowed")


def peer_context(config: Config, name: str) -> ssl.SSLContext:
    """Return the TLS context for one connection, from the stores of this listener as they are now. Raises
    StoreError. The reading takes milliseconds, so call this in another thread than that of the event loop.
    """
    # only a gateway whose peers speak TLS needs cryptography for it
    from seqgate.gateway.security.key_stores import configured_stores  # noqa: PLC0415
    from seqgate.gateway.security.tls_context import ClientTls, client_context  # noqa: PLC0415

    key_store, trust_store = configured_stores(config, name)
    versions = config.of_listener(name, "ssl.enabled.protocols")
    return client_context(
        ClientTls(
            key_store=key_store,
            trust_store=trust_store,
            checks_names=bool(config.of_listener(name, NAME_CHECK)),
            versions=versions if isinstance(versions, tuple) else (),
        )
    )
