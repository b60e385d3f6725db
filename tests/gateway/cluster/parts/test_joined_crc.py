from __future__ import annotations

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.parts.part_object import joined_crc


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 5000).map(bytes))))
def test_the_crc_is_that_of_the_joined_pieces(pieces: list[bytes]) -> None:
    assert joined_crc((crc32c(piece), len(piece)) for piece in pieces) == crc32c(b"".join(pieces))


def test_large_pieces() -> None:
    pieces = [b"a" * 900_001, b"b" * (1 << 20), b"c" * (1 << 20), b"d"]
    assert joined_crc((crc32c(piece), len(piece)) for piece in pieces) == crc32c(b"".join(pieces))
