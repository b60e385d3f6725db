"""Every message but the hot answers, through kio's schemas (generated from Kafka's own message definitions).

A handler serves all versions of its API with one piece of code: it reads the request's fields that its
version has and builds the answer with `build`, which leaves out what that version of the answer lacks.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from gateway.protocol.frames import MalformedRequest
from gateway.protocol.tolerant_reader import read_tolerantly

ZERO_DURATION = timedelta(0)
API_VERSIONS = 18


class RequestSchema(NamedTuple):
    """How a request of one API and version is read."""

    entity_type: Any
    read: Callable[[memoryview, int], tuple[Any, int]]
    flexible: bool


@cache
def request_schema(api_key: int, version: int) -> RequestSchema:
    entity_type: Any = load_request_schema(api_key, version)
    return RequestSchema(entity_type, entity_reader(entity_type), entity_type.__flexible__)


def read_request(schema: RequestSchema, body: memoryview, position: int) -> Any:
    """The request entity at `position` of the frame.

    kio's reader is strict where Kafka's is not (unknown tags, array counts below −1, invalid UTF-8), so
    what it refuses is read once more the way Kafka does (org.apache.kafka.common.protocol.Readable).
    Raises MalformedRequest when Kafka could not read it either.
    """
    try:
        return schema.read(body, position)[0]
    except Exception:  # noqa: BLE001 - kio raises KeyError, ValueError, OverflowError and its own errors alike
        return read_tolerantly(schema.entity_type, body, position)


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
    known = {name: value for name, value in values.items() if name in names}
    if needs_throttle and "throttle_time" not in known:
        known["throttle_time"] = ZERO_DURATION
    return entity_type(**known)


def encode_response(api_key: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of an answer: int32 size, response header v0 or v1, body.

    ApiVersions is always answered with header v0, because its reader may not know the version (KIP-511).
    """
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\0")
    buffer.write(correlation_id.to_bytes(4, "big", signed=True))
    entity_type = type(response)
    if entity_type.__flexible__ and api_key != API_VERSIONS:
        buffer.write(b"\0")
    entity_writer(entity_type)(buffer, response)
    frame = buffer.getbuffer()
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


__all__ = [
    "MalformedRequest",
    "RequestSchema",
    "build",
    "encode_response",
    "read_request",
    "request_schema",
    "response_module",
    "response_type",
]
