"""The walk over records says of any bytes what the exact decoding says, compiled and interpreted."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from hatch_build import can_compile
from seqgate.core import source_of, translation_of
from seqgate.log.errors import LogError
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, parse_header
from seqgate.log.format.records import HEADERS_PER_RECORD, MAX_HEADERS, NewRecord, build_batch, iterate_plain
from tests.fuzzing.changes import changed
from tests.support.batches import varint

Walk = Callable[[bytes | memoryview, int, int, int], tuple[int, int, bool] | None]
SOURCE = source_of("seqgate.log.format.record_walk")


def loaded(loader: importlib.machinery.SourceFileLoader | importlib.machinery.ExtensionFileLoader) -> Walk:
    """Return the walk of a file, whatever the process itself uses."""
    spec = importlib.util.spec_from_loader("record_walk", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    walk: Walk = module.walk_records
    return walk


def walks() -> list[Walk]:
    """Return the interpreted walk, and the compiled one wherever it can be compiled."""
    found = [loaded(importlib.machinery.SourceFileLoader("record_walk", SOURCE))]
    path = translation_of(SOURCE)
    if Path(path).exists():
        found.append(loaded(importlib.machinery.ExtensionFileLoader("record_walk", path)))
    elif can_compile():
        raise AssertionError(f"{path} is missing: run `{sys.executable} hatch_build.py`")
    return found


WALKS = walks()


def exactly(plain: bytes, record_count: int) -> tuple[int, int, bool] | None:
    """Return what the records' exact decoding finds in the place of the walk."""
    header = BatchHeader()
    header.base_offset = header.base_timestamp = header.attributes = 0
    header.record_count = record_count
    deltas, has_null_key = [], False
    try:
        for number, record in enumerate(iterate_plain(header, memoryview(plain))):
            if record.offset != number:
                return None
            deltas.append(record.timestamp)
            has_null_key = has_null_key or record.key is None
    except LogError:
        return None
    return min(deltas, default=0), max(deltas, default=0), has_null_key


record = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=80) | st.just(b"v" * 9000),
    key=st.none() | st.binary(max_size=70),
    timestamp=st.integers(0, 1 << 54) | st.integers(0, 300),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
)


@settings(max_examples=300)
@given(st.lists(record, min_size=1, max_size=70), st.randoms(use_true_random=False), st.integers(0, 3))
def test_it_says_of_any_bytes_what_the_exact_decoding_says(
    records: list[NewRecord], chance: Random, changes: int
) -> None:
    batch = build_batch(records)
    plain, count = batch[HEADER_BYTES:], parse_header(batch).record_count
    for _ in range(changes):
        plain = changed(plain, chance)
    expected = exactly(plain, count)
    answers = [
        walk(data, count, MAX_HEADERS, HEADERS_PER_RECORD)
        for walk in WALKS
        for data in (plain, memoryview(plain))
    ]
    # A change may make a number of over 56 bits, which is left to the exact decoding.
    assert set(answers) in ({expected}, {None} if changes else {expected})
    assert changes or expected is not None


def test_a_number_that_java_reads_otherwise_is_left_to_the_exact_decoding() -> None:
    """Java drops the bits of a length above the 32nd, and refuses one of more than five bytes."""
    good = b"\x00\x00\x00\x01\x01\x00"
    for length in (b"\x8c\x80\x80\x80\x10", b"\x8c\x80\x80\x80\x80\x00", b"\x8c" + b"\x80" * 9 + b"\x00"):
        for walk in WALKS:
            assert walk(length + good, 1, MAX_HEADERS, HEADERS_PER_RECORD) is None
    for walk in WALKS:
        assert walk(b"\x8c\x00" + good, 1, MAX_HEADERS, HEADERS_PER_RECORD) == (0, 0, True)


def test_more_headers_than_are_decoded_are_not_walked_over() -> None:
    header = varint(1) + b"h" + varint(-1)
    body = b"\x00\x00\x00\x01\x01" + varint(4) + header * 4
    plain = varint(len(body)) + body
    for walk in WALKS:
        assert walk(plain, 1, 4, 0) == (0, 0, True)
        assert walk(plain, 1, 3, 0) is None
