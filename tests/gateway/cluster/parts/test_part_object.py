from __future__ import annotations

from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.parts.part_object import (
    BLOCK_BYTES,
    CorruptPart,
    PartHead,
    decode_part,
    encode_part,
)
from seqgate.log import IncompatibleFormat

KEY = "parts/x"


def head(length: int, position: int = 0) -> PartHead:
    return PartHead(UUID(int=5), 2, 100, position, length, 100, 140)


def encoded(made: PartHead, data: bytes) -> bytes:
    return b"".join(encode_part(made, data).content)


@given(
    position=st.one_of(st.integers(0, 5000), st.integers(BLOCK_BYTES - 50, BLOCK_BYTES + 50)),
    data=st.binary(min_size=1, max_size=200),
)
def test_a_part_comes_back_as_it_was(position: int, data: bytes) -> None:
    made = head(len(data), position)
    found, content = decode_part(encoded(made, data), KEY)
    assert found == made
    assert content == data


def test_each_block_of_the_file_has_a_checksum() -> None:
    data = bytes(2 * BLOCK_BYTES)
    whole, shifted = encoded(head(len(data)), data), encoded(head(len(data), 7), data)
    assert len(shifted) - len(whole) == 4
    assert decode_part(shifted, KEY)[1] == data


def test_the_data_has_a_checksum() -> None:
    data = bytes(range(256)) * (10 << 10)
    for position in (0, 7, BLOCK_BYTES):
        assert encode_part(head(len(data), position), data).crc == crc32c(data)


def test_each_changed_byte_is_noticed() -> None:
    content = encoded(head(30), bytes(range(30)))
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        with pytest.raises((CorruptPart, IncompatibleFormat), match=KEY):
            decode_part(bytes(changed), KEY)


def test_each_cut_is_noticed() -> None:
    content = encoded(head(30), bytes(range(30)))
    for end in range(len(content)):
        with pytest.raises(CorruptPart, match=KEY):
            decode_part(content[:end], KEY)


def test_what_no_decoder_would_take_is_not_encoded() -> None:
    for made, data in ((head(3), b"ab"), (head(0), b""), (head(1)._replace(end_offset=100), b"a")):
        with pytest.raises(ValueError, match="can't be stored"):
            encode_part(made, data)
