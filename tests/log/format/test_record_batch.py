from __future__ import annotations

import pytest

from seqgate.log import CorruptRecord
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header, stamped_head
from tests.support.batches import Batch, Record, read_batches, records


class TestParseHeader:
    def test_every_field_as_written(self) -> None:
        data = Batch(
            records(3, step_ms=5), base_offset=17, partition_leader_epoch=4, codec="lz4", producer_id=2**40
        ).encode()
        header = parse_header(data)
        assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (17, 19, 4)
        assert header.size_bytes == len(data)
        assert header.compression == 3
        assert header.producer_id == 2**40
        assert header.max_timestamp - header.base_timestamp == 10
        assert crc_matches(header, memoryview(data))

    def test_at_a_position(self) -> None:
        data = b"xyz" + Batch(base_offset=9).encode()
        assert parse_header(data, 3).base_offset == 9

    def test_refuses_fewer_than_61_bytes(self) -> None:
        with pytest.raises(CorruptRecord):
            parse_header(Batch().encode()[: HEADER_BYTES - 1])

    def test_sequence_wraps(self) -> None:
        header = parse_header(Batch(records(3)).of(1, 0, 2**31 - 2).encode())
        assert header.last_sequence == 0

    def test_no_sequence(self) -> None:
        assert parse_header(Batch(records(3)).encode()).last_sequence == -1

    @pytest.mark.parametrize(
        ("bit", "name"), [(0x08, "is_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control")]
    )
    def test_flags(self, bit: int, name: str) -> None:
        assert getattr(parse_header(Batch(attributes=bit).encode()), name) is True
        assert getattr(parse_header(Batch().encode()), name) is False

    @pytest.mark.parametrize(
        ("field", "value"),
        [("magic", 1), ("magic", 3), ("size_bytes", HEADER_BYTES - 1), ("last_offset_delta", -1)],
    )
    def test_what_no_batch_can_begin_with(self, field: str, value: int) -> None:
        header = parse_header(Batch().encode())
        assert header.is_plausible
        setattr(header, field, value)
        assert not header.is_plausible


def test_crc_covers_all_from_byte_21() -> None:
    data = bytearray(Batch((Record(b"abc"),)).encode())
    for position in range(len(data)):
        data[position] ^= 1
        if position < 8 or 12 <= position < 17:
            assert crc_matches(parse_header(data), memoryview(data))
        elif position >= 17:
            assert not crc_matches(parse_header(data), memoryview(data))
        data[position] ^= 1


def test_stamped_head_has_a_right_crc_and_keeps_the_rest() -> None:
    data = memoryview(Batch(records(2, step_ms=7), codec="zstd").encode())
    header = parse_header(data)
    header.base_offset, header.partition_leader_epoch = 100, 3
    head = stamped_head(header, data, header.attributes | 0x08, 12345)
    (view,), rest = read_batches(head + bytes(data[len(head) :]))
    assert rest == b""
    assert view.crc_is_right
    assert (view.base_offset, view.partition_leader_epoch, view.max_timestamp) == (100, 3, 12345)
    assert view.attributes == 4 | 0x08
    assert view.base_timestamp == parse_header(data).base_timestamp
