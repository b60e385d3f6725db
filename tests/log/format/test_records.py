from __future__ import annotations

import struct

import pytest

from seqgate.log import CorruptRecord, InvalidRecord
from seqgate.log.format import records
from seqgate.log.format.records import (
    NewRecord,
    build_batch,
    iterate_records,
    read_varint,
    read_varlong,
    write_varint,
)
from tests.support import batches

HEADERS = (("a", b"1"), ("b", None), ("a", b""))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_round_trip(codec: str) -> None:
    wanted = [
        NewRecord(b"x" * 100_000, key=b"k", timestamp=50, headers=HEADERS),
        NewRecord(None, key=None, timestamp=40),
        NewRecord(b"", key=b"", timestamp=60),
    ]
    data = build_batch(wanted, codec=codec, base_offset=7)
    found = list(iterate_records(data))
    assert [record.offset for record in found] == [7, 8, 9]
    assert [(r.value, r.key, r.timestamp, tuple(r.headers)) for r in found] == [
        (r.value, r.key, r.timestamp, tuple(r.headers)) for r in wanted
    ]
    (view,), _ = batches.read_batches(data)
    assert view.crc_is_right
    assert (view.base_timestamp, view.max_timestamp, view.record_count) == (50, 60, 3)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_reads_what_others_built(codec: str) -> None:
    data = batches.Batch(batches.records(40, 50, step_ms=2), codec=codec).encode()
    found = list(iterate_records(data))
    assert [record.value for record in found] == [record.value for record in batches.records(40, 50)]
    assert found[3].timestamp == batches.DEFAULT_TIMESTAMP + 6


def test_log_append_time_holds_for_every_record() -> None:
    data = batches.Batch(batches.records(3, step_ms=1), attributes=0x08, max_timestamp=99).encode()
    assert [record.timestamp for record in iterate_records(data)] == [99, 99, 99]


class TestRefuses:
    def test_nothing_to_build(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            build_batch([])

    def test_unknown_codec(self) -> None:
        with pytest.raises(ValueError, match="brotli"):
            build_batch([NewRecord(b"")], codec="brotli")

    def test_cut_batch(self) -> None:
        with pytest.raises(InvalidRecord):
            list(iterate_records(build_batch([NewRecord(b"abc")])[:-1]))
        with pytest.raises(CorruptRecord):
            list(iterate_records(b"short"))

    def test_more_records_than_there_are(self) -> None:
        with pytest.raises(InvalidRecord):
            list(iterate_records(batches.Batch(record_count=2**31 - 1).encode()))

    def test_fewer_records_than_there_are(self) -> None:
        with pytest.raises(InvalidRecord):
            list(iterate_records(batches.Batch(batches.records(2), record_count=1).encode()))

    @pytest.mark.parametrize(
        "payload",
        [
            b"\x00",  # an empty record
            b"\x01",  # a negative length
            batches.varint(5) + b"\0\0\0\x14abc",  # a key longer than its record
            batches.varint(6) + b"\0\0\0\x01\x01\x03",  # a negative number of headers
            batches.varint(7) + b"\0\0\0\x01\x01\x02\x01",  # a header without a key
            batches.varint(7) + b"\0\0\0\x01\x01\0\0",  # a byte after the last field
            b"\xff" * 12,  # a varint without end
        ],
    )
    def test_damaged_record(self, payload: bytes) -> None:
        with pytest.raises(InvalidRecord):
            list(iterate_records(batches.Batch(payload=payload).encode()))


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varlong(value: int) -> None:
    output = bytearray()
    write_varint(output, value)
    assert bytes(output) == batches.varint(value)
    assert read_varlong(memoryview(output), 0) == (value, len(output))


@pytest.mark.parametrize("value", [0, -1, 1, 2**31 - 1, -(2**31)])
def test_varint(value: int) -> None:
    assert read_varint(batches.varint(value), 0) == (value, len(batches.varint(value)))


def test_a_varint_has_five_bytes_and_a_varlong_ten() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0) == (-(2**31), 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0) == (-(2**63), 10)
    with pytest.raises(InvalidRecord):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(InvalidRecord):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


@pytest.mark.parametrize(("base_timestamp", "delta"), [(2**63 - 1, 1), (-(2**63), -1)])
def test_a_timestamp_beyond_int64_goes_on_at_the_other_end(base_timestamp: int, delta: int) -> None:
    batch = batches.Batch(
        (batches.Record(timestamp_delta=delta),), base_timestamp=base_timestamp, max_timestamp=0
    ).encode()
    assert next(iterate_records(batch)).timestamp == -base_timestamp - 1


def test_more_headers_than_may_be_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few compressed bytes can hold millions of headers."""
    monkeypatch.setattr(records, "MAX_HEADERS", 10)
    ten, eleven = (NewRecord(b"v", headers=[("h", b"")] * count) for count in (10, 11))
    assert len(list(iterate_records(build_batch([ten, ten])))) == 2
    with pytest.raises(InvalidRecord, match="first 2 records of the batch have 21 headers"):
        list(iterate_records(build_batch([ten, eleven])))


def test_header_of_build_batch_is_61_bytes() -> None:
    data = build_batch([NewRecord(b"v")], producer_id=5, producer_epoch=1, base_sequence=9)
    assert struct.unpack_from(">qhi", data, 43) == (5, 1, 9)
