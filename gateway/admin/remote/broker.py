"""One broker as a command asks it: a connection with TLS and login, requests with kio's schemas, and the
names that a broker lists for completions. Every function raises ControlError.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.protocol.messages import encode_request, response_type
from seqgate.gateway.protocol.schema import entity_reader

if TYPE_CHECKING:
    import ssl

    from kio.schema.api_versions.v3.response import ApiVersionsResponse
    from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
    from kio.schema.metadata.v9.response import MetadataResponse

TIMEOUT_S: Final = 30.0
WHOLE_TIMES: Final = 6
"""An answer that comes in pieces may take so many times the time limit of a piece."""
GROUP: Final = i8(0)
TRANSACTION: Final = i8(1)
"""Key types of FindCoordinator."""


def api_versions(address: BrokerAddress, timeout_s: float = TIMEOUT_S) -> ApiVersionsResponse:
    """Return the APIs, versions and features of the broker at an address."""
    answer: ApiVersionsResponse = ask_broker(address, _API_VERSIONS, timeout_s=timeout_s)
    return answer


def metadata(address: BrokerAddress, timeout_s: float, *, with_topics: bool = True) -> MetadataResponse:
    """Return the brokers, and all topics with their partitions."""
    from kio.schema.metadata.v9.request import MetadataRequest  # noqa: PLC0415

    request = MetadataRequest(
        topics=None if with_topics else (),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    answer: MetadataResponse = ask_broker(address, request, timeout_s=timeout_s)
    return answer


def finding(key_type: i8, names: Iterable[str]) -> FindCoordinatorRequest:
    """Return the question for coordinators."""
    from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest  # noqa: PLC0415

    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=tuple(names))


def reason_of(error: Exception) -> str:
    """Return in a few words why a broker gave no answer."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error)


def ask_broker(address: BrokerAddress, request: Any, *, timeout_s: float = TIMEOUT_S) -> Any:
    """Return the answer of the broker at an address, within `timeout_s` and the address's own."""
    timeout_s = min(timeout_s, address.timeout_s or timeout_s)
    try:
        with open_connection(address, timeout_s) as connection:
            return exchange(connection, request)
    except MalformedRequest as error:
        raise ControlError(f"the answer of {address.shown} is not understood: {error}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unreachable(f"the broker at {address.shown} did not answer: {reason}") from error


# Opens connections: TCP, then TLS, then the login.


_CLIENT_ID: Final = b"seqgate"
_API_VERSIONS: Final = ApiVersionsRequest(client_software_name="seqgate", client_software_version="1")
_CORRELATION_ID: Final = 1
_LARGE_ANSWER_BYTES: Final = 1 << 20
"""kio's reader reads a larger answer: it takes a sixth of the time, and its import as long as 9,000
partitions.
"""
_DESCRIBE_TRANSACTIONS: Final = 65
"""The API whose answers kio's reader refuses: a transaction that has not begun has a negative start."""
_LENGTH: Final = struct.Struct(">i")
_MOST_ANSWER_BYTES: Final = 256 << 20
_MOST_STEPS: Final = 10


class BrokerAddress(NamedTuple):
    """The address of a broker, and how clients connect to it; they give up after `timeout_s`."""

    host: str
    port: int
    security: ClientSecurity = OPEN
    timeout_s: float | None = None

    @property
    def shown(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        return shown_address(self.host, self.port)

    def other(self, host: str, port: int) -> Self:
        """Return the address of another broker of the same cluster."""
        return self._replace(host=host, port=port)


def open_connection(address: BrokerAddress, timeout_s: float) -> socket.socket:
    """Return a connection for requests. Raises ControlError for TLS or login, OSError without an answer."""
    return begin_session(connect(address, timeout_s), address)


def connect(address: BrokerAddress, timeout_s: float) -> socket.socket:
    """Return a connection over which nothing was sent. Raises OSError where nobody accepts it."""
    try:
        return socket.create_connection((address.host, address.port), timeout_s)
    except UnicodeError:
        raise ControlError(f"{address.shown} has no host name that can be looked up") from None


def begin_session(connection: socket.socket, address: BrokerAddress) -> socket.socket:
    """Return the connection for requests, after TLS and the login. Raises as `open_connection`."""
    try:
        if address.security.context is not None:
            connection = _secured(connection, address, address.security.context)
        if address.security.mechanism:
            with _tls_told(address):
                _log_in(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


class HungUp(ControlError):
    """A broker ended the connection during TLS or the login; another address may be whole."""


class Unanswered(OSError):
    """A broker accepts connections, and gave no answer; the text is why. `is_late`: not in time."""

    def __init__(self, reason: str, *, is_late: bool) -> None:
        super().__init__(reason)
        self.is_late = is_late


def greet(address: BrokerAddress, timeout_s: float) -> tuple[dict[int, int], socket.socket]:
    """Connect; return the newest version of each API, and the connection.

    Raises ControlError if TLS or the login fails, and OSError if nobody accepts the connection. A missing
    answer raises OSError if the client shows only a certificate, and otherwise Unanswered.
    """
    connection = open_connection(address, timeout_s)
    is_certified = _shows_certificate(address)
    try:
        with _tls_told(address) if is_certified else nullcontext():
            answer = exchange(connection, _API_VERSIONS)
    except BaseException as error:
        connection.close()
        if isinstance(error, MalformedRequest) or (isinstance(error, OSError) and not is_certified):
            raise Unanswered(reason_of(error), is_late=isinstance(error, TimeoutError)) from error
        raise
    return {int(row.api_key): int(row.max_version) for row in answer.api_keys}, connection


def _shows_certificate(address: BrokerAddress) -> bool:
    """Return whether a client is known by its certificate alone. Since TLS 1.3 a listener refuses the
    certificate only after the handshake, so the first answer shows it.
    """
    return address.security.context is not None and not address.security.mechanism


def _secured(connection: socket.socket, address: BrokerAddress, context: ssl.SSLContext) -> socket.socket:
    with _tls_told(address):
        return context.wrap_socket(connection, server_hostname=address.host)


@contextmanager
def _tls_told(address: BrokerAddress) -> Iterator[None]:
    """Raise ControlError in place of an error of TLS."""
    import ssl  # noqa: PLC0415 - slow to import

    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise ControlError(
            f"the certificate of {address.shown} is not accepted: {error.verify_message}"
        ) from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise ControlError(
            f"the TLS handshake with {address.shown} failed: {reason}; does security.protocol fit its "
            "listener?"
        ) from None
    except ConnectionError:
        raise HungUp(
            f"{address.shown} hung up during the TLS handshake; does security.protocol fit its listener?"
        ) from None


def _log_in(connection: socket.socket, address: BrokerAddress) -> None:
    """Log in to the broker with SASL. Raises ControlError."""
    user = address.security.username
    try:
        _agree_on_mechanism(connection, address)
        _authenticate(connection, address)
    except ConnectionError:
        raise HungUp(
            f"{address.shown} hung up during the login of {user}; does security.protocol fit its listener?"
        ) from None
    except (ValueError, KeyError, MalformedRequest):
        raise ControlError(f"{address.shown} answers the login of {user} in a wrong way") from None


def _agree_on_mechanism(connection: socket.socket, address: BrokerAddress) -> None:
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest  # noqa: PLC0415

    mechanism = address.security.mechanism
    answer = exchange(connection, SaslHandshakeRequest(mechanism=mechanism))
    if not answer.error_code:
        return
    offered = ", ".join(answer.mechanisms)
    advice = f", but with {offered}; change sasl.mechanism" if offered else ": change security.protocol"
    raise ControlError(f"{address.shown} does not let clients log in with {mechanism}{advice}")


def _authenticate(connection: socket.socket, address: BrokerAddress) -> None:
    # most commands don't log in, and need no cryptography for their start
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest  # noqa: PLC0415

    from seqgate.gateway.security.sasl.client_login import client_login  # noqa: PLC0415
    from seqgate.gateway.security.sasl.exchange import LoginRefused  # noqa: PLC0415

    security = address.security
    login = client_login(security.mechanism, security.username, security.password)
    message: bytes | None = login.first()
    for _ in range(_MOST_STEPS):
        answer = exchange(connection, SaslAuthenticateRequest(auth_bytes=message or b""))
        if answer.error_code:
            reason = answer.error_message or ErrorCode(answer.error_code).name
            raise ControlError(f"{address.shown} refuses the login of {security.username}: {reason}")
        try:
            message = login.step(answer.auth_bytes)
        except LoginRefused as error:
            raise ControlError(
                f"the login of {security.username} at {address.shown} failed: {error}"
            ) from None
        if message is None:
            return
    raise ControlError(f"{address.shown} does not end the login of {security.username}")


def exchange(connection: socket.socket, request: Any, limit_s: float | None = None) -> Any:
    """Send a request of kio and return its answer, where error codes are plain numbers. The timeout of the
    connection is that of each piece of the answer, `limit_s` that of the whole. Raises OSError, and
    MalformedRequest for an answer that is not of the Kafka protocol.
    """
    deadline_s = math.inf if limit_s is None else time.monotonic() + limit_s
    connection.sendall(encode_request(request, _CORRELATION_ID, _CLIENT_ID))
    (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size, deadline_s))
    if not 0 <= size <= _MOST_ANSWER_BYTES:
        raise ConnectionResetError("the broker's answer is not of the Kafka protocol")
    answer = _read(connection, size, deadline_s)
    readers: Any = entity_reader
    if size > _LARGE_ANSWER_BYTES and request.__api_key__ != _DESCRIBE_TRANSACTIONS:
        from kio.serial import entity_reader as readers  # noqa: PLC0415 - slow to import, quick after
    kind = response_type(request.__api_key__, request.__version__)
    try:
        _, start = readers(kind.__header_schema__)(memoryview(answer), 0)
        response = readers(kind)(memoryview(answer), start)[0]
    except MalformedRequest:
        raise
    except Exception as error:  # noqa: BLE001 - kio raises errors of several kinds on wrong bytes
        raise MalformedRequest(str(error) or type(error).__name__) from None
    return response


class KeptConnections:
    """A connection to each broker that was asked, for the next question to it; `connect` opens one."""

    def __init__(self, connect: Callable[[BrokerAddress], socket.socket]) -> None:
        self._connect = connect
        self._open: dict[BrokerAddress, socket.socket] = {}

    def keep(self, address: BrokerAddress, connection: socket.socket) -> None:
        """Keep a connection that is open already."""
        self._open[address] = connection

    def ask(self, address: BrokerAddress, request: Any, timeout_s: float, *, is_new: bool = False) -> Any:
        """Return the answer of a broker. A connection that was lost is opened again, with `is_new` any is.
        Raises OSError, and ControlError for an answer that is not understood.
        """
        kept = self._open.pop(address, None)
        if kept is not None and is_new:
            kept.close()
            kept = None
        connection = kept or self._connect(address)
        try:
            connection.settimeout(timeout_s)
            answer = exchange(connection, request, WHOLE_TIMES * timeout_s)
        except BaseException as error:
            connection.close()
            if isinstance(error, MalformedRequest):
                raise ControlError(f"the answer of {address.shown} is not understood: {error}") from None
            if kept is None or not isinstance(error, OSError) or isinstance(error, TimeoutError):
                raise
            # brokers close connections that are old or idle
            return self.ask(address, request, timeout_s)
        self._open[address] = connection
        return answer

    def close(self, but: Collection[BrokerAddress] = ()) -> None:
        """Close the connections to all brokers, or to all but some."""
        for address in self._open.keys() - set(but):
            self._open.pop(address).close()


def _read(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        if time.monotonic() > deadline_s:
            raise TimeoutError("the answer is not whole in time")
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the connection was closed")
        received += chunk
    return bytes(received)


# Finds the names of topics, groups and brokers, for completions.

_BROKERS_ASKED: Final = 10
"""Brokers that are asked for their groups; the groups of further ones are left out."""


def topics(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the names of all topics."""
    return [str(topic.name) for topic in metadata(address, timeout_s).topics]


def brokers(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the node ids of the brokers, and the name that stands for all of them."""
    from seqgate.gateway.admin.configs import ALL_BROKERS  # noqa: PLC0415 - of a completion alone

    found = metadata(address, timeout_s, with_topics=False).brokers
    return [ALL_BROKERS, *(str(broker.node_id) for broker in found)]


def groups(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the ids of the groups, of all kinds."""
    from kio.schema.list_groups.v3.request import ListGroupsRequest  # noqa: PLC0415

    found: list[str] = []
    for broker in metadata(address, timeout_s, with_topics=False).brokers[:_BROKERS_ASKED]:
        place = address.other(broker.host, int(broker.port))
        of_broker = ask_broker(place, ListGroupsRequest(), timeout_s=timeout_s)
        found += (str(group.group_id) for group in of_broker.groups)
    return found


FIND: Final[Mapping[str, Callable[[BrokerAddress, float], list[str]]]] = {
    "topic": topics,
    "group": groups,
    "broker": brokers,
}
