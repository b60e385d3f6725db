"""The writer of answers: walks kio's generated classes, like `schema_reader`.

kio's own writer calls a function and packs a number for every field. This writer packs neighbouring numbers at once, in a
third of the time.
Source: org.apache.kafka.common.protocol.Writable and the classes Kafka 4.3 generates (KIP-482: tagged fields).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, Final, get_args, get_origin

from gateway.protocol.primitives import unsigned_varint

Append = Callable[[bytes], None]
Write = Callable[[Append, Any], None]
"""The writer of one type: appends the bytes of a value.

Raises struct.error for a number out of its range, and TypeError for a null in a field that can't be null.
"""

_NULL_UUID: Final = bytes(16)
_EMPTY_TAGS: Final = b"\0"
_NUMBERS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "bool": "?",
}
_MILLISECOND: Final = timedelta(milliseconds=1)


@cache
def entity_writer(entity_type: Any) -> Write:
    """Return the writer of a kio class."""
    flexible: bool = entity_type.__flexible__
    steps = _steps([field for field in fields(entity_type) if "tag" not in field.metadata], flexible)
    write_tags = _tagged_fields(entity_type) if flexible else None
    if len(steps) == 1 and write_tags is None:
        return steps[0]

    def write(append: Append, entity: Any) -> None:
        for step in steps:
            step(append, entity)
        if write_tags is not None:
            write_tags(append, entity)

    return write


def _steps(plain: Sequence[Field[Any]], flexible: bool) -> list[Write]:
    """Return the writers that together write all fields of an entity. Neighbouring numbers share one writer."""
    steps: list[Write] = []
    numbers: list[Field[Any]] = []
    for field in plain:
        if _is_number(field):
            numbers.append(field)
            continue
        if numbers:
            steps.append(_numbers(numbers))
            numbers = []
        steps.append(_of_attribute(field.name, _value_writer(field, flexible)))
    if numbers:
        steps.append(_numbers(numbers))
    return steps


def _is_number(field: Field[Any]) -> bool:
    _, _, is_array = _shape(field.type)
    return not is_array and field.metadata.get("kafka_type") in _NUMBERS


def _numbers(found: Sequence[Field[Any]]) -> Write:
    pack = Struct(">" + "".join(_NUMBERS[field.metadata["kafka_type"]] for field in found)).pack
    get = attrgetter(*(field.name for field in found))
    if len(found) == 1:
        return lambda append, entity: append(pack(get(entity)))
    return lambda append, entity: append(pack(*get(entity)))


def _of_attribute(name: str, write_value: Write) -> Write:
    get = attrgetter(name)
    return lambda append, entity: write_value(append, get(entity))


def _value_writer(field: Field[Any], flexible: bool) -> Write:
    """Return the writer of a value of the field's type, for plain and tagged fields."""
    annotation, nullable, is_array = _shape(field.type)
    if _is_entity(annotation):
        write_one = entity_writer(annotation)
        if not is_array and nullable and "tag" not in field.metadata:
            return _nullable_entity(write_one)
    else:
        write_one = _primitive(str(field.metadata["kafka_type"]), flexible, nullable and not is_array)
    return _array(write_one, flexible) if is_array else write_one


def _is_entity(annotation: Any) -> bool:
    return is_dataclass(annotation)


def _shape(annotation: Any) -> tuple[Any, bool, bool]:
    """Return the inner type of a field, whether the field can be null, and whether the field is an array."""
    nullable = type(None) in get_args(annotation)
    if nullable:
        annotation = next(option for option in get_args(annotation) if option is not type(None))
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], nullable, True
    return annotation, nullable, False


class Written(bytes):
    """The bytes of an array's entity that was encoded before, for the same version of the answer."""


def _array(write_one: Write, flexible: bool) -> Write:
    pack = Struct(">i").pack

    def write(append: Append, items: Sequence[Any] | None) -> None:
        count = -1 if items is None else len(items)
        append(unsigned_varint(count + 1) if flexible else pack(count))
        for item in items or ():
            if type(item) is Written:
                append(item)
            else:
                write_one(append, item)

    return write


def _nullable_entity(write_entity: Write) -> Write:
    def write(append: Append, entity: Any) -> None:
        if entity is None:
            append(b"\xff")
        else:
            append(b"\x01")
            write_entity(append, entity)

    return write


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> Write:
    if kafka_type in _NUMBERS:
        pack = Struct(">" + _NUMBERS[kafka_type]).pack
        return lambda append, value: append(pack(value))
    if kafka_type in {"string", "bytes", "records"}:
        return _sized(">h" if kafka_type == "string" else ">i", flexible, nullable)
    if kafka_type == "uuid":
        return _write_uuid
    if kafka_type in {"timedelta_i32", "timedelta_i64"}:
        pack_duration = Struct(">i" if kafka_type == "timedelta_i32" else ">q").pack
        return lambda append, value: append(pack_duration(round(value / _MILLISECOND)))
    if kafka_type == "datetime_i64":
        return _write_datetime
    raise TypeError(f"{kafka_type} is not a type of Kafka's protocol")


def _sized(legacy_length: str, flexible: bool, nullable: bool) -> Write:
    pack = Struct(legacy_length).pack

    def write(append: Append, value: str | bytes | None) -> None:
        if value is None:
            if not nullable:
                raise TypeError("the value is None, and the field can't be null")
            append(b"\0" if flexible else pack(-1))
            return
        raw = value.encode() if isinstance(value, str) else value
        append(unsigned_varint(len(raw) + 1) if flexible else pack(len(raw)))
        append(raw)

    return write


def _write_uuid(append: Append, value: uuid.UUID | None) -> None:
    append(_NULL_UUID if value is None else value.bytes)


def _write_datetime(append: Append, value: datetime | None) -> None:
    append(Struct(">q").pack(-1 if value is None else round(value.timestamp() * 1000)))


def _tagged_fields(entity_type: Any) -> Write:
    """Return the writer of the tagged fields.

    The writer writes the fields that differ from their defaults, in the order of tags.
    """
    tagged = [
        (field.metadata["tag"], attrgetter(field.name), _value_writer(field, flexible=True), field.default)
        for field in sorted(
            (field for field in fields(entity_type) if "tag" in field.metadata),
            key=lambda field: int(field.metadata["tag"]),
        )
    ]
    for tag, _, _, default in tagged:
        if default is MISSING:
            raise TypeError(f"the tagged field {tag} of {entity_type.__name__} has no default")
    if not tagged:
        return lambda append, _: append(_EMPTY_TAGS)

    def write(append: Append, entity: Any) -> None:
        present = [
            (tag, get(entity), write_value)
            for tag, get, write_value, default in tagged
            if get(entity) != default
        ]
        append(unsigned_varint(len(present)))
        for tag, value, write_value in present:
            pieces: list[bytes] = []
            write_value(pieces.append, value)
            raw = b"".join(pieces)
            append(unsigned_varint(tag) + unsigned_varint(len(raw)) + raw)

    return write
