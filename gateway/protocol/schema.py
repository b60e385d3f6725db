"""The reader of requests and the writer of answers, by the fields of kio's generated classes.

`entity_reader` reads field by field, as Kafka's generated readers do. kio's own native reader is not safe for
requests of clients: kio reserves memory for whatever an array count claims, and a count of billions in a
request of ten bytes ends the process. kio also refuses requests that Kafka answers: array counts below -1
(null), unknown or repeated tags, invalid UTF-8, bytes after the body. Produce and Fetch have readers of their
own; for all other requests this reader is fast enough. Source: org.apache.kafka.common.protocol.Readable and
the classes Kafka 4.4 generates.

kio's own writer calls a function and packs a number for every field. `entity_writer` packs neighbouring
numbers at once, in a third of the time. Source: org.apache.kafka.common.protocol.Writable and the classes
Kafka 4.4 generates (KIP-482: tagged fields).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, Final, get_args, get_origin

from seqgate.gateway.protocol.frames import (
    MAX_ITEMS,
    MOST_IN_ONE_BYTE,
    ONE_BYTE,
    ONE_BYTE_VARINTS,
    MalformedRequest,
    TooManyItems,
    read_tagged_count,
    read_unsigned_varint,
    text_of,
    unsigned_varint,
)

Read = Callable[[memoryview, int], tuple[Any, int]]
"""The reader of one type: takes the frame and a position, returns the value and the next position. Raises
MalformedRequest.
"""

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
}
"""The layouts of plain numbers."""
_LONGEST_PERIOD_MS = 10**15
"""The longest period (ms), 31,000 years; a longer one is cut to it, because a timedelta can't hold every
int64.
"""
ONE_MILLISECOND: Final = timedelta(milliseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_TIME_MS: Final = 253_402_300_799_999


class _Items:
    """Counts the items of all arrays of one request."""

    def __init__(self) -> None:
        self._count = 0

    def counted(self, read_length: Read) -> Read:
        """Return the reader of an array's length that counts the items. Raises TooManyItems."""

        def read(frame: memoryview, position: int) -> tuple[Any, int]:
            count, position = read_length(frame, position)
            self._count += max(count, 0)
            if self._count > MAX_ITEMS:
                raise TooManyItems(self._count)
            return count, position

        return read


@cache
def entity_reader(entity_type: Any) -> Read:
    """Return the reader of a kio class. It limits the items of each array."""
    return _entity_reader(entity_type, None)


def counting_reader(entity_type: Any) -> Read:
    """Return a reader for one request of a kio class. It limits the items of all arrays together."""
    return _entity_reader(entity_type, _Items())


def _entity_reader(entity_type: Any, items: _Items | None) -> Read:
    plain: list[Field[Any]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    flexible: bool = entity_type.__flexible__
    for field in fields(entity_type):
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append(field)
        elif field.default is MISSING:
            raise TypeError(f"{entity_type.__name__}.{field.name} is tagged and has no default")
        else:
            tagged[tag] = (field.name, _field_reader(field, flexible, items))

    steps = list(_steps(plain, flexible, items))

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        values: dict[str, object] = {}
        for names, read_fields in steps:
            if isinstance(names, str):
                values[names], position = read_fields(frame, position)
            else:
                numbers, position = read_fields(frame, position)
                values.update(zip(names, numbers, strict=True))
        if flexible:
            if position < len(frame) and frame[position] == 0:
                position += 1  # no tagged fields, as in nearly all requests
            else:
                position = _read_tagged_fields(frame, position, tagged, values)
        return entity_type(**values), position

    return read


def _steps(
    plain: list[Field[Any]], flexible: bool, items: _Items | None
) -> Iterator[tuple[str | tuple[str, ...], Read]]:
    """Return the names of fields with their readers, in order. Adjacent numbers share one reader."""
    for is_number, same in groupby(plain, key=lambda field: _layout(field) is not None):
        run = list(same)
        if is_number and len(run) > 1:
            layout = ">" + "".join(str(_layout(field)) for field in run)
            yield tuple(field.name for field in run), _numbers(layout)
        else:
            for field in run:
                yield field.name, _field_reader(field, flexible, items)


def _layout(field: Field[Any]) -> str | None:
    """Return the layout of a field that is a plain number; None for every other field."""
    inner, _, is_array = shape(field.type)
    if is_array or _is_entity(inner):
        return None
    return _NUMBERS.get(str(field.metadata["kafka_type"]))


def _read_tagged_fields(
    frame: memoryview, position: int, known: dict[int, tuple[str, Read]], values: dict[str, object]
) -> int:
    count, position = read_tagged_count(frame, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        end = position + size
        _check_room(frame, position, size)
        found = known.get(tag)
        if found is not None:
            name, read_field = found
            values[name], position = read_field(frame, position)
            if position != end:
                raise MalformedRequest(
                    f"the tagged field {tag} claims {size} bytes and has {size + position - end}"
                )
        position = end
    return position


def _numbers(layout: str) -> Read:
    numbers = Struct(layout)
    unpack, size = numbers.unpack_from, numbers.size

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        if position + size > len(frame):
            _check_room(frame, position, size)
        return unpack(frame, position), position + size

    return read


def _check_room(frame: memoryview, position: int, size: int) -> None:
    if position + size > len(frame):
        raise MalformedRequest(
            f"a field of {size} bytes at position {position} ends after the end of the request of "
            f"{len(frame)} bytes"
        )


def _field_reader(field: Field[Any], flexible: bool, items: _Items | None) -> Read:
    inner, nullable, is_array = shape(field.type)
    read_entity: Read | None = None
    if _is_entity(inner):
        read_entity = entity_reader(inner) if items is None else _entity_reader(inner, items)
    if is_array:
        read_length = _length(flexible, ">i")
        if items is not None:
            read_length = items.counted(read_length)
        return _array(field.name, read_entity or _primitive(field, flexible, False), nullable, read_length)
    if read_entity is not None:
        return _nullable_entity(read_entity) if nullable else read_entity
    return _primitive(field, flexible, nullable)


def _is_entity(annotation: Any) -> bool:
    return is_dataclass(annotation)


def shape(annotation: Any) -> tuple[Any, bool, bool]:
    """Return the inner type of a field, whether the field can be null, and whether the field is an array."""
    nullable = type(None) in get_args(annotation)
    if nullable:
        annotation = next(option for option in get_args(annotation) if option is not type(None))
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], nullable, True
    return annotation, nullable, False


def _array(name: str, item: Read, nullable: bool, read_length: Read) -> Read:
    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        count, position = read_length(frame, position)
        if count < 0:
            if not nullable:
                raise MalformedRequest(f"{name} is null")
            return None, position
        # An item takes at least one byte, so no sound count exceeds the bytes that are left.
        _check_room(frame, position, count)
        if count > MAX_ITEMS:
            raise TooManyItems(count)
        items = []
        for _ in range(count):
            value, position = item(frame, position)
            items.append(value)
        return tuple(items), position

    return read


def _nullable_entity(read_entity: Read) -> Read:
    read_mark = _number(">b")

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        mark, position = read_mark(frame, position)
        return (None, position) if mark < 0 else read_entity(frame, position)

    return read


def _length(flexible: bool, legacy: str) -> Read:
    """Return the reader of the length of a string, bytes or array; the length is -1 for null."""
    read_legacy = _number(legacy)

    def read(frame: memoryview, position: int) -> tuple[int, int]:
        if flexible:
            if position < len(frame) and frame[position] < ONE_BYTE:
                return frame[position] - 1, position + 1
            value, position = read_unsigned_varint(frame, position)
            return value - 1, position
        value, position = read_legacy(frame, position)
        return max(value, -1), position

    return read


def _number(layout: str) -> Read:
    number = Struct(layout)
    unpack, size = number.unpack_from, number.size

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        if position + size > len(frame):
            _check_room(frame, position, size)
        return unpack(frame, position)[0], position + size

    return read


def _primitive(field: Field[Any], flexible: bool, nullable: bool) -> Read:
    kafka_type = str(field.metadata["kafka_type"])
    if kafka_type == "string":
        return _sized(field.name, _length(flexible, ">h"), text_of, nullable)
    if kafka_type in {"bytes", "records"}:
        return _sized(field.name, _length(flexible, ">i"), bytes, nullable)
    if kafka_type == "uuid":
        return _uuid
    if kafka_type == "bool":
        return _converted(_number(">b"), bool)
    if kafka_type in {"timedelta_i32", "timedelta_i64"}:
        return _converted(_number(">i" if kafka_type == "timedelta_i32" else ">q"), _milliseconds)
    if kafka_type == "datetime_i64":
        return _converted(_number(">q"), _time)
    return _number(">" + _NUMBERS[kafka_type])


def _sized(name: str, read_length: Read, convert: Callable[[memoryview], Any], nullable: bool) -> Read:
    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        size, position = read_length(frame, position)
        if size < 0:
            if not nullable:
                raise MalformedRequest(f"{name} is null")
            return None, position
        end = position + size
        if end > len(frame):
            _check_room(frame, position, size)
        return convert(frame[position:end]), end

    return read


def _converted(read_number: Read, convert: Callable[[int], Any]) -> Read:
    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        value, position = read_number(frame, position)
        return convert(value), position

    return read


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=max(-_LONGEST_PERIOD_MS, min(value, _LONGEST_PERIOD_MS)))


def _time(value: int) -> datetime | None:
    """Return a time in ms since 1970; None for one before that, such as -1, or after the year 9999."""
    return EPOCH + timedelta(milliseconds=value) if 0 <= value <= _LATEST_TIME_MS else None


def _uuid(frame: memoryview, position: int) -> tuple[uuid.UUID | None, int]:
    _check_room(frame, position, 16)
    raw = bytes(frame[position : position + 16])
    return (uuid.UUID(bytes=raw) if any(raw) else None), position + 16


Append = Callable[[bytes], None]
Write = Callable[[Append, Any], None]
"""The writer of one type: appends the bytes of a value. Raises struct.error for a number out of its range,
and TypeError for a null in a field that can't be null.
"""

_NULL_UUID: Final = bytes(16)
_EMPTY_TAGS: Final = b"\0"
_WRITER_NUMBERS: Final = {**_NUMBERS, "bool": "?"}


@cache
def entity_writer(entity_type: Any) -> Write:
    """Return the writer of a kio class."""
    flexible: bool = entity_type.__flexible__
    plain = [field for field in fields(entity_type) if "tag" not in field.metadata]
    steps = list(_steps_writer(plain, flexible))
    write_tags = _tagged_fields(entity_type) if flexible else None
    if len(steps) == 1 and write_tags is None:
        return steps[0]

    def write(append: Append, entity: Any) -> None:
        for step in steps:
            step(append, entity)
        if write_tags is not None:
            write_tags(append, entity)

    return write


def _steps_writer(plain: Sequence[Field[Any]], flexible: bool) -> Iterator[Write]:
    """Yield the writers that together write an entity. Neighbouring numbers share one writer."""
    for is_number, same in groupby(plain, key=_is_number):
        if is_number:
            yield _numbers_writer(list(same))
        else:
            for field in same:
                yield _of_attribute(field.name, _value_writer(field, flexible))


def _is_number(field: Field[Any]) -> bool:
    _, _, is_array = shape(field.type)
    return not is_array and field.metadata.get("kafka_type") in _WRITER_NUMBERS


def _numbers_writer(found: Sequence[Field[Any]]) -> Write:
    pack = Struct(">" + "".join(_WRITER_NUMBERS[field.metadata["kafka_type"]] for field in found)).pack
    get = attrgetter(*(field.name for field in found))
    if len(found) == 1:
        return lambda append, entity: append(pack(get(entity)))
    return lambda append, entity: append(pack(*get(entity)))


def _of_attribute(name: str, write_value: Write) -> Write:
    get = attrgetter(name)
    return lambda append, entity: write_value(append, get(entity))


def _value_writer(field: Field[Any], flexible: bool) -> Write:
    annotation, nullable, is_array = shape(field.type)
    if _is_entity(annotation):
        write_one = entity_writer(annotation)
        if not is_array and nullable and "tag" not in field.metadata:
            return _nullable_entity_writer(write_one)
    else:
        write_one = _primitive_writer(str(field.metadata["kafka_type"]), flexible, nullable and not is_array)
    return _array_writer(write_one, flexible) if is_array else write_one


class EncodedEntity(bytes):
    """The bytes of an array's entity that was encoded before, for the same version of the answer."""


def _array_writer(write_one: Write, flexible: bool) -> Write:
    pack = Struct(">i").pack

    def write(append: Append, items: Sequence[Any] | None) -> None:
        count = -1 if items is None else len(items)
        if not flexible:
            append(pack(count))
        elif count < MOST_IN_ONE_BYTE:
            append(ONE_BYTE_VARINTS[count + 1])
        else:
            append(unsigned_varint(count + 1))
        for item in items or ():
            if type(item) is EncodedEntity:
                append(item)
            else:
                write_one(append, item)

    return write


def _nullable_entity_writer(write_entity: Write) -> Write:
    def write(append: Append, entity: Any) -> None:
        if entity is None:
            append(b"\xff")
        else:
            append(b"\x01")
            write_entity(append, entity)

    return write


def _primitive_writer(kafka_type: str, flexible: bool, nullable: bool) -> Write:
    if kafka_type in _WRITER_NUMBERS:
        pack = Struct(">" + _WRITER_NUMBERS[kafka_type]).pack
        return lambda append, value: append(pack(value))
    if kafka_type in {"string", "bytes", "records"}:
        return _sized_writer(">h" if kafka_type == "string" else ">i", flexible, nullable)
    if kafka_type == "uuid":
        return _write_uuid
    if kafka_type in {"timedelta_i32", "timedelta_i64"}:
        pack_duration = Struct(">i" if kafka_type == "timedelta_i32" else ">q").pack
        return lambda append, value: append(pack_duration(round(value / ONE_MILLISECOND)))
    if kafka_type == "datetime_i64":
        return _write_datetime
    raise TypeError(f"{kafka_type} is not a type of Kafka's protocol")


def _sized_writer(legacy_length: str, flexible: bool, nullable: bool) -> Write:
    pack = Struct(legacy_length).pack

    def write(append: Append, value: str | bytes | None) -> None:
        if value is None:
            if not nullable:
                raise TypeError("the value is None, and the field can't be null")
            append(b"\0" if flexible else pack(-1))
            return
        raw = value.encode() if isinstance(value, str) else value
        size = len(raw)
        if not flexible:
            append(pack(size))
        elif size < MOST_IN_ONE_BYTE:
            append(ONE_BYTE_VARINTS[size + 1])
        else:
            append(unsigned_varint(size + 1))
        append(raw)

    return write


def _write_uuid(append: Append, value: uuid.UUID | None) -> None:
    append(_NULL_UUID if value is None else value.bytes)


def _write_datetime(append: Append, value: datetime | None) -> None:
    append(Struct(">q").pack(-1 if value is None else round(value.timestamp() * 1000)))


def _tagged_fields(entity_type: Any) -> Write:
    """Return the writer of the tagged fields that differ from their defaults, in the order of tags."""
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
