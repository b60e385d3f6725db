"""A snapshot of names decodes to the encoded names; a damaged snapshot is refused."""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.seq_validator.names import NameTable, decode_names, encode_names, newer_names_version
from seqgate.seq_validator.names.entry import CorruptNames

int64 = st.integers(-(2**63), 2**63 - 1)
held = st.lists(st.tuples(int64, int64), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
written = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), int64, int64, int64, int64, held),
    max_size=5,
    unique_by=lambda entry: entry[0],
)


@given(written, st.integers(0, 2**63 - 1))
def test_a_decoded_snapshot_equals_the_encoded_names(
    names: list[tuple[bytes, int, int, int, int, tuple[tuple[int, int], ...]]], log_end_offset: int
) -> None:
    assert decode_names(encode_names(names, log_end_offset)) == (names, log_end_offset)
    table = NameTable()
    table.restore(names)
    assert table.written()[0] == names


SNAPSHOT = encode_names([(b"app", 7, -1, 3, 1_000, ()), (b"z", -1, 2, -1, 2_000, ((11, 5),))], 9)


def test_a_cut_snapshot_or_a_flipped_bit_is_refused() -> None:
    for size in range(len(SNAPSHOT)):
        with pytest.raises(CorruptNames):
            decode_names(SNAPSHOT[:size])
    for bit in range(8 * len(SNAPSHOT)):
        damaged = bytearray(SNAPSHOT)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptNames):
            decode_names(bytes(damaged))


@given(st.integers(6, len(SNAPSHOT) - 5), st.binary(min_size=1, max_size=8))
def test_wrong_counts_are_refused_though_the_checksum_is_right(position: int, content: bytes) -> None:
    body = (SNAPSHOT[:position] + content + SNAPSHOT[position + len(content) :])[: len(SNAPSHOT) - 4]
    sealed = body + struct.pack(">I", crc32c.crc32c(body))
    try:
        names, log_end_offset = decode_names(sealed)
    except CorruptNames:
        return
    assert encode_names(names, log_end_offset) == sealed


def test_a_later_version_is_recognized_only_in_a_whole_snapshot() -> None:
    body = SNAPSHOT[:4] + struct.pack(">h", 2) + SNAPSHOT[6:-4]
    later = body + struct.pack(">I", crc32c.crc32c(body))
    assert newer_names_version(later) == 2
    assert newer_names_version(later[:-1] + b"\0") is None
    assert newer_names_version(SNAPSHOT) is None
    assert newer_names_version(b"") is None


def test_a_name_with_two_transactions_of_one_producer_is_refused() -> None:
    with pytest.raises(CorruptNames, match="counts"):
        decode_names(encode_names([(b"z", -1, 2, -1, 2_000, ((11, 5), (11, 6)))], 9))
