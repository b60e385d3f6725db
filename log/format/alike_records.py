"""Reads records of the same layout: equal sizes of all fields, and equal headers but for the digits of one value.

Mostly one program wrote all records of a batch in one loop. So a regular expression made from one record finds the next records
several times faster than decoding their fields would. The expression holds every length in the record, so a matching record has
exactly one reading.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT: Final = 256
"""Compiled patterns kept; the least recently used is dropped. Each width of offset delta, sequence id or value needs its own pattern."""
_VARINT: Final = b"[\x80-\xff]{%d}[\x00-\x7f]"


class RecordLayout(NamedTuple):
    """The layout of a record from its length to its end.

    Two records with the same layout differ only in timestamp delta, offset delta, the bytes of key and value, and the digits.
    """

    size: bytes
    """The varint of the record's length."""
    timestamp_delta_bytes: int
    offset_delta_bytes: int
    key_and_value: tuple[tuple[bytes, int], ...]
    """The length as a varint and the number of bytes, for the key and for the value."""
    before: bytes
    """The headers before the digits."""
    digits: int
    after: bytes

    @property
    def size_bytes(self) -> int:
        """The size of the whole record."""
        content = sum(len(size) + count for size, count in self.key_and_value)
        deltas = self.timestamp_delta_bytes + self.offset_delta_bytes
        return len(self.size) + 1 + deltas + content + len(self.before) + self.digits + len(self.after)


def read_alike(
    layout: RecordLayout, data: bytes, position: int, limit: int
) -> tuple[list[bytes], bytes, int]:
    """Read at most `limit` records from `position` on, until a record has another layout.

    Returns (the digits of each record, the offset delta of the last record read, the position after that record).
    The offset delta is the varint as stored, or empty if the first record has another layout.
    """
    texts: list[bytes] = []
    append = texts.append
    match = _match_of(layout)
    size_bytes = layout.size_bytes
    offset_delta = b""
    found = None
    for start in range(position, position + limit * size_bytes, size_bytes):
        following = match(data, start)
        if following is None:
            break
        found = following
        append(found[2])
    if found is not None:
        offset_delta = found[1]
    return texts, offset_delta, position + len(texts) * size_bytes


@lru_cache(maxsize=_KEPT)
def _match_of(layout: RecordLayout) -> Callable[[bytes, int], re.Match[bytes] | None]:
    parts = [re.escape(layout.size), b".", _VARINT % (layout.timestamp_delta_bytes - 1)]
    parts.append(b"(" + _VARINT % (layout.offset_delta_bytes - 1) + b")")
    for size, count in layout.key_and_value:
        parts.append(re.escape(size) + b".{%d}" % count)
    parts += [re.escape(layout.before), b"([0-9]{%d})" % layout.digits, re.escape(layout.after)]
    return re.compile(b"".join(parts), re.DOTALL).match
