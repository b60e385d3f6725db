"""Joins the answers of several workers, each of which knows a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

_SUMMED: Final = ("counters", "waiting_requests", "waiting_bytes")
_UNITED: Final = ("offline_partitions",)
A = TypeVar("A")


def joined(found: Sequence[list[A]]) -> list[A]:
    """Return the pages of all workers as those of one gateway: the last page has the facts that are about no row, of all workers."""
    pages = [page for of_worker in found for page in of_worker]
    last = [of_worker[-1] for of_worker in found]
    facts: dict[str, Any] = {}
    for name in _SUMMED:
        if hasattr(last[0], name):
            facts[name] = summed([getattr(page, name) for page in last])
    for name in _UNITED:
        if hasattr(last[0], name):
            facts[name] = sorted({value for page in last for value in getattr(page, name)})
    if facts:
        pages[-1] = cast("A", msgspec.structs.replace(cast("Any", pages[-1]), **facts))
    return pages


def summed(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or of records of numbers, field by field; None if one is missing."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], int | float):
        return sum(values)
    names = [field.name for field in msgspec.structs.fields(values[0])]
    return msgspec.structs.replace(
        values[0], **{name: summed([getattr(value, name) for value in values]) for name in names}
    )
