"""Describes the records of coordinators as rows: a table of fields is the encoder and the decoder of a
record.

    MEMBER = Row(10, structure(ShareMemberValue, Field("rack_id", NULLABLE_STRING), …), names=2)

Kafka has two encodings of a value; a row is written in one of them and read from both:

              plain            compact (KIP-482)
string        int16 length     unsigned varint of length + 1
bytes, list   int32 length     unsigned varint of length + 1
null          length −1        0
structure     its fields       its fields, and tagged fields

A key is an int16 kind and plain strings; a value begins with its int16 version. Source: Kafka's
`MessageDataGenerator` and the *Key.json, *Value.json of its coordinators.

A partition with a value of a later version is not loaded, because it would be incomplete; an unknown kind of
key is skipped. Source: Kafka's `CoordinatorLoaderImpl` and `TransactionLog`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from seqgate.gateway.coordinator.change import Pending
from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.protocol.frames import MalformedRequest, read_unsigned_varint, string, unsigned_varint

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UUID_BYTES: Final = 16


class NewerVersion(ValueError):
    """A stored value has a later version than this release can read."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"a value of version {version}; this program reads versions 0 to {newest}")


def newer_version_in(error: BaseException) -> NewerVersion | None:
    """Return the NewerVersion that `error` is, or that `error` was raised from; None when there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NewerVersion):
        cause = cause.__cause__
    return cause


class FieldReader:
    """A position in a key or value. Raises struct.error, ValueError at the end of the bytes, and
    MalformedRequest for a varint without an end.
    """

    __slots__ = ("_data", "_position", "is_compact", "version")

    def __init__(self, data: bytes | memoryview, version: int = 0, *, is_compact: bool = False) -> None:
        self.version = version
        self.is_compact = is_compact
        self._data = memoryview(data)
        self._position = 0

    def take(self, layout: Struct) -> tuple[Any, ...]:
        """Read numbers that follow one another."""
        values = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return values

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def begin(self, newest: int, first_compact: int) -> None:
        """Read the version at the start of a value. Raises NewerVersion, ValueError (unknown version)."""
        self.version = version = self.number(_INT16)
        if version > newest:
            raise NewerVersion(version, newest)
        if version < 0:
            raise ValueError(f"version {version} is not known; versions 0 to {newest} are")
        self.is_compact = version >= first_compact

    def length(self, plain: Struct) -> int:
        """Read the length of a string, of bytes or of a list, -1 for null, in its `plain` layout."""
        return self._varint() - 1 if self.is_compact else self.number(plain)

    def count(self, *, nullable: bool) -> int:
        """Read the length of a list, -1 for null. Raises ValueError for more items than bytes are left."""
        count = self.length(_INT32)
        if (count < 0 and not (nullable and count == -1)) or count > len(self._data) - self._position:
            raise self._too_long(count)
        return count

    def cut(self, size: int) -> memoryview:
        """Read bytes of a known length."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise self._too_long(size)
        raw = self._data[self._position : end]
        self._position = end
        return raw

    def string(self) -> str:
        """Read a text."""
        return _text(self.cut(self.length(_INT16)))

    def tagged_fields(self) -> dict[int, FieldReader]:
        """Return the tagged fields that follow, by tag; the plain encoding has none."""
        if not self.is_compact:
            return {}
        found = {}
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            found[tag] = FieldReader(self.cut(size), self.version, is_compact=True)
        return found

    def _varint(self) -> int:
        value, self._position = read_unsigned_varint(self._data, self._position)
        return value

    def _too_long(self, size: int) -> ValueError:
        left = len(self._data) - self._position
        return ValueError(f"a length of {size} runs over the end, {left} bytes away")


def _text(raw: memoryview) -> str:
    return str(raw, "utf-8")


class Writer:
    """The bytes of a value under construction. Raises struct.error for a number or text too long."""

    def __init__(self, *, is_compact: bool) -> None:
        self.is_compact = is_compact
        self._pieces: list[bytes] = []
        self.append = self._pieces.append

    def length(self, size: int, plain: Struct) -> None:
        """Write the length of a string, of bytes or of a list; -1 stands for null."""
        self.append(unsigned_varint(size + 1) if self.is_compact else plain.pack(size))

    def written(self) -> bytes:
        return b"".join(self._pieces)


class Type(NamedTuple):
    """The type of a field: how a value is written, and how a value is read."""

    write: Callable[[Writer, Any], None]
    read: Callable[[FieldReader], Any]
    layout: str = ""
    """The layout of a number."""


def _number(layout: str) -> Type:
    number = Struct(">" + layout)
    return Type(
        lambda out, value: out.append(number.pack(value)), lambda reader: reader.number(number), layout
    )


INT8: Final = _number("b")
INT16: Final = _number("h")
INT32: Final = _number("i")
INT64: Final = _number("q")
UINT16: Final = _number("H")


def _sized(
    plain: Struct, to_raw: Callable[[Any], bytes], from_raw: Callable[[memoryview], Any], *, nullable: bool
) -> Type:
    def write(out: Writer, value: Any) -> None:
        if value is None and nullable:
            out.length(-1, plain)
            return
        raw = to_raw(value)
        size = len(raw)
        out.append((unsigned_varint(size + 1) if out.is_compact else plain.pack(size)) + raw)

    def read(reader: FieldReader) -> Any:
        size = reader.length(plain)
        return None if size == -1 and nullable else from_raw(reader.cut(size))

    return Type(write, read)


STRING: Final = _sized(_INT16, str.encode, _text, nullable=False)
NULLABLE_STRING: Final = _sized(_INT16, str.encode, _text, nullable=True)
BYTES: Final = _sized(_INT32, bytes, bytes, nullable=False)
UUID: Final = Type(
    lambda out, value: out.append(value.bytes), lambda reader: uuid.UUID(bytes=bytes(reader.cut(_UUID_BYTES)))
)


def array(item: Type, *, nullable: bool = False) -> Type:
    """Return the type of a list of items, which is read as a tuple, or as None where it may be null."""
    write_item, read_item, layout = item

    def write(out: Writer, values: Any) -> None:
        count = -1 if values is None else len(values)
        out.length(count, _INT32)
        if layout and count > 0:
            out.append(struct.pack(f">{count}{layout}", *values))
        elif count > 0:
            for value in values:
                write_item(out, value)

    def read(reader: FieldReader) -> tuple[Any, ...] | None:
        count = reader.count(nullable=nullable)
        if count < 0:
            return None
        if layout:
            return reader.take(Struct(f">{count}{layout}"))
        return tuple([read_item(reader) for _ in range(count)])

    return Type(write, read)


class Field(NamedTuple):
    """A field of a structure: the attribute or item `name` of its value, or what `name` returns of it.

    Values of an earlier version than `since` have `absent` instead. A field without a name is written as
    `absent`, and ignored where it is read.
    """

    name: str | int | Callable[[Any], Any]
    type: Type
    absent: Any = None
    since: int = 0


class Tag(NamedTuple):
    """A tagged field of a structure. A value equal to `absent` is not written, unless `is_always_written`."""

    tag: int
    name: str
    type: Type
    absent: Any = None
    is_always_written: bool = False


def structure(make: Callable[..., Any], *fields: Field | Tag) -> Type:
    """Return the type of a structure; `make` takes the fields, then the tagged fields, in this order."""
    plain = [field for field in fields if isinstance(field, Field)]
    writes = [(_getter(field), field.type.write) for field in plain]
    tags = [field for field in fields if isinstance(field, Tag)]
    tag_writers = [_tag_writer(tag) for tag in sorted(tags, key=attrgetter("tag"))]

    def write(out: Writer, value: Any) -> None:
        for get, write_field in writes:
            write_field(out, get(value))
        if out.is_compact:
            held = [raw for write_tag in tag_writers if (raw := write_tag(value))]
            out.append(unsigned_varint(len(held)) + b"".join(held))

    def read(reader: FieldReader) -> Any:
        found: list[Any] = []
        for name, type_, absent, since in plain:
            content = type_.read(reader) if reader.version >= since else absent
            if name != "":
                found.append(content)
        tagged = reader.tagged_fields()
        for tag in tags:
            raw = tagged.get(tag.tag)
            found.append(tag.absent if raw is None else tag.type.read(raw))
        return make(*found)

    return Type(write, read)


def _tag_writer(tag: Tag) -> Callable[[Any], bytes]:
    """Return the function that returns the bytes of a tagged field; none if it is not written."""
    get, absent, is_always_written = attrgetter(tag.name), tag.absent, tag.is_always_written
    number = unsigned_varint(tag.tag)

    def written(value: Any) -> bytes:
        content = get(value)
        if content == absent and not is_always_written:
            return b""
        inner = Writer(is_compact=True)
        tag.type.write(inner, content)
        raw = inner.written()
        return number + unsigned_varint(len(raw)) + raw

    return written


def _getter(field: Field) -> Callable[[Any], Any]:
    """Return the function that takes a field from the value of a structure."""
    name = field.name
    if name == "":
        return lambda _: field.absent
    return name if callable(name) else itemgetter(name) if isinstance(name, int) else attrgetter(name)


def nullable(inner: Type) -> Type:
    """Return the type of a structure that may be null: an int8 says whether it follows."""

    def write(out: Writer, value: Any) -> None:
        INT8.write(out, -1 if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return Type(write, lambda reader: None if INT8.read(reader) < 0 else inner.read(reader))


def converted(inner: Type, to_stored: Callable[[Any], Any], from_stored: Callable[[Any], Any]) -> Type:
    """Return the type of a value that is stored as a value of another type."""
    return Type(
        lambda out, value: inner.write(out, to_stored(value)), lambda reader: from_stored(inner.read(reader))
    )


def several(*values: Any) -> tuple[Any, ...]:
    return values


PAIR: Final = structure(several, Field(0, STRING), Field(1, STRING))
PAIRS: Final = array(PAIR)
"""A list of keys and values, as a tuple of pairs."""


def partitions_of(name: Type, make: Callable[[Any, int], Any], *, nullable: bool = False) -> Type:
    """Return the type of a set of partitions, stored as a list of names, each with its partitions in order.

    `name` is the type of a name; `make` returns the partition of a name and an index. A list that may be null
    is written as null for None, and read as an empty set.
    """
    topic = structure(several, Field(0, name), Field(1, array(INT32, nullable=nullable)))

    def from_stored(topics: Any) -> frozenset[Any]:
        return frozenset([make(name, index) for name, indexes in topics or () for index in indexes or ()])

    return converted(
        array(topic, nullable=nullable),
        lambda places: None if places is None else by_topic(places).items(),
        from_stored,
    )


class _Topic(NamedTuple):
    """Partitions under one name, each with its assignment epoch (KIP-1251) where there are epochs."""

    name: Any
    partitions: Sequence[int]
    epochs: Sequence[int] | None


def epochs_of(name: Type, make: Callable[[Any, int], Any]) -> Type:
    """Return the type of a mapping of partitions to assignment epochs, each None if the record lacks it."""
    epochs = Tag(0, "epochs", array(INT32, nullable=True))
    topic = structure(_Topic, Field("name", name), Field("partitions", array(INT32)), epochs)

    def to_stored(held: Mapping[Any, int]) -> list[_Topic]:
        topics = by_topic(held).items()
        return [_Topic(name, some, [held[make(name, index)] for index in some]) for name, some in topics]

    def from_stored(topics: Sequence[_Topic]) -> dict[Any, int | None]:
        found: dict[Any, int | None] = {}
        for each, indexes, known in topics:
            count = len(indexes)
            stored = [None] * count if known is None or len(known) != count else known
            found.update(zip([make(each, index) for index in indexes], stored, strict=True))
        return found

    return converted(array(topic), to_stored, from_stored)


def place(topic_id: uuid.UUID, index: int) -> Place:
    return topic_id, index


PLACES: Final = partitions_of(UUID, place)
PLACES_WITH_EPOCHS: Final = epochs_of(UUID, place)


RECORD_OVERHEAD_BYTES: Final = 30
"""An upper bound of the bytes that a record takes in a batch, without its key and value."""


def size_of(encode: Callable[[Any], tuple[bytes, bytes | None]], records: Iterable[Any]) -> int:
    """Return roughly how many bytes a batch of these records takes."""
    encoded = (encode(record.record if isinstance(record, Pending) else record) for record in records)
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in encoded)


class Row(msgspec.Struct, frozen=True, eq=False):
    """One kind of record in a topic: its kind of key, and its value, which is None for a deletion.

    The key has as many `names`. Values are written in version `written`; versions up to `newest` are read,
    and those from `first_compact` on have the compact encoding. The row of a group that has epochs is stored
    in an `attribute` of the group or of its members, which is `empty` after a deletion.
    """

    kind: int
    value: Type
    attribute: str = ""
    names: int = 1
    empty: Any = None
    written: int = 0
    newest: int = 0
    first_compact: int = 0

    def of(self, *names_and_value: Any) -> RowRecord:
        """Return the record of a group, or of a member of a group."""
        *names, value = names_and_value
        return RowRecord(self, tuple(names), value)

    def encode(self, names: Sequence[str], value: Any) -> tuple[bytes, bytes | None]:
        """Return the (key, value) for the log. Raises struct.error for a text that is too long."""
        key = _INT16.pack(self.kind) + b"".join(map(string, names))
        if value is None:
            return key, None
        out = Writer(is_compact=self.written >= self.first_compact)
        out.append(_INT16.pack(self.written))
        self.value.write(out, value)
        return key, out.written()

    def decode(self, key: FieldReader, value: bytes | None) -> tuple[list[str], Any]:
        """Return the names of a key, behind its kind, and the value. Raises ValueError."""
        try:
            names = [key.string() for _ in range(self.names)]
            if value is None:
                return names, None
            reader = FieldReader(value)
            reader.begin(self.newest, self.first_compact)
            return names, self.value.read(reader)
        except (struct.error, MalformedRequest, ValueError) as error:
            raise ValueError(f"a record of kind {self.kind} can't be read: {error}") from error


class RowRecord(NamedTuple):
    """A record: the value of a row for a group, or one of its members; None deletes the value."""

    row: Row
    names: tuple[str, ...]
    """The group id, and then the member id if the row is one of members."""
    value: Any

    @property
    def group_id(self) -> str:
        return self.names[0]


def itself(value: Any) -> Any:
    """Return the value: it is the only field of a structure."""
    return value
