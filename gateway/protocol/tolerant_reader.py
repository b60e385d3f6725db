"""A second reader for requests that kio refuses and Apache Kafka answers.

It walks the same generated classes and differs where Kafka's generated readers do: an array or string
length below −1 counts as null, a null where none is allowed becomes empty, unknown or repeated tags are
passed over, invalid UTF-8 is replaced, bytes after the body are ignored. It is slow, and only ever runs
for such requests. Source: org.apache.kafka.common.protocol.Readable and the classes generated for 4.3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from struct import Struct
from typing import Any, get_args, get_origin

from gateway.protocol.frames import MalformedRequest, read_unsigned_varint

_INTEGERS = {
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
    "uint8": Struct(">B"),
    "uint16": Struct(">H"),
    "uint32": Struct(">I"),
    "uint64": Struct(">Q"),
    "float64": Struct(">d"),
    "timedelta_i32": Struct(">i"),
    "timedelta_i64": Struct(">q"),
    "error_code": Struct(">h"),
}
_EMPTY: dict[str, object] = {"string": "", "bytes": b"", "records": b""}


def read_tolerantly(entity_type: Any, body: memoryview, position: int) -> Any:
    """The entity at `position`. Raises MalformedRequest when the bytes end too early."""
    return _Reader(body, position).entity(entity_type)


class _Reader:
    def __init__(self, body: memoryview, position: int) -> None:
        self.body = body
        self.position = position

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.body):
            raise MalformedRequest(f"{size} bytes wanted at {self.position} of {len(self.body)}")
        piece = self.body[self.position : end]
        self.position = end
        return piece

    def unsigned_varint(self) -> int:
        value, self.position = read_unsigned_varint(self.body, self.position)
        return value

    def number(self, kafka_type: str) -> Any:
        layout = _INTEGERS[kafka_type]
        return layout.unpack(self.take(layout.size))[0]

    def length(self, flexible: bool, legacy_type: str) -> int:
        """Length of a string, bytes or array; −1 for null."""
        value = self.unsigned_varint() - 1 if flexible else self.number(legacy_type)
        return max(int(value), -1)

    def entity(self, entity_type: Any) -> Any:
        values: dict[str, object] = {}
        tagged: dict[int, Field[Any]] = {}
        for field in fields(entity_type):
            tag = field.metadata.get("tag")
            if tag is None:
                values[field.name] = self.field(field, entity_type.__flexible__)
            else:
                tagged[tag] = field
        if entity_type.__flexible__:
            self.tagged_fields(tagged, values)
        for field in tagged.values():
            if field.name not in values and field.default is MISSING:
                raise MalformedRequest(f"the tagged field {field.name} has no default")
        return entity_type(**values)

    def tagged_fields(self, known: dict[int, Field[Any]], values: dict[str, object]) -> None:
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            end = self.position + size
            if tag in known:
                values[known[tag].name] = self.field(known[tag], True)
            else:
                self.take(size)
            if self.position != end:
                raise MalformedRequest(f"the tagged field {tag} is not as long as it says")

    def field(self, field: Field[Any], flexible: bool) -> object:
        inner, nullable, is_array = _shape(field.type)
        if is_array:
            return self.array(field, inner, nullable, flexible)
        if is_dataclass(inner):
            if nullable and self.number("int8") < 0:
                return None
            return self.entity(inner)
        value = self.primitive(str(field.metadata["kafka_type"]), flexible)
        if value is None and not nullable:
            return _EMPTY.get(str(field.metadata["kafka_type"]))
        return value

    def array(self, field: Field[Any], inner: Any, nullable: bool, flexible: bool) -> object:
        count = self.length(flexible, "int32")
        if count < 0:
            return None if nullable else ()
        if count > len(self.body) - self.position:
            raise MalformedRequest(f"an array of {count} items in {len(self.body) - self.position} bytes")
        if is_dataclass(inner):
            return tuple(self.entity(inner) for _ in range(count))
        kafka_type = str(field.metadata["kafka_type"])
        return tuple(
            _EMPTY.get(kafka_type) if item is None else item
            for item in (self.primitive(kafka_type, flexible) for _ in range(count))
        )

    def primitive(self, kafka_type: str, flexible: bool) -> object:
        special: dict[str, Callable[[], object]] = {
            "string": lambda: self.text(flexible),
            "bytes": lambda: self.bytes(flexible),
            "records": lambda: self.bytes(flexible),
            "uuid": self.uuid,
            "bool": lambda: self.number("int8") != 0,
            "timedelta_i32": lambda: timedelta(milliseconds=self.number("timedelta_i32")),
            "timedelta_i64": lambda: timedelta(milliseconds=self.number("timedelta_i64")),
        }
        read = special.get(kafka_type)
        return read() if read is not None else self.number(kafka_type)

    def text(self, flexible: bool) -> str | None:
        size = self.length(flexible, "int16")
        return None if size < 0 else str(self.take(size), "utf-8", "replace")

    def bytes(self, flexible: bool) -> bytes | None:
        size = self.length(flexible, "int32")
        return None if size < 0 else bytes(self.take(size))

    def uuid(self) -> uuid.UUID | None:
        raw = bytes(self.take(16))
        return uuid.UUID(bytes=raw) if any(raw) else None


def _shape(annotation: Any) -> tuple[Any, bool, bool]:
    """The inner type of a field, whether it may be null, and whether it is an array."""
    nullable = False
    if type(None) in get_args(annotation):
        nullable = True
        annotation = next(option for option in get_args(annotation) if option is not type(None))
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], nullable, True
    return annotation, nullable, False
