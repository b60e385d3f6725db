"""The walk over records says of any bytes what the exact decoding says, compiled and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log.errors import InvalidRecord, LogError
from seqgate.log.format import batch_validation
from seqgate.log.format.batch_validation import stored_records
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, parse_header
from seqgate.log.format.records import HEADERS_PER_RECORD, MAX_HEADERS, NewRecord, build_batch, iterate_plain
from tests.fuzzing.changes import changed
from tests.support.batches import varint
from tests.support.core_modules import both_ways

Walk = Callable[[memoryview, int, int, int, int, int, int, int, int, int, bool], int | None]
FOREVER = 2**63 - 1
NOW_MS = 1_700_000_000_000
_WAYS = both_ways("seqgate.log.format.record_walk")
WALKS: list[Walk] = [module.largest_timestamp for module in _WAYS]
STORED_RECORDS = [module.sound_records for module in _WAYS]


class Limits(NamedTuple):
    """What the header and the topic demand of the records."""

    record_count: int
    max_headers: int = MAX_HEADERS
    headers_per_record: int = HEADERS_PER_RECORD
    base_timestamp: int = 0
    now_ms: int = 0
    before_ms: int = FOREVER
    after_ms: int = FOREVER
    needs_keys: bool = False


def exactly(plain: bytes, limits: Limits) -> int | None:
    """Return what the records' exact decoding finds in the place of the walk."""
    header = BatchHeader()
    header.base_offset = header.attributes = 0
    header.base_timestamp, header.record_count = limits.base_timestamp, limits.record_count
    timestamps = []
    try:
        for number, record in enumerate(iterate_plain(header, memoryview(plain))):
            is_early = record.timestamp < limits.now_ms - limits.before_ms
            is_late = record.timestamp > limits.now_ms + limits.after_ms
            if record.offset != number or is_early or is_late or (limits.needs_keys and record.key is None):
                return None
            timestamps.append(record.timestamp)
    except LogError:
        return None
    return max(timestamps)


def walked(plain: bytes, limits: Limits) -> set[int | None]:
    """Return what the walks say of these bytes, alone and amid others."""
    amid = memoryview(b"\x02" * 70 + plain + b"\x02" * 9)
    return {
        answer
        for walk in WALKS
        for answer in (
            walk(memoryview(plain), 0, len(plain), *limits),
            walk(amid, 70, 70 + len(plain), *limits),
        )
    }


record = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=80) | st.just(b"v" * 9000),
    key=st.none() | st.binary(max_size=70),
    timestamp=st.integers(0, 1 << 54) | st.integers(0, 300),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
)


limits_of_times = st.tuples(
    st.integers(-300, 300) | st.integers(-(2**61) + 1, 2**61 - 1),
    st.integers(-300, 300) | st.just(NOW_MS),
    st.sampled_from((0, 100, NOW_MS, FOREVER)),
    st.sampled_from((0, 100, NOW_MS, FOREVER)),
    st.booleans(),
)


@settings(max_examples=400)
@given(
    st.lists(record, min_size=1, max_size=70),
    st.randoms(use_true_random=False),
    st.integers(0, 3),
    limits_of_times | st.just((0, 0, FOREVER, FOREVER, False)),
)
def test_it_says_of_any_bytes_what_the_exact_decoding_says(
    records: list[NewRecord], chance: Random, changes: int, times: tuple[int, int, int, int, bool]
) -> None:
    batch = build_batch(records)
    plain, count = batch[HEADER_BYTES:], parse_header(batch).record_count
    for _ in range(changes):
        plain = changed(plain, chance)
    limits = Limits(count, MAX_HEADERS, HEADERS_PER_RECORD, *times)
    expected = exactly(plain, limits)
    # A change may make a number of over 56 bits, which is left to the exact decoding.
    assert walked(plain, limits) in ({expected}, {None} if changes else {expected})


def stored(plain: bytes, header: BatchHeader) -> list[tuple[object, ...]] | str:
    """Return the records as compaction reads them, or the error with which it stops."""
    try:
        return list(batch_validation.stored_records(header, plain))
    except InvalidRecord as error:
        return str(error)


@settings(max_examples=400)
@given(
    st.lists(record, min_size=1, max_size=600),
    st.randoms(use_true_random=False),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_stored_records_are_those_of_the_exact_decoding(
    records: list[NewRecord], chance: Random, changes: int, lost: int
) -> None:
    """Records may be missing, because compaction has removed them."""
    batch = build_batch(records)
    header, plain = parse_header(batch), batch[HEADER_BYTES:]
    if lost:
        kept = [found for found in stored_records(header, plain) if chance.randrange(3) >= lost]
        plain = b"".join(plain[found.start : found.end] for found in kept)
        header.record_count = len(kept)
    for _ in range(changes):
        plain = changed(plain, chance)
    found = []
    for sound in (lambda *_: [], *STORED_RECORDS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_validation, "sound_records", sound)
            found.append(stored(plain, header))
    assert all(answer == found[0] for answer in found[1:])
    if not changes:
        assert len(found[0]) == header.record_count
        assert all(len(sound(plain, 0, 9**9, -1, 0, 9**9)) == header.record_count for sound in STORED_RECORDS)


def test_it_finds_good_records_good() -> None:
    records = [NewRecord(b"v", key=b"k", timestamp=NOW_MS + number) for number in (5, 0, 9, 3)]
    plain = build_batch(records)[HEADER_BYTES:]
    limits = Limits(4, base_timestamp=NOW_MS + 5, now_ms=NOW_MS + 4, before_ms=4, after_ms=5, needs_keys=True)
    assert walked(plain, limits) == {NOW_MS + 9}
    for narrower in (limits._replace(before_ms=3), limits._replace(after_ms=4)):
        assert walked(plain, narrower) == {None}
    assert walked(build_batch([NewRecord(b"v")])[HEADER_BYTES:], Limits(1, needs_keys=True)) == {None}


def test_a_base_timestamp_near_the_ends_of_int64_is_left_to_the_exact_decoding() -> None:
    """A sum with it wraps around in Java."""
    plain = build_batch([NewRecord(b"v", timestamp=0)])[HEADER_BYTES:]
    for base_timestamp in (-(2**63), -(2**61), 2**61, FOREVER):
        assert walked(plain, Limits(1, base_timestamp=base_timestamp)) == {None}
    for base_timestamp in (1 - 2**61, 2**61 - 1):
        assert walked(plain, Limits(1, base_timestamp=base_timestamp)) == {base_timestamp}


def test_it_reads_nothing_outside_of_the_bytes() -> None:
    plain = build_batch([NewRecord(b"v", timestamp=0)])[HEADER_BYTES:]
    size = len(plain)
    for walk in WALKS:
        assert walk(memoryview(plain), 0, size, *Limits(1)) == 0
        for start, end in ((0, size + 1), (-1, size), (size + 1, size + 1), (1, 0)):
            assert walk(memoryview(plain), start, end, *Limits(1)) is None


def test_a_number_that_java_reads_otherwise_is_left_to_the_exact_decoding() -> None:
    """Java drops the bits of a length above the 32nd, and refuses one of more than five bytes."""
    good = b"\x00\x00\x00\x01\x01\x00"
    for length in (b"\x8c\x80\x80\x80\x10", b"\x8c\x80\x80\x80\x80\x00", b"\x8c" + b"\x80" * 9 + b"\x00"):
        assert walked(length + good, Limits(1)) == {None}
    assert walked(b"\x8c\x00" + good, Limits(1)) == {0}


def test_more_headers_than_are_decoded_are_not_walked_over() -> None:
    header = varint(1) + b"h" + varint(-1)
    body = b"\x00\x00\x00\x01\x01" + varint(4) + header * 4
    plain = varint(len(body)) + body
    assert walked(plain, Limits(1, 4, 0)) == {0}
    assert walked(plain, Limits(1, 3, 0)) == {None}
