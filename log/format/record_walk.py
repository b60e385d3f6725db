"""Walks over the records of a batch: the check of every record that a client sends, and the places of the
stored records, from which compaction takes those that stay.

A walk only says whether all is well. Where it is not, `batch_validation` decodes the records one by one,
finds out what is wrong, and words the error. So the walks stay small, and their speed counts: they run for
every record, compiled (`record_walk.pxd` has the types) or interpreted, from the same text.

The layout of a record is in `records.py`. Source: Kafka's `DefaultRecord.readFrom`, `LogValidator`.
"""

from __future__ import annotations

from typing import NamedTuple

_new_tuple = tuple.__new__


class PlainRecord(NamedTuple):
    """A record inside the plain bytes of its batch. `offset` is absolute, `timestamp_delta` as stored."""

    offset: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    start: int
    """The position of the record's length, its first bytes."""
    rest: int
    """The position after the record's timestamp delta."""
    end: int


def largest_timestamp(  # noqa: C901, PLR0912 - a call for each field would double the time when interpreted
    records: memoryview,
    position: int,
    size: int,
    record_count: int,
    max_headers: int,
    headers_per_record: int,
    base_timestamp: int,
    now_ms: int,
    before_ms: int,
    after_ms: int,
    needs_keys: bool,
) -> int | None:
    """Return the largest timestamp of the records from `position` to `size`; None if one is wrong or rare.

    All is well when exactly `record_count` records fill these bytes, their offset deltas are 0, 1, 2, ...,
    every field ends within its record, and the last field ends with it; when no timestamp is more than
    `before_ms` before `now_ms` or `after_ms` after it; and when each has a key where `needs_keys` says so.
    Rare are a number of more than 56 bits, a base timestamp of more than 62 bits, and more headers than
    `max_headers` and `headers_per_record` for each earlier record.
    """
    plain = memoryview(records)
    if not 0 <= position <= size <= len(records) or not -(1 << 61) < base_timestamp < 1 << 61:
        return None
    smallest = largest = 0
    headers = 0
    for number in range(record_count):
        found = _varint(plain, position, size)
        position += found & 15
        end = position + (found >> 4)
        if found <= 0 or end > size or end <= position:
            return None
        found = _varlong(plain, position + 1, end)
        position += 1 + (found & 15)
        if not found:
            return None
        delta = found >> 4
        if number == 0:
            smallest = largest = delta
        elif delta > largest:
            largest = delta
        elif delta < smallest:
            smallest = delta
        found = _varint(plain, position, end)
        position += found & 15
        if not found or found >> 4 != number:
            return None
        found = _varint(plain, position, end)
        position += found & 15
        if found < 0:
            if needs_keys:
                return None
        else:
            position += found >> 4
        if not found or position > end:
            return None
        found = _varint(plain, position, end)
        position += found & 15
        if found > 0:
            position += found >> 4
        if not found or position > end:
            return None
        found = _varint(plain, position, end)
        position += found & 15
        count = found >> 4
        if found <= 0 or count > end - position:
            return None
        if count:
            headers += count
            if headers > max_headers + headers_per_record * number:
                return None
            position = _end_of_headers(plain, position, end, count)
        if position != end:
            return None
    largest += base_timestamp
    if position != size or largest - now_ms > after_ms or now_ms - (base_timestamp + smallest) > before_ms:
        return None
    return largest


def sound_records(
    plain: bytes, position: int, count: int, previous: int, base_offset: int, last_offset_delta: int
) -> list[PlainRecord]:
    """Return the next `count` records of `plain` from `position` on, without those from the first on that is
    wrong or rare. Rare are numbers of more than 56 bits, and of more than 32 where an int32 belongs.

    Offset deltas must ascend from the one after `previous` to `last_offset_delta`. Headers are not read.
    """
    view = memoryview(plain)
    size = len(plain)
    found_records: list[PlainRecord] = []
    for _ in range(count):
        start = position
        found = _varint(view, position, size)
        position += found & 15
        end = position + (found >> 4)
        if found <= 0 or end > size or end <= position:
            break
        found = _varlong(view, position + 1, end)
        timestamp_delta = found >> 4
        rest = position + 1 + (found & 15)
        if not found:
            break
        found = _varint(view, rest, end)
        position = rest + (found & 15)
        delta = found >> 4
        if not found or not previous < delta <= last_offset_delta:
            break
        found = _varint(view, position, end)
        position += found & 15
        key = None
        if not found or found >> 4 > end - position:
            break
        if found > 0:
            key = plain[position : position + (found >> 4)]
            position += found >> 4
        found = _varint(view, position, end)
        position += found & 15
        if not found or position >= end or found >> 4 >= end - position:
            break
        # The NamedTuple's own constructor takes three times as long.
        record = (base_offset + delta, timestamp_delta, key, found > 0, start, rest, end)
        found_records.append(_new_tuple(PlainRecord, record))
        previous = delta
        position = end
    return found_records


def _end_of_headers(plain: memoryview, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers; -1 if one has no name or does not end within its record."""
    for _ in range(count):
        found = _varint(plain, position, end)
        position += (found & 15) + (found >> 4)
        if found <= 0 or position > end:
            return -1
        found = _varint(plain, position, end)
        position += found & 15
        if found > 0:
            position += found >> 4
        if not found or position > end:
            return -1
    return position


def _varint(plain: memoryview, position: int, end: int) -> int:
    """Return a zigzag varint of an int32 and its size in bytes, as `value * 16 + size`; 0 if it is cut or
    too long, or has bits above the 32nd.
    """
    if position < end and plain[position] < 0x80:
        byte = plain[position]
        return ((byte >> 1) ^ -(byte & 1)) * 16 + 1
    found = _varlong(plain, position, end)
    if found & 15 > 5 or not -0x7FFFFFFF <= found >> 4 <= 0x7FFFFFFF:
        return 0
    return found


def _varlong(plain: memoryview, position: int, end: int) -> int:
    """Return a zigzag varint and its size, as `value * 16 + size`; 0 if it is cut or has over 56 bits."""
    if position < end and plain[position] < 0x80:
        byte = plain[position]
        return ((byte >> 1) ^ -(byte & 1)) * 16 + 1
    if position + 1 < end and plain[position + 1] < 0x80:
        result = plain[position] & 0x7F | plain[position + 1] << 7
        return ((result >> 1) ^ -(result & 1)) * 16 + 2
    result = 0
    shift = 0
    index = position
    while index < end and shift <= 49:
        byte = plain[index]
        index += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((result >> 1) ^ -(result & 1)) * 16 + index - position
        shift += 7
    return 0
