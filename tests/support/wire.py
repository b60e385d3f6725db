"""A low-level Kafka client for tests: it sends any request of any version, or any bytes, and returns the
answer.

Requests are given as plain Python (dicts, lists, ints, strings, bytes) by kio's field names and answered the
same way, so that answers of two endpoints and of several versions can be compared. Durations and times are
milliseconds, error codes ints, and topic ids text.
"""

from __future__ import annotations

import datetime as dt
import io
import select
import socket
import ssl
import struct
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Self, get_args, get_origin

from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from seqgate.gateway.protocol import kafka_4_4, schema
from seqgate.gateway.protocol.kafka_4_4 import API_NAMES, LaterErrorCode, has_version, payload_type
from tests.support.described_transactions import DescribeTransactionsResponse
from tests.support.times_as_numbers import with_times_as_numbers

Plain = dict[str, Any]

API_KEYS: Mapping[str, int] = {name: key for key, name in API_NAMES.items()}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
CLIENT_ID = "wire"
TIMEOUT_S = 60.0
NO_TOPIC_ID = "00000000-0000-0000-0000-000000000000"
_MOST_VERSIONS = 30
HAVE_OWN_TAGS = {"describe_producers", "describe_transactions"}
"""The APIs whose answers have tagged fields of Seqgate; they are skipped here, as by Kafka's clients."""
TIMES_MAY_BE_MISSING = {"create_delegation_token", "renew_delegation_token", "expire_delegation_token"}


class Closed(Exception):
    """The peer closed the connection instead of answering."""


class Silent(Exception):
    """The peer neither answered nor closed the connection in time."""


@dataclass(frozen=True)
class Answer:
    """A decoded response; `trailing` holds the bytes after it (none in a correct answer)."""

    fields: Plain
    trailing: bytes = b""


def milliseconds(moment: dt.datetime) -> int:
    """Return a time as whole milliseconds since 1970, exactly."""
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


@cache
def entity(api: str, version: int, kind: EntityType) -> type[Any]:
    """Return kio's class for the request or response of one version."""
    if (api, kind) == ("describe_transactions", EntityType.response):
        return DescribeTransactionsResponse
    if (api, kind) == ("describe_producers", EntityType.response):
        return DescribeProducersResponse
    found: type[Any] = payload_type(API_KEYS[api], version, kind)  # type: ignore[arg-type]
    if kind is EntityType.response and api in TIMES_MAY_BE_MISSING:
        return with_times_as_numbers(found)
    return found


def field_shape(field_type: Any) -> tuple[Any, bool, bool]:
    """Return the type without Optional and tuple, whether it is an array, and whether it may be null."""
    nullable = array = False
    while True:
        if isinstance(field_type, UnionType):
            nullable = True
            field_type = next(part for part in get_args(field_type) if part is not type(None))
        elif get_origin(field_type) is tuple:
            array = True
            field_type = get_args(field_type)[0]
        else:
            return field_type, array, nullable


def _value(entity_field: Field[Any], item_type: Any, plain: Any) -> Any:
    if plain is None:
        return None
    if isinstance(item_type, type) and is_dataclass(item_type):
        return build(item_type, plain)
    kafka_type = entity_field.metadata.get("kafka_type")
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return dt.timedelta(milliseconds=plain)
    if kafka_type == "datetime_i64":
        return EPOCH + dt.timedelta(milliseconds=plain)
    if kafka_type == "error_code":
        return ErrorCode(plain) if plain <= max(ErrorCode) else LaterErrorCode(plain)
    if kafka_type == "uuid":
        return uuid.UUID(plain)
    return plain


def _missing(entity_field: Field[Any]) -> Any:
    item_type, array, nullable = field_shape(entity_field.type)
    if nullable:
        return None
    if array:
        return ()
    if is_dataclass(item_type):
        return build(item_type, {})  # type: ignore[arg-type]
    kafka_type = entity_field.metadata.get("kafka_type")
    if kafka_type == "uuid":
        return None
    zero: Plain = {"string": "", "bytes": b"", "records": b"", "bool": False}
    return _value(entity_field, item_type, zero.get(str(kafka_type), 0))


def build(entity_type: type[Any], plain: Plain) -> Any:
    """Build an entity from plain values. Fields that this version lacks are left out; missing fields get
    their default or zero.
    """
    values: Plain = {}
    for entity_field in fields(entity_type):
        if entity_field.name in plain:
            item_type, array, _ = field_shape(entity_field.type)
            given = plain[entity_field.name]
            if array and given is not None:
                values[entity_field.name] = tuple(_value(entity_field, item_type, item) for item in given)
            else:
                values[entity_field.name] = _value(entity_field, item_type, given)
        elif entity_field.default is MISSING:
            values[entity_field.name] = _missing(entity_field)
    return entity_type(**values)


def plain(value: Any) -> Any:
    """Return a response entity, or a part of one, as plain values."""
    if is_dataclass(value):
        return {entity_field.name: plain(getattr(value, entity_field.name)) for entity_field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return milliseconds(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


def _known_names(entity_type: type[Any]) -> set[str]:
    names = set()
    for entity_field in fields(entity_type):
        names.add(entity_field.name)
        item_type, _, _ = field_shape(entity_field.type)
        if is_dataclass(item_type):
            names |= _known_names(item_type)  # type: ignore[arg-type]
    return names


def versions_of(api: str) -> list[int]:
    """Return the versions of an API, in order."""
    return [version for version in range(_MOST_VERSIONS) if has_version(API_KEYS[api], version)]


@cache
def _names_of_any_version(api: str) -> frozenset[str]:
    return frozenset().union(
        *(_known_names(entity(api, version, EntityType.request)) for version in versions_of(api))
    )


def _check_names(api: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _names_of_any_version(api):
                raise KeyError(f"no version of {api} has a field {name!r}")
            _check_names(api, inner)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_names(api, item)


def encode_header(
    api_key: int, version: int, correlation_id: int, *, flexible: bool, client_id: str | None
) -> bytes:
    """Encode a request header of version 1, or of version 2 (without tagged fields) when `flexible`."""
    head = struct.pack(">hhi", api_key, version, correlation_id)
    encoded = b"" if client_id is None else client_id.encode()
    name = struct.pack(">h", -1 if client_id is None else len(encoded)) + encoded
    return head + name + (b"\0" if flexible else b"")


def encode_body(api: str, version: int, request: Plain) -> bytes:
    """Encode a request without its header."""
    _check_names(api, request)
    request_type = entity(api, version, EntityType.request)
    buffer = io.BytesIO()
    entity_writer(request_type)(buffer, build(request_type, request))
    return buffer.getvalue()


def encode(api: str, version: int, request: Plain, *, correlation_id: int = 1) -> bytes:
    """Encode a whole request with its header, without the length before it."""
    flexible = entity(api, version, EntityType.request).__flexible__
    header = encode_header(API_KEYS[api], version, correlation_id, flexible=flexible, client_id=CLIENT_ID)
    return header + encode_body(api, version, request)


def decode(api: str, version: int, frame: bytes, *, correlation_id: int = 1) -> Answer:
    """Decode a whole response with its header, without the length before it."""
    response_type = entity(api, version, EntityType.response)
    header_type = response_type.__header_schema__
    header, size = entity_reader(header_type)(frame, 0)
    assert header.correlation_id == correlation_id, (
        f"answer {header.correlation_id} to request {correlation_id}"
    )
    is_later = response_type.__module__.startswith(kafka_4_4.__name__)  # kio does not know its error codes
    if is_later or api in HAVE_OWN_TAGS:
        response, end = schema.entity_reader(response_type)(memoryview(frame), size)
        return Answer(plain(response), bytes(frame[end:]))
    response, body_size = entity_reader(response_type)(frame, size)
    return Answer(plain(response), bytes(frame[size + body_size :]))


class Wire:
    """One connection. Requests may be sent ahead of their answers; answers come in the order of the requests."""

    def __init__(
        self, bootstrap: str, *, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        connected = socket.create_connection((host, int(port)), timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
        self._timeout_s = timeout_s
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def send(self, api: str, version: int, request: Plain) -> int:
        """Send a request; return its correlation id for `receive`."""
        self._correlation_id += 1
        self.send_frame(encode(api, version, request, correlation_id=self._correlation_id))
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Answer:
        return decode(api, version, self.receive_frame(), correlation_id=correlation_id)

    def call(self, api: str, version: int, request: Plain | None = None, /, **more: Any) -> Answer:
        """Send one request and return its answer. Raises `Closed` or `Silent`."""
        return self.receive(api, version, self.send(api, version, {**(request or {}), **more}))

    def send_frame(self, payload: bytes) -> None:
        """Send the length and then `payload`, unchanged."""
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            raise Closed from None

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def has_input(self) -> bool:
        """Return whether bytes, or the end of the connection, can be read at once."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def expect_nothing(self, seconds: float) -> None:
        """Wait `seconds`. Raises AssertionError when bytes arrive, and `Closed` when the peer hangs up."""
        self._socket.settimeout(seconds)
        try:
            data = self._receive_some(1)
        except Silent:
            return
        finally:
            self._socket.settimeout(self._timeout_s)
        raise AssertionError(f"an unexpected answer starting with {data!r}")

    def _receive_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            parts += self._receive_some(size - len(parts))
        return bytes(parts)

    def _receive_some(self, size: int) -> bytes:
        try:
            data = self._socket.recv(size)
        except TimeoutError:
            raise Silent from None
        except ConnectionResetError:
            raise Closed from None
        if not data:
            raise Closed
        return data
