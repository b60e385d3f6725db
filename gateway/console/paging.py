"""Pages of a long list, and its order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

ROWS: Final = 50
"""Rows of a page."""

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
