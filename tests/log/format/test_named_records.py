"""The quick search in record headers finds the same as a complete decoding, and refuses malformed records."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqgate.log import InvalidRecord
from seqgate.log.format import records as records_module
from seqgate.log.format.named_records import NameHeaders, named_records
from seqgate.log.format.record_batch import CRC_COVERS_FROM, HEADER_BYTES, parse_header
from seqgate.log.format.records import NewRecord, Record, build_batch, iterate_records
from seqgate.seq_validator.names import MAX_SEQUENCE_ID, NO_NAME_EPOCH, NamedRecord

HEADERS = NameHeaders("dédup.name".encode(), b"seq", b"epoch", 20)
LIMIT_BYTES = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = ("dédup.name", "seq", "epoch", "trace", "", "seq ")

names = st.sampled_from([b"app", "λ".encode(), b"\xff\x00", b"n" * 20, b"seq"])
numbers = st.one_of(
    st.integers(0, 300), st.integers(0, MAX_SEQUENCE_ID), st.sampled_from([MAX_SEQUENCE_ID])
).map(lambda number: b"%d" % number)
wrong = st.sampled_from(
    [None, b"", b"-1", b"+1", b" 1", b"1_0", b"\xd9\xa3", b"%d" % 2**63, b"0" * 20, b"n" * 21]
)
values = st.one_of(names, numbers, numbers, wrong)
others = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=3)


@st.composite
def good_headers(draw: st.DrawFn) -> list[tuple[str, bytes | None]]:
    """Draw the headers of a named record in any order, among other headers, some repeated."""
    last: list[tuple[str, bytes | None]] = [("dédup.name", draw(names)), ("seq", draw(numbers))]
    if draw(st.booleans()):
        last.append(("epoch", draw(numbers)))
    return [
        *draw(others),
        *draw(st.permutations(last)),
        *draw(st.lists(st.just(("trace", b"1")), max_size=1)),
    ]


@st.composite
def runs(draw: st.DrawFn) -> list[NewRecord]:
    """Draw records that differ only in their sequence ids, as one program writes them."""
    headers = draw(good_headers())
    first, step = draw(st.integers(0, 200)), draw(st.integers(0, 3))
    key, value = draw(st.none() | st.binary(max_size=3)), draw(st.none() | st.binary(max_size=70))
    time_step = draw(st.sampled_from([0, 1, 40, 9_000]))
    found = []
    for number in range(draw(st.integers(1, 24))):
        text = b"%d" % (first + step * number)
        found.append(
            NewRecord(
                value,
                key,
                1_000 + number * time_step,
                [(name, text if name == "seq" else content) for name, content in headers],
            )
        )
    return found


@st.composite
def single(draw: st.DrawFn) -> list[NewRecord]:
    """Draw one record with any headers."""
    headers = draw(st.one_of(others, good_headers()))
    return [NewRecord(draw(st.none() | st.binary(max_size=300)), None, draw(st.integers(0, 2**41)), headers)]


records = st.lists(st.one_of(runs(), single()), min_size=1, max_size=5).map(
    lambda parts: [record for part in parts for record in part]
)


def wanted(batch: bytes, *, is_strict: bool) -> list[NamedRecord]:
    """Return the names that a complete decoding finds. Raises InvalidRecord."""
    header = parse_header(batch)
    found = []
    last_delta = -1
    for record in iterate_records(batch):
        delta = record.offset - header.base_offset
        if not last_delta < delta <= header.last_offset_delta:
            raise InvalidRecord("offsets")
        last_delta = delta
        named = name_of(record, delta)
        if named is None:
            continue
        if named is not NotImplemented:
            found.append(named)
        elif is_strict:
            raise InvalidRecord("headers")
    return found


def name_of(record: Record, delta: int) -> NamedRecord | None:
    """Return a record's name; NotImplemented if the record has only some of its name headers."""
    said = dict(record.headers)
    if "dédup.name" not in said and "seq" not in said:
        return None
    name, sequence, epoch = said.get("dédup.name"), said.get("seq"), said.get("epoch", b"0")
    numbers_told = [told for told in (sequence, epoch) if told is not None and is_number(told)]
    if name is None or not 1 <= len(name) <= HEADERS.max_name_bytes or len(numbers_told) < 2:
        return NotImplemented
    return NamedRecord(
        delta, name, int(sequence or b""), int(epoch or b"") if "epoch" in said else NO_NAME_EPOCH
    )


def is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 19 and int(text) <= MAX_SEQUENCE_ID


def scanned(batch: bytes, *, is_strict: bool) -> list[NamedRecord]:
    return named_records(parse_header(batch), memoryview(batch), HEADERS, LIMIT_BYTES, is_strict=is_strict)


@settings(max_examples=150, deadline=None)
@given(records, st.sampled_from(CODECS), st.booleans())
def test_it_is_as_a_whole_reading_has_it(listed: list[NewRecord], codec: str, is_strict: bool) -> None:
    batch = build_batch(listed, codec=codec)
    try:
        expected = wanted(batch, is_strict=is_strict)
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            scanned(batch, is_strict=is_strict)
        return
    assert scanned(batch, is_strict=is_strict) == expected


ALIKE = [
    NewRecord(b"v", headers=[("dédup.name", b"app"), ("seq", b"%d" % number)]) for number in range(10, 30)
]


@settings(max_examples=250, deadline=None)
@example(ALIKE, [(0, 0, 1)], 0)
@given(
    st.one_of(records, st.just(ALIKE)),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 2), st.integers(0, 255)), max_size=3),
    st.integers(0, 60),
)
def test_damage_is_refused_or_read_as_a_whole_reading_does(
    listed: list[NewRecord], changes: list[tuple[int, int, int]], cut: int
) -> None:
    batch = build_batch(listed)
    body = bytearray(batch[HEADER_BYTES:])
    for position, kind, byte in changes:
        at = position % (len(body) + 1)
        if kind == 0:
            body[at : at + 1] = bytes([byte])
        elif kind == 1:
            body.insert(at, byte)
        else:
            del body[at : at + 1]
    if cut > 40:
        del body[-(cut - 40) :]
    damaged = batch[:HEADER_BYTES] + bytes(body)
    damaged = damaged[:8] + (len(damaged) - 12).to_bytes(4, "big") + damaged[12:]
    assert CRC_COVERS_FROM > 12
    try:
        found: list[NamedRecord] | None = scanned(damaged, is_strict=True)
    except InvalidRecord:
        found = None
    try:
        expected: list[NamedRecord] | None = wanted(damaged, is_strict=True)
    except InvalidRecord:
        return
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 50))
def test_any_bytes(data: bytes, count: int) -> None:
    batch = bytearray(build_batch(ALIKE[:1])[:HEADER_BYTES] + data + b"seq")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    with contextlib.suppress(InvalidRecord):
        scanned(bytes(batch), is_strict=True)


def test_any_one_byte_of_records_that_lie_alike() -> None:
    batch = build_batch(ALIKE)
    for position in range(HEADER_BYTES, len(batch)):
        for changed in {(batch[position] + step) % 256 for step in (1, 2, 4, 128, 254)}:
            damaged = batch[:position] + bytes([changed]) + batch[position + 1 :]
            try:
                expected = wanted(damaged, is_strict=True)
            except InvalidRecord:
                continue
            assert scanned(damaged, is_strict=True) == expected


def test_sequence_ids_that_grow_beyond_the_highest() -> None:
    listed = [
        NewRecord(b"v", headers=[("dédup.name", b"app"), ("seq", b"%d" % (MAX_SEQUENCE_ID - 15 + number))])
        for number in range(20)
    ]
    batch = build_batch(listed)
    assert scanned(batch, is_strict=False) == wanted(batch, is_strict=False)
    assert len(scanned(batch, is_strict=False)) == 16


def test_more_headers_than_may_be_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few compressed bytes can hold millions of headers. A run of equal layouts is matched without this
    limit.
    """
    monkeypatch.setattr(records_module, "MAX_HEADERS", 10)
    assert len(scanned(build_batch(ALIKE), is_strict=True)) == len(ALIKE)
    nine, ten, eleven = (
        NewRecord(b"v", headers=[("trace", b"")] * (count - 2) + list(ALIKE[0].headers))
        for count in (9, 10, 11)
    )
    assert len(scanned(build_batch([ten, nine]), is_strict=True)) == 2
    with pytest.raises(InvalidRecord, match="first 2 records of the batch have 21 headers"):
        scanned(build_batch([ten, eleven]), is_strict=True)
