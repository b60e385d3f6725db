"""Requests of any API in which every array has one row: for tests of properties that all APIs have in common."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from kio.static.constants import EntityType

from tests.support.wire import Plain, entity, field_shape

NUMBER = 3
"""The value of every number; it is a valid code of access control lists, too."""
_VALUES: Plain = {
    "string": "x",
    "bytes": b"x",
    "records": b"",
    "bool": True,
    "float64": float(NUMBER),
    "uuid": "00000000-0000-0000-0000-00000000000a",
}


def full_request(api: str, version: int) -> Plain:
    """Return the fields of a request whose arrays have one row each."""
    return _full(entity(api, version, EntityType.request))


def _full(entity_type: type[Any]) -> Plain:
    return {field.name: _value(field) for field in fields(entity_type)}


def _value(field: Any) -> Any:
    inner, is_array, _ = field_shape(field.type)
    value = (
        _full(inner) if is_dataclass(inner) else _VALUES.get(str(field.metadata.get("kafka_type")), NUMBER)
    )
    return [value] if is_array else value
