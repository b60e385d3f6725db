"""Reads Avro with a schema, by Apache's own package in plain Python.

A reader in C would be quicker, but a record that is nested deeply enough ends its process (fastavro 1.13).
"""

from __future__ import annotations

import io
from typing import Any, Final

from gateway.console.contents.errors import ContentError

_ALWAYS_BYTES: Final = 1


def parsed_schema(text: str) -> Any:
    """Return a schema of Avro's JSON (.avsc). Raises ContentError."""
    from avro import errors, schema  # noqa: PLC0415 - slow to import

    try:
        found = schema.parse(text)
    except (errors.AvroException, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContentError(f"the schema is no Avro schema: {str(error)[:300]}") from None
    _refuse_empty_items(found, set())
    return found


def read(content: bytes, schema: Any) -> Any:
    """Return the value of a content. Raises ContentError, also when bytes are left over."""
    from avro.io import BinaryDecoder, DatumReader  # noqa: PLC0415 - slow to import

    stream = io.BytesIO(content)
    try:
        value = DatumReader(schema).read(BinaryDecoder(stream))
    except RecursionError:
        raise ContentError("the content is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - the package raises what its parts raise on wrong bytes
        reason = str(error)[:300] or type(error).__name__
        raise ContentError(f"the content does not fit the Avro schema: {reason}") from None
    left = len(content) - stream.tell()
    if left:
        raise ContentError(f"the content does not fit the Avro schema: {left:,} bytes are left over")
    return value


def _refuse_empty_items(schema: Any, seen: set[int]) -> None:
    """Raise ContentError for a list of items without bytes: a few bytes could claim any number of them."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if schema.type == "array" and _least_bytes(schema.items, set()) == 0:
        raise ContentError(
            "the schema has an array of items without content, which the console does not read"
        )
    for inner in _parts(schema):
        _refuse_empty_items(inner, seen)


def _parts(schema: Any) -> list[Any]:
    match schema.type:
        case "array":
            return [schema.items]
        case "map":
            return [schema.values]
        case "union" | "error_union":
            return list(schema.schemas)
        case "record" | "error" | "request":
            return [field.type for field in schema.fields]
        case _:
            return []


def _least_bytes(schema: Any, seen: set[int]) -> int:
    """Return 0 for a type whose values may take no bytes, otherwise 1."""
    match schema.type:
        case "null":
            return 0
        case "fixed":
            return min(int(schema.size), _ALWAYS_BYTES)
        case "record" | "error":
            if id(schema) in seen:
                return 0
            inner = {*seen, id(schema)}
            return max((_least_bytes(field.type, inner) for field in schema.fields), default=0)
        case _:
            return _ALWAYS_BYTES
