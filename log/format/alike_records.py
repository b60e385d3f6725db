"""Reading records that lie alike: same sizes of all fields, same headers but for the digits of one value.

What is in a batch was mostly written by one program in one loop, so a pattern of one record's bytes finds the next ones several times
quicker than reading their fields does. Every length that a record tells is in the pattern, so what matches can't be
read in another way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT: Final = 256
"""So many patterns are kept: there is one for each width of an offset delta, of a sequence id, of a value."""
_VARINT: Final = b"[\x80-\xff]{%d}[\x00-\x7f]"


class RecordLayout(NamedTuple):
    """How a record lies, from its length to its end; two records with the same one differ in what it does not tell."""

    size: bytes
    """The varint of the record's length."""
    timestamp_delta_bytes: int
    offset_delta_bytes: int
    key_and_value: tuple[tuple[bytes, int], ...]
    """The varint of the length of each, and how many bytes follow."""
    before: bytes
    """The headers up to the digits."""
    digits: int
    after: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        content = sum(len(size) + count for size, count in self.key_and_value)
        deltas = self.timestamp_delta_bytes + self.offset_delta_bytes
        return len(self.size) + 1 + deltas + content + len(self.before) + self.digits + len(self.after)


def read_alike(
    layout: RecordLayout, data: bytes, position: int, limit: int
) -> tuple[list[bytes], bytes, int]:
    """(digits of each, offset delta of the last, position behind it) of the records of a layout, from one position on.

    At most `limit`. The offset delta is its varint, empty where there is no such record.
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
