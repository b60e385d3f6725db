"""Opens connections to brokers for requests that kafka-python does not send: TCP, then TLS, then the login."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self, TypeVar

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_reader

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.remote.client_security import OPEN, ClientSecurity
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.protocol.outgoing import encode_request

_CLIENT_ID: Final = b"seqgate"
_SOFTWARE: Final = "seqgate"
_CORRELATION_ID: Final = 1
_LENGTH: Final = struct.Struct(">i")
_MOST_ANSWER_BYTES: Final = 256 << 20
_MOST_STEPS: Final = 10

R = TypeVar("R")


class BrokerAddress(NamedTuple):
    """The address of a broker, and how clients connect to it."""

    host: str
    port: int
    security: ClientSecurity = OPEN

    @property
    def shown(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        return shown_address(self.host, self.port)

    def other(self, host: str, port: int) -> Self:
        """Return the address of another broker of the same cluster."""
        return self._replace(host=host, port=port)


def open_connection(address: BrokerAddress, timeout_s: float) -> socket.socket:
    """Return a connection on which requests can be sent.

    Raises ControlError when TLS or the login fails, and OSError when nobody answers.
    """
    connection = socket.create_connection((address.host, address.port), timeout_s)
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


def check_connection(address: BrokerAddress, timeout_s: float) -> None:
    """Connect once. Raises ControlError when TLS or the login fails, and OSError when nobody answers."""
    with open_connection(address, timeout_s) as connection:
        if address.security.context is not None and not address.security.mechanism:
            # since TLS 1.3 a listener refuses the certificate of a client after the handshake
            with _tls_told(address):
                exchange(
                    connection,
                    ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1"),
                    ApiVersionsResponse,
                )


def _secured(connection: socket.socket, address: BrokerAddress, context: ssl.SSLContext) -> socket.socket:
    with _tls_told(address):
        return context.wrap_socket(connection, server_hostname=address.host)


@contextmanager
def _tls_told(address: BrokerAddress) -> Iterator[None]:
    """Raise ControlError in place of an error of TLS."""
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
        raise ControlError(
            f"{address.shown} hung up during the TLS handshake; does security.protocol fit its listener?"
        ) from None


def _log_in(connection: socket.socket, address: BrokerAddress) -> None:
    """Log in to the broker with SASL. Raises ControlError."""
    user = address.security.username
    try:
        _agree_on_mechanism(connection, address)
        _authenticate(connection, address)
    except ConnectionError:
        raise ControlError(
            f"{address.shown} hung up during the login of {user}; does security.protocol fit its listener?"
        ) from None
    except (ValueError, KeyError):
        raise ControlError(f"{address.shown} answers the login of {user} in a wrong way") from None


def _agree_on_mechanism(connection: socket.socket, address: BrokerAddress) -> None:
    mechanism = address.security.mechanism
    answer = exchange(connection, SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    if not answer.error_code.value:
        return
    offered = ", ".join(answer.mechanisms)
    advice = f", but with {offered}; change sasl.mechanism" if offered else ": change security.protocol"
    raise ControlError(f"{address.shown} does not let clients log in with {mechanism}{advice}")


def _authenticate(connection: socket.socket, address: BrokerAddress) -> None:
    """Exchange messages until both sides are satisfied."""
    # most commands don't log in, and need no cryptography for their start
    from seqgate.gateway.security.sasl.exchange import LoginRefused  # noqa: PLC0415
    from seqgate.gateway.security.sasl.login import client_login  # noqa: PLC0415

    security = address.security
    login = client_login(security.mechanism, security.username, security.password)
    message: bytes | None = login.first()
    for _ in range(_MOST_STEPS):
        asked = SaslAuthenticateRequest(auth_bytes=message or b"")
        answer = exchange(connection, asked, SaslAuthenticateResponse)
        if answer.error_code.value:
            reason = answer.error_message or answer.error_code.name
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


def exchange(connection: socket.socket, request: Any, response_type: type[R]) -> R:
    """Send a request and return its answer. Raises OSError."""
    connection.sendall(encode_request(request, _CORRELATION_ID, _CLIENT_ID))
    (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if not 0 <= size <= _MOST_ANSWER_BYTES:
        raise ConnectionResetError("the broker's answer is not of the Kafka protocol")
    answer = _read(connection, size)
    _, start = entity_reader(response_type.__header_schema__)(answer, 0)  # type: ignore[attr-defined]
    response, _ = entity_reader(response_type)(answer, start)  # type: ignore[type-var]
    return response


def _read(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the connection was closed")
        received += chunk
    return bytes(received)
