"""Decodes when the records of a batch are due, from the record header that the topic's settings name.

The header's value is the time in ms since 1970 as decimal text. Without the header, or with any other value,
a record is due at once. Where a record has the header more than once, the last one counts, as in Kafka's
`Headers.lastHeader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seqgate.log.errors import InvalidRecord
from seqgate.log.format import compression
from seqgate.log.format.record_batch import HEADER_BYTES
from seqgate.log.format.records import (
    check_header_count,
    read_varint,
    read_varlong,
)

if TYPE_CHECKING:
    from seqgate.log.format.record_batch import BatchHeader


_MAX_DIGITS: Final = 18
"""Digits of a due time; longer text counts as no due time. 18 digits fit an int64 and reach the year 31
million.
"""
_ATTRIBUTES_BYTES: Final = 1


def parse_due_ms(value: bytes | None) -> int | None:
    """Return the due time in a header's value, in ms since 1970; None when the value holds none."""
    if value is None or not 0 < len(value) <= _MAX_DIGITS or not value.isdigit():
        return None
    return int(value)


def due_values(
    batch: BatchHeader, view: memoryview, name: bytes, limit_bytes: int
) -> list[tuple[int, bytes | None]]:
    """Return (offset_delta, value of the header) of each record of the batch that has the header `name`.

    Records without the header cost next to nothing. Raises InvalidRecord for damage,
    UnsupportedCompressionType.
    """
    plain = compression.decompress(batch.compression, view[HEADER_BYTES : batch.size_bytes], limit_bytes)
    data = bytes(plain)
    found: list[tuple[int, bytes | None]] = []
    hit = data.find(name)
    position = 0
    last_delta = -1
    headers = 0
    for number in range(batch.record_count):
        if hit < 0:
            break
        size, start = read_varint(plain, position)
        position = start + size
        if size <= 0 or position > len(data):
            raise InvalidRecord(f"a record of {size} bytes does not fit the batch")
        if hit >= position:
            continue
        offset_delta, has_header, value, count = _read(data, plain, start, position, name, number, headers)
        headers += count
        if has_header:
            if not last_delta < offset_delta <= batch.last_offset_delta:
                raise InvalidRecord(
                    f"a record has offset delta {offset_delta}; it must be above {last_delta} and at most "
                    f"{batch.last_offset_delta}"
                )
            last_delta = offset_delta
            found.append((offset_delta, value))
        hit = data.find(name, position)
    return found


def _read(
    data: bytes,
    plain: memoryview,
    start: int,
    end: int,
    name: bytes,
    records_before: int,
    headers_before: int,
) -> tuple[int, bool, bytes | None, int]:
    """Return (offset_delta, whether the header is there, the header's value, count of all headers) of one
    record.
    """
    _, position = read_varlong(plain, start + _ATTRIBUTES_BYTES)
    offset_delta, position = read_varint(plain, position)
    size, position = read_varint(plain, position)  # skip the key next
    size, position = read_varint(plain, position + max(0, size))
    count, position = read_varint(plain, position + max(0, size))
    check_header_count(count, end - start, records_before, headers_before)
    value = None
    has_header = False
    for _ in range(count):
        size, name_start = read_varint(plain, position)
        size_of_value, value_start = read_varint(plain, name_start + max(0, size))
        position = value_start + max(0, size_of_value)
        if size < 0 or position > end:
            raise InvalidRecord("a header has no name, or is longer than the rest of its record")
        if size == len(name) and data.startswith(name, name_start):
            has_header = True
            value = None if size_of_value < 0 else data[value_start:position]
    if position > end:
        raise InvalidRecord("the fields of a record are longer than the record")
    return offset_delta, has_header, value, count
