"""The bytes of a change of the shared metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.metadata.change import (
    CHANGE,
    PIECE,
    CorruptChange,
    StoredChange,
    decode_change,
    encode_change,
    placed_batch,
)
from seqgate.log import IncompatibleFormat
from seqgate.log.format.records import NewRecord, build_batch, iterate_records

NONCE = bytes(range(16))
BATCH = placed_batch(build_batch([NewRecord(b"one", timestamp=5), NewRecord(b"two", timestamp=6)]), 7)
CONTENT = encode_change(StoredChange(CHANGE, 3, 12, 40, NONCE, 7, BATCH))


class TestContent:
    def test_a_change_is_read_back(self) -> None:
        change = decode_change(CONTENT, 40)
        assert change == StoredChange(CHANGE, 3, 12, 40, NONCE, 7, BATCH)
        assert change.end_offset == 9
        assert [(record.offset, record.value) for record in iterate_records(change.batch)] == [
            (7, b"one"),
            (8, b"two"),
        ]

    def test_the_bytes_stay_as_they_are(self) -> None:
        assert CONTENT[:8].hex() == f"53514d43{CONTENT[4:8].hex()}"
        assert CONTENT[8:60].hex() == (
            "00010000"
            "00000003"
            "000000000000000c"
            "0000000000000028" + NONCE.hex() + "0000000000000007"
            f"{len(BATCH):08x}"
        )
        assert CONTENT[60:] == BATCH

    @given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
    def test_each_changed_byte_is_noticed(self, place: int, difference: int) -> None:
        damaged = bytearray(CONTENT)
        damaged[place] ^= difference
        with pytest.raises((CorruptChange, IncompatibleFormat)):
            decode_change(bytes(damaged), 40)

    @pytest.mark.parametrize("size", [0, 3, 4, 40, 59, 60, len(CONTENT) - 1])
    def test_a_cut_change_is_refused(self, size: int) -> None:
        with pytest.raises(CorruptChange, match=r"meta/00000000000000000040 is"):
            decode_change(CONTENT[:size], 40)

    def test_a_change_of_another_place_is_refused(self) -> None:
        with pytest.raises(CorruptChange, match="another place: change 40"):
            decode_change(CONTENT, 41)

    def test_a_later_version_is_refused(self) -> None:
        with pytest.raises(IncompatibleFormat, match="version 2"):
            decode_change(CONTENT[:8] + b"\0\2" + CONTENT[10:], 40)

    @pytest.mark.parametrize(
        "wrong",
        [{"kind": 2}, {"base_offset": 8}, {"seq": -1}, {"batch": b""}, {"batch": BATCH[:-1]}, {"nonce": b""}],
    )
    def test_what_no_reader_would_take_is_not_written(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError):
            encode_change(decode_change(CONTENT, 40)._replace(**wrong))

    def test_a_piece_is_told_from_a_change(self) -> None:
        piece = decode_change(CONTENT, 40)._replace(kind=PIECE)
        assert decode_change(encode_change(piece), 40).kind == PIECE
