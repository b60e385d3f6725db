"""The codec of every message but Produce and Fetch, by kio's schemas (generated from Kafka's message
definitions) and those of `kafka_4_4`.

A handler serves all versions of its API with one piece of code. The handler reads the fields that the
request's version has, and builds the answer with `build`, which leaves out fields that the answer's version
lacks, and knows the classes of nested structures.

The end of the module has the client's side: the requests that a gateway sends, and the answers to them. Error
codes of answers are plain numbers, as everywhere in `protocol.schema`.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any, Final, NamedTuple

from kio.static.constants import EntityType

from seqgate.gateway.protocol.frames import MalformedRequest, skip_tagged_fields
from seqgate.gateway.protocol.kafka_4_4 import payload_module, payload_type
from seqgate.gateway.protocol.schema import (
    EPOCH,
    ONE_MILLISECOND,
    Read,
    counting_reader,
    entity_reader,
    entity_writer,
    shape,
)

_HEAD = Struct(">ii")
ZERO_DURATION = timedelta(0)
API_VERSIONS = 18


class RequestSchema(NamedTuple):
    """The reader of requests of one API and version."""

    read: Read
    flexible: bool
    entity_type: Any = None
    """The class of the requests; None if `read` limits the items of a whole request by itself."""

    def read_large(self, frame: memoryview, position: int) -> tuple[Any, int]:
        """Read a request like `read`, and limit the items of all its arrays together. Raises TooManyItems."""
        read = self.read if self.entity_type is None else counting_reader(self.entity_type)
        return read(frame, position)


@cache
def request_schema(api_key: int, version: int) -> RequestSchema:
    """Return the reader of a request, and whether its header and fields are flexible (KIP-482)."""
    entity_type = request_type(api_key, version)
    return RequestSchema(entity_reader(entity_type), entity_type.__flexible__, entity_type)


def is_flexible(api_key: int, version: int) -> bool:
    """Return True when requests of this version have a header with tagged fields."""
    entity_type = request_type(api_key, version)
    return bool(entity_type.__flexible__)


@cache
def response_module(api_key: int, version: int) -> ModuleType:
    """Return the module of this API and version: the response class and its nested classes."""
    return payload_module(api_key, version, EntityType.response)


@cache
def row_type(api_key: int, version: int, name: str) -> Any:
    """Return the class of this name, a part of the responses of this API and version."""
    return getattr(response_module(api_key, version), name)


@cache
def request_module(api_key: int, version: int) -> ModuleType:
    """Return the module of this API and version: the request class and its nested classes."""
    return payload_module(api_key, version, EntityType.request)


@cache
def request_type(api_key: int, version: int) -> Any:
    """Return the request class of this API and version."""
    return payload_type(api_key, version, EntityType.request)


@cache
def response_type(api_key: int, version: int) -> Any:
    """Return the response class of this API and version."""
    return payload_type(api_key, version, EntityType.response)


@cache
def _field_names(entity_type: Any) -> tuple[frozenset[str], list[tuple[str, Any]], bool]:
    """Return the names of all fields, the names and classes of those with structures, and whether the class
    needs a throttle time.
    """
    found = fields(entity_type)
    names = frozenset(field.name for field in found)
    inner = ((field.name, shape(field.type)[0]) for field in found)
    nested = [(name, nested_type) for name, nested_type in inner if is_dataclass(nested_type)]
    needs_throttle = any(field.name == "throttle_time" and field.default is MISSING for field in found)
    return names, nested, needs_throttle


def build(entity_type: Any, /, **values: Any) -> Any:
    """Return an entity of a kio class with `values`; leave out values for which the class has no field.

    A dict stands for the structure of its field, and a list for an array, each of whose dicts stands for a
    structure.
    """
    names, nested, needs_throttle = _field_names(entity_type)
    if not names >= values.keys():
        values = {name: value for name, value in values.items() if name in names}
    for name, nested_type in nested:
        value = values.get(name)
        if type(value) is dict:
            values[name] = build(nested_type, **value)
        elif type(value) is list:
            values[name] = tuple([build(nested_type, **row) if type(row) is dict else row for row in value])
    if needs_throttle and "throttle_time" not in values:
        values["throttle_time"] = ZERO_DURATION
    return entity_type(**values)


def build_request(api_key: int, version: int, **values: Any) -> Any:
    """Return kio's request of this API and version with the fields that the version has, as `build` does."""
    return build(request_type(api_key, version), **values)


def milliseconds(duration: timedelta) -> int:
    """Return a duration of a request in whole milliseconds."""
    return duration // ONE_MILLISECOND


def time_of(time_ms: int) -> datetime:
    """Return a time in milliseconds since 1970 as an answer has it."""
    return EPOCH + time_ms * ONE_MILLISECOND


def written(entity: Any) -> bytes:
    """Return the bytes of an entity, a part of an answer."""
    entity_type: Any = type(entity)
    pieces: list[bytes] = []
    entity_writer(entity_type)(pieces.append, entity)
    return b"".join(pieces)


def encode_response(api_key: int, correlation_id: int, response: Any) -> bytes:
    """Return the whole frame of an answer: int32 size, response header v0 or v1, body. ApiVersions always has
    header v0, because its reader may not know the version (KIP-511).
    """
    entity_type: Any = type(response)
    pieces = [b"", b"\0"] if entity_type.__flexible__ and api_key != API_VERSIONS else [b""]
    entity_writer(entity_type)(pieces.append, response)
    pieces[0] = _HEAD.pack(sum(map(len, pieces)) + 4, correlation_id)
    return b"".join(pieces)


_REQUEST_HEAD: Final = Struct(">ihhih")
_SIZE_BYTES: Final = 4
_CORRELATION_ID: Final = Struct(">i")


def encode_request(request: Any, correlation_id: int, client_id: bytes) -> bytes:
    """Return the whole frame of a request of kio: size, request header v1 or v2, body."""
    entity_type: Any = type(request)
    pieces = [b"", client_id]
    if entity_type.__flexible__:
        pieces.append(b"\0")
    entity_writer(entity_type)(pieces.append, request)
    size = sum(map(len, pieces)) + _REQUEST_HEAD.size - _SIZE_BYTES
    pieces[0] = _REQUEST_HEAD.pack(
        size, entity_type.__api_key__, entity_type.__version__, correlation_id, len(client_id)
    )
    return b"".join(pieces)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of an answer, a frame without its size. Raises MalformedRequest."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedRequest(f"the answer has {len(frame)} bytes, fewer than its header")
    number: int = _CORRELATION_ID.unpack_from(frame)[0]
    return number


def decode_answer(request: Any, frame: bytes) -> Any:
    """Return kio's response of the request's version. `frame` has no size. Raises MalformedRequest."""
    api_key: int = request.__api_key__
    entity_type = response_type(api_key, request.__version__)
    position = _CORRELATION_ID.size
    if entity_type.__flexible__ and api_key != API_VERSIONS:
        position = skip_tagged_fields(frame, position)
    response, _ = entity_reader(entity_type)(memoryview(frame), position)
    return response
