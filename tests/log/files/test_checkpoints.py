from __future__ import annotations

import uuid

import pytest

from seqgate.log import IncompatibleFormat
from seqgate.log.files.checkpoints import (
    CorruptCheckpoint,
    decode_leader_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
)

OFFSETS = {("a.b-c", 0): 5, ("a.b-c", 12): 2**40}


def test_offsets_in_kafkas_text() -> None:
    assert encode_offsets(OFFSETS) == b"0\n2\na.b-c 0 5\na.b-c 12 1099511627776\n"
    assert decode_offsets(encode_offsets(OFFSETS), "x") == OFFSETS
    assert decode_offsets(encode_offsets({}), "x") == {}


def test_leader_epochs_in_kafkas_text() -> None:
    assert encode_leader_epochs([(0, 0), (3, 9)]) == b"0\n2\n0 0\n3 9\n"
    assert decode_leader_epochs(b"0\n2\n0 0\n3 9\n", "x") == [(0, 0), (3, 9)]


def test_every_cut_is_noticed() -> None:
    for whole, decode in (
        (encode_offsets(OFFSETS), decode_offsets),
        (encode_leader_epochs([(0, 0), (12, 345)]), decode_leader_epochs),
    ):
        for length in range(len(whole)):
            with pytest.raises(CorruptCheckpoint):
                decode(whole[:length], "x")
            with pytest.raises(CorruptCheckpoint):
                decode(whole[:length].ljust(len(whole), b"\0"), "x")


@pytest.mark.parametrize(
    "content", [b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n2\na 0 1\n", b"x\n0\n", b"\xff\n0\n"]
)
def test_damaged(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(content, "x")


def test_newer_version_is_told_apart_from_damage() -> None:
    with pytest.raises(IncompatibleFormat, match="version 1"):
        decode_offsets(b"1\n0\n", "x")
    with pytest.raises(IncompatibleFormat):
        decode_leader_epochs(b"1\n0\n", "x")
    with pytest.raises(IncompatibleFormat):
        decode_partition_metadata(b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "x")


class TestPartitionMetadata:
    def test_round_trip(self) -> None:
        topic_id = uuid.uuid4()
        assert decode_partition_metadata(encode_partition_metadata(topic_id), "x") == topic_id

    def test_kafkas_text(self) -> None:
        written = encode_partition_metadata(uuid.UUID(int=1))
        assert written.splitlines()[:2] == [b"version: 0", b"topic_id: AAAAAAAAAAAAAAAAAAAAAQ"]
        without_checksum = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        assert decode_partition_metadata(without_checksum, "x") == uuid.UUID(int=1)

    def test_every_cut_is_noticed(self) -> None:
        topic_id = uuid.uuid4()
        whole = encode_partition_metadata(topic_id)
        for length in range(len(whole)):
            if whole[length:].strip().startswith(b"checksum"):
                assert decode_partition_metadata(whole[:length], "x") == topic_id
                continue
            with pytest.raises(CorruptCheckpoint):
                decode_partition_metadata(whole[:length], "x")

    def test_a_flipped_bit_is_noticed(self) -> None:
        whole = encode_partition_metadata(topic_id := uuid.uuid4())
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                assert decode_partition_metadata(bytes(flipped), "x") == topic_id
            except (CorruptCheckpoint, IncompatibleFormat):
                continue
