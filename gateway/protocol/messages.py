"""Every message but Produce and Fetch, through kio's schemas (generated from Kafka's own message definitions).

A handler serves all versions of its API with one piece of code: it reads the request's fields that its
version has and builds the answer with `build`, which leaves out what that version of the answer lacks.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from gateway.protocol.schema_reader import Read, entity_reader
from gateway.protocol.schema_writer import entity_writer

_HEAD = Struct(">ii")
ZERO_DURATION = timedelta(0)
ONE_MILLISECOND = timedelta(milliseconds=1)
API_VERSIONS = 18


class RequestSchema(NamedTuple):
    """How a request of one API and version is read."""

    read: Read
    flexible: bool


@cache
def request_schema(api_key: int, version: int) -> RequestSchema:
    """The reader of a request, and whether its header and fields are of the flexible kind (KIP-482)."""
    entity_type: Any = load_request_schema(api_key, version)
    return RequestSchema(entity_reader(entity_type), entity_type.__flexible__)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether requests of this version have a header with tagged fields."""
    entity_type: Any = load_request_schema(api_key, version)
    return bool(entity_type.__flexible__)


@cache
def response_module(api_key: int, version: int) -> ModuleType:
    """The module of kio with the response class of this API and version and the classes nested in it."""
    return load_payload_module(api_key, version, EntityType.response)


@cache
def response_type(api_key: int, version: int) -> Any:
    return load_response_schema(api_key, version)


@cache
def _field_names(entity_type: Any) -> tuple[frozenset[str], bool]:
    names = frozenset(field.name for field in fields(entity_type))
    needs_throttle = any(
        field.name == "throttle_time" and field.default is MISSING for field in fields(entity_type)
    )
    return names, needs_throttle


def build(entity_type: Any, **values: Any) -> Any:
    """An entity of the given kio class from the values whose fields its version has."""
    names, needs_throttle = _field_names(entity_type)
    if not names >= values.keys():
        values = {name: value for name, value in values.items() if name in names}
    if needs_throttle and "throttle_time" not in values:
        values["throttle_time"] = ZERO_DURATION
    return entity_type(**values)


def milliseconds(duration: timedelta) -> int:
    """A duration as requests hold it, in whole ms."""
    return duration // ONE_MILLISECOND


def written(entity: Any) -> bytes:
    """The bytes of a part of an answer."""
    entity_type: Any = type(entity)
    pieces: list[bytes] = []
    entity_writer(entity_type)(pieces.append, entity)
    return b"".join(pieces)


def encode_response(api_key: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of an answer: int32 size, response header v0 or v1, body.

    ApiVersions is always answered with header v0, because its reader may not know the version (KIP-511).
    """
    entity_type: Any = type(response)
    pieces = [b"", b"\0"] if entity_type.__flexible__ and api_key != API_VERSIONS else [b""]
    entity_writer(entity_type)(pieces.append, response)
    pieces[0] = _HEAD.pack(sum(map(len, pieces)) + 4, correlation_id)
    return b"".join(pieces)


__all__ = [
    "RequestSchema",
    "build",
    "encode_response",
    "is_flexible",
    "milliseconds",
    "request_schema",
    "response_module",
    "response_type",
    "written",
]
