"""The answers of pages, a part of a long list, and the addresses that lead on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from seqgate.gateway.admin.tables import duration
from seqgate.gateway.sizes import size_in_words

# The answers that the functions of a page return. `web` turns an answer into HTTP.


@dataclass(frozen=True, slots=True)
class View:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Data:
    """A value that is sent as JSON to an island."""

    value: Any


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page to go to after a change. The page shows `notice`, a sentence, once."""

    path: str
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question before a change.

    The page shows `title`, `sentences` and the rows of `changes` (what, before, after). The answer comes as
    the same request with `visit.is_confirmed`. `typed`: a text that the person must type first. `is_danger`:
    the change can't be undone.
    """

    title: str
    action: str
    back: str
    sentences: Sequence[str] = ()
    changes: Sequence[tuple[str, str, str]] = ()
    typed: str | None = None
    is_danger: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to save."""

    chunks: Iterator[bytes]
    file_name: str
    content_type: str = "application/octet-stream"


INSTEAD: Final = "delete"
"""The word that stands for a name that can't be typed, such as one with a line break."""


def typed_for(name: str, instead: str = INSTEAD) -> str:
    """Return the name itself, or another text where a keyboard can't type the name."""
    return name if name.isprintable() and name == name.strip() and name else instead


PageAnswer = View | Data | Redirect | Confirmation | Download


# Pages of a long list, and its order. Pure.

ROWS: Final = 50

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Paging:
    """The place of a page in a list; `first` and `last` count rows from 1, both 0 for an empty list."""

    number: int
    pages: int
    first: int
    last: int
    total: int


def page_of(rows: Sequence[R], number: int, size: int = ROWS) -> tuple[Sequence[R], Paging]:
    """Return the rows of a page, counted from 1; a number past the end gives the last page."""
    pages = max(1, -(-len(rows) // size))
    number = min(max(number, 1), pages)
    start = (number - 1) * size
    shown = rows[start : start + size]
    return shown, Paging(number, pages, start + 1 if shown else 0, start + len(shown), len(rows))


def ordered(rows: Sequence[R], sort: str, keys: Mapping[str, Callable[[R], Any]], default: str) -> list[R]:
    """Return the rows by one of `keys`; a minus before its name reverses. Unknown names mean `default`."""
    name = sort.removeprefix("-")
    if name not in keys:
        name, sort = default, default
    key = keys[name]
    return sorted(rows, key=lambda row: _comparable(key(row)), reverse=sort.startswith("-"))


def _comparable(value: Any) -> tuple[bool, Any]:
    """Return a key that puts unknown values before all others."""
    return (value is not None, value if value is not None else 0)


# Values of settings in units for people. Pure.

_MS_OF_UNIT: Final = {".ms": 1, ".seconds": 1_000, ".minutes": 60_000, ".hours": 3_600_000}
_LARGEST: Final = (1 << 63) - 1
_KIB: Final = 1 << 10


def in_units(name: str, value: str | None) -> str:
    """Return a setting's value as people say it, such as `7 d` or `1 GiB`; empty where the value says it."""
    if value is None or not value.isdecimal():
        return "no limit" if value == "-1" and "retention" in name else ""
    number, unit = int(value), f".{name.rpartition('.')[2]}"
    if unit == ".bytes":
        if number in {_LARGEST, (1 << 31) - 1}:
            return "no limit"
        return size_in_words(number) if number >= _KIB else ""
    if unit not in _MS_OF_UNIT or not number:
        return ""
    return "no limit" if number == _LARGEST else duration(number * _MS_OF_UNIT[unit]).replace(".0 ", " ")


def with_units(name: str, value: str) -> str:
    """Return a setting's value, and in brackets how people say it."""
    said = in_units(name, value)
    return f"{value} ({said})" if said else value or "empty"


# The addresses of pages.


def address(path: str, **query: str | int | Sequence[str] | None) -> str:
    """Return an address with a query, without None and what is empty; a list repeats its name."""
    given = {name: value for name, value in query.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def topic_path(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def topic_settings_path(topic: str) -> str:
    return f"{topic_path(topic)}/settings"


def records_path(topic: str) -> str:
    return f"/records/{quote(topic, safe='')}"
