"""A blocking connection to a Kafka broker for three kinds of requests, with kio's schemas, and its login."""

from __future__ import annotations

import io
import socket
import ssl
import struct
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Self, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from seqgate.spark_kafka_compat.logins import PLAIN_CONNECTION, PROTOCOL, Login, Unchecked
from seqgate.spark_kafka_compat.session import EndpointError

CLIENT_ID = "seqgate-audit"
TIMEOUT_S = 30.0
DEFAULT_PORT = 9092
HIGHEST_PORT = 65_535
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
VERSION_RANGES: Mapping[int, tuple[int, int]] = {1: (4, 12), 2: (1, 7), 3: (4, 12)}
"""The versions by API key. They name topics, need no fetch session, and suit Kafka 0.11 to 4.3."""
_MAX_ANSWER_BYTES = 1 << 30

R = TypeVar("R")


class WireConnection:
    """One TCP connection with one request at a time. Its failures raise `EndpointError`, or `Unchecked` where
    only Java may know the endpoint's certificate.
    """

    def __init__(self, host: str, port: int, login: Login = PLAIN_CONNECTION) -> None:
        self._address = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        except OSError as error:
            message = f"Nothing answers at {self._address} ({error.strerror or error}); check the address."
            raise EndpointError(message, retriable=True) from error
        except UnicodeError as error:  # a part of the name has more than 63 characters, or none
            raise EndpointError(f"{host!r} is not a host name ({error}).") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            if login.context is not None:
                self._socket = self._secured(login.context, host, trusts_default=login.trusts_default)
            if login.mechanism:
                self._log_in(login)
        except BaseException:
            self._socket.close()
            raise

    def _secured(self, context: ssl.SSLContext, host: str, *, trusts_default: bool) -> ssl.SSLSocket:
        try:
            return context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate of {self._address} is not accepted: {error.verify_message}"
            if trusts_default:
                raise Unchecked(f"{reason}; Java may know its authority") from error
            raise EndpointError(f"{reason[:1].upper()}{reason[1:]}.") from error
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            raise EndpointError(
                f"The TLS handshake with {self._address} failed ({reason}); does {PROTOCOL} fit its listener?"
            ) from error

    def _log_in(self, login: Login) -> None:
        offered = self._exchange(SASL_HANDSHAKE, 1, {"mechanism": login.mechanism})
        if offered.error_code:
            names = ", ".join(offered.mechanisms)
            raise EndpointError(f"{self._address} offers the mechanisms {names}, not {login.mechanism}.")

        def exchange(token: bytes) -> bytes:
            answer = self._exchange(SASL_AUTHENTICATE, 0, {"auth_bytes": token})
            if answer.error_code:
                reason = answer.error_message or error_name(answer.error_code)
                raise EndpointError(f"{self._address} refuses the login of {login.user}: {reason}")
            return bytes(answer.auth_bytes)

        login.authenticate(exchange)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, api_key: int, **values: Any) -> Any:
        """Send a request in the newest version that both sides know; return the answer (kio entities).

        Values for fields that the version lacks are left out. Pass nested structures as mappings.
        """
        if not self._versions:
            answer = self._exchange(API_VERSIONS, 0, {})
            self._versions = {
                int(row.api_key): (int(row.min_version), int(row.max_version)) for row in answer.api_keys
            }
        return self._exchange(api_key, self._version(api_key), values)

    def _version(self, api_key: int) -> int:
        low, high = VERSION_RANGES[api_key]
        offered = self._versions.get(api_key)
        if offered is None or offered[1] < low or offered[0] > high:
            raise EndpointError(
                f"{self._address} does not offer the request {api_key} in a version from {low} to {high}."
            )
        return min(high, offered[1])

    def _exchange(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        request_type: Any = load_request_schema(api_key, version)
        header_type: Any = request_type.__header_schema__
        self._correlation_id += 1
        header = built(
            header_type,
            {
                "request_api_key": api_key,
                "request_api_version": version,
                "correlation_id": self._correlation_id,
                "client_id": CLIENT_ID,
            },
        )
        buffer = io.BytesIO()
        entity_writer(header_type)(buffer, header)
        entity_writer(request_type)(buffer, built(request_type, values))
        answer = self._round_trip(buffer.getvalue())
        response_type: Any = load_response_schema(api_key, version)
        response_header, position = _read(response_type.__header_schema__, answer, 0)
        if response_header.correlation_id != self._correlation_id:
            raise EndpointError(
                f"{self._address} answered request {response_header.correlation_id}, not "
                f"{self._correlation_id}.",
                retriable=True,
            )
        return _read(response_type, answer, position)[0]

    def _round_trip(self, payload: bytes) -> bytes:
        try:
            self._socket.sendall(struct.pack(">i", len(payload)) + payload)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 0 < size <= _MAX_ANSWER_BYTES:
                raise EndpointError(
                    f"{self._address} does not speak Kafka's protocol: its answer claims {size} bytes."
                )
            return self._receive(size)
        except OSError as error:
            message = f"The connection to {self._address} broke ({error.strerror or error})."
            raise EndpointError(message, retriable=True) from error

    def _receive(self, size: int) -> bytes:
        received = bytearray(size)
        view, position = memoryview(received), 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if count == 0:
                raise EndpointError(f"{self._address} closed the connection.", retriable=True)
            position += count
        return bytes(received)


def built(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """Return a kio entity of plain values, nested ones of mappings and lists, without unknown fields."""
    hints = typing.get_type_hints(entity_type)
    known = {field.name for field in fields(entity_type)}
    return entity_type(
        **{name: _nested(hints[name], value) for name, value in values.items() if name in known}
    )


def _nested(hint: Any, value: Any) -> Any:
    candidates = typing.get_args(hint) if typing.get_origin(hint) in {UnionType, typing.Union} else (hint,)
    for candidate in candidates:
        arguments = typing.get_args(candidate)
        if isinstance(value, Sequence) and arguments and is_dataclass(arguments[0]):
            return tuple(built(arguments[0], item) for item in value)
    return tuple(value) if isinstance(value, list) else value


def _read(entity_type: Any, data: bytes, position: int) -> tuple[Any, int]:
    value, size = entity_reader(entity_type)(data, position)
    return value, position + size


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Return the addresses in a text such as `host:port,[::1]:9092`. Raises `EndpointError`."""
    addresses: list[tuple[str, int]] = []
    for part in filter(None, (piece.strip() for piece in bootstrap.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")):
            host, port = part, str(DEFAULT_PORT)
        if not port.isdecimal() or int(port) > HIGHEST_PORT or not host:
            raise EndpointError(f"{part!r} is not an address such as 127.0.0.1:9092.")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise EndpointError("The list of bootstrap servers is empty.")
    return addresses


def ask_first(bootstrap: str, ask: Callable[[WireConnection], R], login: Login = PLAIN_CONNECTION) -> R:
    """Ask the first of the addresses that answers. Raises `EndpointError`, also for a malformed text, and
    `Unchecked`.
    """
    failures: list[EndpointError] = []
    for host, port in parse_bootstrap(bootstrap):
        try:
            with WireConnection(host, port, login) as connection:
                return ask(connection)
        except EndpointError as error:
            failures.append(error)
    raise failures[-1]


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code, or its number when the code is unknown."""
    try:
        return ErrorCode(error_code).name.upper()
    except ValueError:
        return f"error {error_code}"


def is_retriable(error_code: int) -> bool:
    """Return True when Kafka marks the error as retriable."""
    try:
        return bool(ErrorCode(error_code).retriable)
    except (AttributeError, ValueError):
        return False
