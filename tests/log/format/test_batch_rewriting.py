"""A rewritten batch has fewer records, and is otherwise unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log import InvalidRecord
from seqgate.log.format.batch_validation import (
    delete_horizon_ms,
    empty_batch,
    plain_records,
    rewritten_batch,
    stored_records,
)
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from tests.support.batches import Batch, Record

LIMIT_BYTES = 1 << 20
texts = st.none() | st.binary(max_size=30)
new_records = st.lists(
    st.builds(
        NewRecord,
        value=texts,
        key=texts,
        timestamp=st.integers(0, 2**41),
        headers=st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(
    new_records,
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.booleans(),
    st.sets(st.integers(0, 7)),
    st.none() | st.integers(0, 2**41),
)
def test_only_records_go(
    listed: list[NewRecord], codec: str, is_log_append_time: bool, chosen: set[int], horizon_ms: int | None
) -> None:
    batch = build_batch(
        listed,
        base_offset=1_000,
        codec=codec,
        leader_epoch=6,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 3,
        is_transactional=True,
        is_log_append_time=is_log_append_time,
    )
    header = parse_header(batch)
    plain = plain_records(header, memoryview(batch), LIMIT_BYTES)
    everything = list(stored_records(header, plain))
    originals = list(iterate_records(batch))
    assert [(record.offset, record.key) for record in everything] == [
        (record.offset, record.key) for record in originals
    ]
    assert [record.has_value for record in everything] == [record.value is not None for record in originals]
    kept = [record for number, record in enumerate(everything) if number in chosen]
    result = rewritten_batch(header, plain, kept, new_horizon_ms=horizon_ms)
    after = parse_header(result)
    assert crc_matches(after, memoryview(result))
    for field in (
        "base_offset",
        "last_offset_delta",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
    ):
        assert getattr(after, field) == getattr(header, field)
    assert (after.base_sequence, after.last_sequence) == (header.base_sequence, header.last_sequence)
    assert after.is_transactional
    assert after.is_log_append_time == is_log_append_time
    assert list(iterate_records(result)) == [
        record for number, record in enumerate(originals) if number in chosen
    ]
    if not kept:
        assert result == empty_batch(header)
        assert (len(result), after.compression, after.max_timestamp) == (
            HEADER_BYTES,
            0,
            header.max_timestamp,
        )
        return
    assert after.compression == header.compression
    assert delete_horizon_ms(after) == horizon_ms
    if not is_log_append_time:
        assert after.max_timestamp == max(record.timestamp for record in iterate_records(result))


def test_an_emptied_batch_stays_as_it_is() -> None:
    empty = empty_batch(parse_header(build_batch([NewRecord(b"v")], producer_id=1, base_sequence=5)))
    assert empty_batch(parse_header(empty)) == empty
    assert list(iterate_records(empty)) == []


def test_headers_that_are_no_text_stay() -> None:
    """Headers are copied as bytes, without decoding their text."""
    batch = Batch((Record(key=b"k", headers=((b"\xff\xfe", b"x"),)), Record(key=b"l"))).encode()
    header = parse_header(batch)
    plain = plain_records(header, memoryview(batch), LIMIT_BYTES)
    first, _ = stored_records(header, plain)
    assert b"\xff\xfe" in rewritten_batch(header, plain, [first])
    assert b"\xff\xfe" in rewritten_batch(header, plain, [first], new_horizon_ms=7)


@pytest.mark.parametrize(
    "batch",
    [
        Batch((Record(offset_delta=1), Record(offset_delta=1))),
        Batch((Record(offset_delta=5),)),
        Batch((Record(), Record()), record_count=1),
        Batch((Record(),), record_count=2, last_offset_delta=1),
        Batch((Record(),), payload=b"\x14\x00"),
        Batch((Record(),), payload=b"\x04\x00\x00\x00\x00\x00"),
    ],
)
def test_damaged_records(batch: Batch) -> None:
    data = batch.encode()
    header = parse_header(data)
    with pytest.raises(InvalidRecord):
        list(stored_records(header, plain_records(header, memoryview(data), LIMIT_BYTES)))


@pytest.mark.parametrize("horizon_ms", [None, 2**63 - 1, -(2**63), 5])
@pytest.mark.parametrize(("base_timestamp", "delta"), [(2**63 - 1, 7), (-(2**63), -7), (5, 2**63 - 1)])
def test_timestamps_beyond_int64_go_on_at_the_other_end(
    base_timestamp: int, delta: int, horizon_ms: int | None
) -> None:
    written = (Record(timestamp_delta=delta), Record(timestamp_delta=1))
    batch = Batch(written, base_timestamp=base_timestamp, max_timestamp=0).encode()
    header = parse_header(batch)
    plain = plain_records(header, memoryview(batch), LIMIT_BYTES)
    rest = rewritten_batch(header, plain, list(stored_records(header, plain)), new_horizon_ms=horizon_ms)
    timestamps = [record.timestamp for record in iterate_records(batch)]
    assert [record.timestamp for record in iterate_records(rest)] == timestamps
    assert parse_header(rest).max_timestamp == max(timestamps)
