"""Decodes the producer names, sequence ids and name epochs that the records of a batch carry in headers.

The topic's settings name the three headers. Producer name: 1 to `max_name_bytes` bytes. Sequence id and name
epoch: decimal text, 0 to 2**63 - 1. Where a record has a header more than once, the last one counts, as in
Kafka's `Headers.lastHeader`.

`read_alike` reads records of the same layout: equal sizes of fields, and headers equal but for one value's
digits. Mostly one program wrote all records of a batch in one loop. So a regular expression made from one
record finds the next records several times faster than decoding their fields would. The expression holds
every length in the record, so a matching record has exactly one reading.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.errors import InvalidRecord
from seqgate.log.format import compression
from seqgate.log.format.record_batch import HEADER_BYTES
from seqgate.log.format.records import check_header_count, read_varint
from seqgate.seq_validator.names import MAX_SEQUENCE_ID, NO_NAME_EPOCH, NamedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from seqgate.log.format.record_batch import BatchHeader


_MAX_DIGITS: Final = 19
_DECIMAL: Final = f"decimal text of at most {_MAX_DIGITS} digits, 0 to {MAX_SEQUENCE_ID}"
_KEY_AND_VALUE: Final = (0, 1)
_ALIKE: Final = 8
"""After this many records with the same layout, one regular expression matches the following records."""
_LAYOUTS_OF_A_BATCH: Final = 8
"""Patterns compiled for one batch, so that not every record costs one; others are decoded one by one."""
_REMEMBERED_HEADERS_BYTES: Final = 1024
"""The largest size of one record's headers that are kept for the next batch or compiled into a pattern;
larger headers are decoded each time. Keeping and compiling cost memory and time per byte.
"""
_new_tuple = tuple.__new__


class _Tail(NamedTuple):
    """The headers of a record. The next record's headers mostly differ only in the sequence id."""

    before: bytes
    """The bytes from the count of headers up to the value of the sequence header."""
    after: bytes
    """The bytes after the value of the sequence header, up to the end of the record."""
    size_bytes: int
    name: bytes
    epoch: int


class NameHeaders:
    """The names of the record headers that carry a topic's producer names. `tail` holds the last decoded
    record's headers, if they are small: the next batch may repeat them.
    """

    __slots__ = ("epoch", "max_name_bytes", "name", "sequence", "tail")

    def __init__(self, name: bytes, sequence: bytes, epoch: bytes, max_name_bytes: int) -> None:
        """Take the headers' names, and the length limit of a producer name."""
        self.name = name
        self.sequence = sequence
        self.epoch = epoch
        self.max_name_bytes = max_name_bytes
        self.tail: _Tail | None = None

    @property
    def names(self) -> tuple[bytes, bytes, bytes]:
        """The names of three headers: producer name, sequence id, name epoch."""
        return self.name, self.sequence, self.epoch


def named_records(
    batch: BatchHeader, view: memoryview, headers: NameHeaders, limit_bytes: int, *, is_strict: bool = True
) -> list[NamedRecord]:
    """Return the records of the batch that have a producer name and a sequence id, in order.

    A batch without such headers costs one search for the headers' names. A record with incomplete or invalid
    headers is refused if `is_strict`, otherwise ignored. Raises InvalidRecord for damage and for a refused
    record, UnsupportedCompressionType.
    """
    plain = compression.decompress(batch.compression, view[HEADER_BYTES : batch.size_bytes], limit_bytes)
    data = bytes(plain)
    if headers.name not in data and headers.sequence not in data:
        return []
    try:
        return _read_all(batch, data, headers, is_strict)
    except IndexError:
        raise InvalidRecord("the batch ends before its last record is complete") from None


def _read_all(  # noqa: C901, PLR0912, PLR0915 - what runs for every record, in one piece
    batch: BatchHeader, data: bytes, headers: NameHeaders, is_strict: bool
) -> list[NamedRecord]:
    found: list[NamedRecord] = []
    tail = headers.tail
    before, after, size_of_tail = (b"", b"", 0) if tail is None else tail[:3]
    end = last_size = alike = 0
    last_delta, highest_delta = -1, batch.last_offset_delta
    left, layouts_left, headers_read = batch.record_count, _LAYOUTS_OF_A_BATCH, 0
    while left:
        left -= 1
        # Varints of one or two bytes, by far the most, are decoded inline: this code runs for every record.
        begin = end
        size, at = data[end], end + 1
        if size & 0x80:
            size, at = _long_varint(data, end)
        else:
            size = (size >> 1) ^ -(size & 1)
        end = at + size
        if size <= 0 or end > len(data):
            raise InvalidRecord(f"a record of {size} bytes does not fit the batch")
        at += 1
        while data[at] >= 0x80:  # the timestamp delta
            at += 1
        at += 1
        offset_delta = data[at]
        if offset_delta & 0x80:
            offset_delta, at = _long_varint(data, at)
        else:
            offset_delta, at = (offset_delta >> 1) ^ -(offset_delta & 1), at + 1
        if not last_delta < offset_delta <= highest_delta:
            raise InvalidRecord(
                f"a record has offset delta {offset_delta}; it must be above {last_delta} and at most "
                f"{highest_delta}"
            )
        last_delta = offset_delta
        for _field in _KEY_AND_VALUE:
            field_size = data[at]
            if field_size & 0x80:
                field_size, at = _long_varint(data, at)
            else:
                field_size, at = (field_size >> 1) ^ -(field_size & 1), at + 1
            if field_size > 0:
                at += field_size
        if (
            tail is None
            or end - at != size_of_tail
            or not data.startswith(before, at)
            or not data.endswith(after, at, end)
        ):
            alike = 0
            count, _ = _varint(data, at)
            check_header_count(count, end - at, batch.record_count - left - 1, headers_read)
            headers_read += count
            tail = _read_tail(data, at, end, headers, is_strict)
            headers.tail = tail if end - at <= _REMEMBERED_HEADERS_BYTES else None
            if tail is None:
                continue
            before, after, size_of_tail = tail.before, tail.after, tail.size_bytes
        digits = data[at + len(before) : end - len(after)]
        if (
            len(digits) > _MAX_DIGITS
            or not digits.isdigit()
            or (sequence_id := int(digits)) > MAX_SEQUENCE_ID
        ):
            if is_strict:
                raise InvalidRecord(
                    f"the header {_as_text(headers.sequence)} of a record is no sequence id: {_DECIMAL}"
                )
            continue
        # The NamedTuple's own constructor takes three times as long.
        found.append(_new_tuple(NamedRecord, (offset_delta, tail.name, sequence_id, tail.epoch)))
        alike = alike + 1 if size == last_size else 0
        last_size = size
        if alike == _ALIKE and layouts_left and size_of_tail <= _REMEMBERED_HEADERS_BYTES:
            layouts_left -= 1
            layout = _layout(data, begin, at, tail, len(digits))
            following, end = _read_following(layout, data, end, left, last_delta, tail)
            found += following
            left -= len(following)
            last_delta += len(following)
            alike = 0
            if last_delta > highest_delta:
                raise InvalidRecord(
                    f"a record has offset delta {last_delta}; the batch ends at {highest_delta}"
                )
    return found


def _layout(data: bytes, begin: int, headers_at: int, tail: _Tail, digits: int) -> RecordLayout:
    """Return the layout of the record at `begin`. The count of its headers is at `headers_at`."""
    _, start = _varint(data, begin)
    after_timestamp = _after_varint(data, start + 1)
    after_offset = _after_varint(data, after_timestamp)
    key_size, key_at = _varint(data, after_offset)
    value_length_at = key_at + max(0, key_size)
    _, value_at = _varint(data, value_length_at)
    return RecordLayout(
        size=data[begin:start],
        timestamp_delta_bytes=after_timestamp - start - 1,
        offset_delta_bytes=after_offset - after_timestamp,
        key_and_value=(
            (data[after_offset:key_at], value_length_at - key_at),
            (data[value_length_at:value_at], headers_at - value_at),
        ),
        before=tail.before,
        digits=digits,
        after=tail.after,
    )


def _after_varint(data: bytes, position: int) -> int:
    while data[position] >= 0x80:
        position += 1
    return position + 1


def _read_following(
    layout: RecordLayout, data: bytes, position: int, limit: int, last_delta: int, tail: _Tail
) -> tuple[list[NamedRecord], int]:
    """Return the following records of the same layout, and the position after them. Returns none where
    offsets have a gap or a sequence id is too large: decode those one by one.
    """
    texts, offset_delta, end = read_alike(layout, data, position, limit)
    if not texts or _varint(offset_delta, 0)[0] != last_delta + len(texts):
        return [], position
    sequence_ids = list(map(int, texts))
    if max(sequence_ids) > MAX_SEQUENCE_ID:
        return [], position
    name, epoch = tail.name, tail.epoch
    following = [
        _new_tuple(NamedRecord, (delta, name, sequence_id, epoch))
        for delta, sequence_id in enumerate(sequence_ids, last_delta + 1)
    ]
    return following, end


def _long_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint of two bytes or more, and the position behind it. Two bytes take the fast path."""
    byte = data[position + 1]
    if byte & 0x80:
        return read_varint(data, position)
    number = data[position] & 0x7F | byte << 7
    return (number >> 1) ^ -(number & 1), position + 2


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte & 0x80:
        return _long_varint(data, position)
    return (byte >> 1) ^ -(byte & 1), position + 1


def _read_tail(data: bytes, start: int, end: int, headers: NameHeaders, is_strict: bool) -> _Tail | None:
    """Return the headers of a record, from their count at `start` to the record's end. None for a record with
    neither name nor sequence id, and, unless `is_strict`, for one with invalid values.
    """
    values = _wanted_values(data, start, end, headers)
    name, sequence, epoch = (values.get(wanted) for wanted in (headers.name, headers.sequence, headers.epoch))
    if name is None and sequence is None:
        return None
    complaint = _complaint(data, headers, name, sequence, epoch)
    if complaint is not None or name is None or sequence is None:
        if is_strict:
            raise InvalidRecord(complaint or "")
        return None
    known_epoch = None if epoch is None else _number(data[slice(*epoch)])
    return _Tail(
        data[start : sequence[0]],
        data[sequence[1] : end],
        end - start,
        data[slice(*name)],
        NO_NAME_EPOCH if known_epoch is None else known_epoch,
    )


def _wanted_values(data: bytes, start: int, end: int, headers: NameHeaders) -> dict[bytes, tuple[int, int]]:
    """Return (start, end) of the values of the three headers, by header name; start equals end for null."""
    wanted = headers.name, headers.sequence, headers.epoch
    found: dict[bytes, tuple[int, int]] = {}
    count, position = _varint(data, start)
    for _ in range(count):
        size, name_start = _varint(data, position)
        if size < 0:
            raise InvalidRecord("a record header has no name")
        size_of_value, value_start = _varint(data, name_start + size)
        position = value_start + max(0, size_of_value)
        if position > end:
            raise InvalidRecord("a header is longer than the rest of its record")
        name = data[name_start : name_start + size]
        if name in wanted:
            found[name] = value_start, position
    if position != end:
        raise InvalidRecord("the headers of a record do not end where the record ends")
    return found


def _complaint(
    data: bytes,
    headers: NameHeaders,
    name: tuple[int, int] | None,
    sequence: tuple[int, int] | None,
    epoch: tuple[int, int] | None,
) -> str | None:
    """Return the error of a record that has a name, a sequence id or both; None when the record is valid."""
    if name is None or sequence is None:
        here, missing = (headers.sequence, headers.name) if name is None else (headers.name, headers.sequence)
        return f"a record has the header {_as_text(here)} without {_as_text(missing)}"
    if not 0 < name[1] - name[0] <= headers.max_name_bytes:
        return (
            f"the header {_as_text(headers.name)} of a record must hold a producer name of 1 to "
            f"{headers.max_name_bytes} bytes, not {name[1] - name[0]}"
        )
    if epoch is not None and _number(data[slice(*epoch)]) is None:
        return f"the header {_as_text(headers.epoch)} of a record is no name epoch: {_DECIMAL}"
    return None


def _number(digits: bytes) -> int | None:
    """Return the number written as decimal text; None for other text, and for a number above an int64."""
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        return None
    number = int(digits)
    return number if number <= MAX_SEQUENCE_ID else None


def _as_text(header: bytes) -> str:
    return header.decode("utf-8", "replace")


_KEPT: Final = 256
"""Compiled patterns kept, the most recently used. Each width of offset delta, id or value needs one."""
_VARINT: Final = b"[\x80-\xff]{%d}[\x00-\x7f]"


class RecordLayout(NamedTuple):
    """The layout of a record from its length to its end. Two records of a layout differ only in the deltas,
    the bytes of key and value, and the digits.
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
        content = sum(len(size) + count for size, count in self.key_and_value)
        deltas = self.timestamp_delta_bytes + self.offset_delta_bytes
        return len(self.size) + 1 + deltas + content + len(self.before) + self.digits + len(self.after)


def read_alike(
    layout: RecordLayout, data: bytes, position: int, limit: int
) -> tuple[list[bytes], bytes, int]:
    """Read at most `limit` records from `position` on, until a record has another layout.

    Returns (the digits of each record, the offset delta of the last record read, the position after that
    record). The offset delta is the varint as stored, or empty if the first record has another layout.
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
