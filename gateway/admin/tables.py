"""Tables for people: how each field of a row is shown, and the formats of numbers, sizes, times and names.

A field of a row says beside its type how tables show it: `age_ms: Annotated[int, Column("age", duration)]`.
What a table shows of several fields is a property of the row, with a column in the type of its result. So a
table and the JSON document of a command come from one type. A gateway imports this module; it prints nothing.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec

from seqgate.gateway.security.principals import ClientIdentity
from seqgate.gateway.sizes import size_in_words

UNKNOWN: Final = "?"
"""The text for an unknown count."""
NONE: Final = "-"
"""The text for a value that is not there."""


def shown(text: str, longest: int | None = None) -> str:
    """Escape unprintable characters of a text that a client chose, and cut it to the `longest` length."""
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return safe if longest is None or len(safe) <= longest else safe[: longest - 1] + "…"


def number(value: object) -> str:
    """Return a number that is no count, or a range of such numbers: an id, an offset, an epoch."""
    return str(value)


def known(value: int) -> str:
    """Return a number that is negative where nobody knows it."""
    return NONE if value < 0 else str(value)


def count(value: int | None) -> str:
    """Return a count with thousands separators; None is an unknown count."""
    return UNKNOWN if value is None else f"{value:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things: `1 block`, `1,200 blocks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def moment(time_ms: int) -> str:
    """Return a time in the local time zone, to the second."""
    if time_ms < 0:
        return "-"
    try:
        return dt.datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # after the year 9999, such as a time in microseconds


def duration(length_ms: int) -> str:
    """Return a length of time in its largest two units: `3 d 4 h`, `12 min 5 s`, `0.4 s`."""
    if length_ms < 10_000:
        return f"{length_ms / 1000:.1f} s"
    seconds = length_ms // 1000
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for (size, unit), (smaller_size, smaller_unit) in itertools.pairwise(units):
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size} {unit} {rest} {smaller_unit}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"


class Column(msgspec.Struct, frozen=True):
    """A column: its heading, the format of its values, and the text for a value that is None."""

    heading: str
    format: Callable[[Any], str] = shown
    none: str = NONE

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers, which are aligned to the right."""
        return self.format in {number, known, count, duration, size_in_words}

    def text(self, value: Any) -> str:
        """Return the text of a value."""
        return self.none if value is None else self.format(value)


class Table(NamedTuple):
    """A table: columns, and rows of texts."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[str]]


Block: TypeAlias = str | Table
"""A part of an output: a line, or a table."""


def table(kind: type, rows: Iterable[Any], fields: str = "") -> Table:
    """Return the table of rows of one type: of the fields and properties that are named, or of all that have
    a column, in their order. `delivery.acquired` is a field of the value in the field `delivery`; where that
    is None, so is the field.
    """
    paths = fields.split() or list(_fields(kind)[1])
    columns = [_column(kind, path) for path in paths]
    return Table(
        columns,
        [
            [column.text(_value(row, path)) for column, path in zip(columns, paths, strict=True)]
            for row in rows
        ],
    )


@functools.cache
def _fields(kind: type) -> tuple[dict[str, Any], dict[str, Column]]:
    """Return the types of the fields and properties of a type, and the columns of those that have one."""
    types = get_type_hints(kind, include_extras=True)
    for each in reversed(kind.__mro__):
        properties = {name: value for name, value in vars(each).items() if isinstance(value, property)}
        for name, value in properties.items():
            types[name] = get_type_hints(value.fget, include_extras=True).get("return")
    marks = ((name, mark) for name, hint in types.items() for mark in getattr(hint, "__metadata__", ()))
    return types, {name: mark for name, mark in marks if isinstance(mark, Column)}


def _column(kind: type, path: str) -> Column:
    name, dot, rest = path.partition(".")
    types, columns = _fields(kind)
    if not dot:
        return columns[name]
    inner: type = next(each for each in get_args(types[name]) or [types[name]] if each is not NoneType)
    return _column(inner, rest)


def _value(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = None if row is None else getattr(row, name)
    return row


TopicName: TypeAlias = Annotated[str, Column("topic")]
PartitionNumber: TypeAlias = Annotated[int, Column("parti-\ntion", number)]
Offset: TypeAlias = Annotated[int, Column("offset", number)]


def _client(client: ClientIdentity) -> str:
    return shown(str(client))


ClientOrNone: TypeAlias = Annotated[ClientIdentity | None, Column("client", _client)]
"""The client of a producer; None where nobody knows it."""
