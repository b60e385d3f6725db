from __future__ import annotations

import random
import struct
import sys
import tracemalloc

import cramjam
import pytest
import zstandard

from seqgate.log import InvalidRecord
from seqgate.log.errors import UnsupportedCompressionType
from seqgate.log.format.compression import CODEC_IDS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

BOMB = b"\0" * 30_000_000
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@pytest.mark.parametrize("codec", CODEC_IDS.values())
@pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 1000], ids=["empty", "one", "256000"])
def test_round_trip(codec: int, data: bytes) -> None:
    assert bytes(decompress(codec, memoryview(compress(codec, data)))) == data


def test_exactly_the_limit_is_allowed() -> None:
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        packed = memoryview(compress(codec, b"x" * 100_000))
        assert len(decompress(codec, packed, 100_000)) == 100_000
        with pytest.raises(InvalidRecord):
            decompress(codec, packed, 99_999)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_bomb_meets_the_limit(codec: int) -> None:
    packed = compress(codec, BOMB)
    assert len(packed) < 150_000
    with pytest.raises(InvalidRecord, match="more than 1000000"):
        decompress(codec, memoryview(packed), 1_000_000)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_python_does_not_fill_a_large_buffer_with_zeros(codec: int) -> None:
    """Python would hold all threads up meanwhile."""
    packed = compress(codec, BOMB) if codec != SNAPPY else bytes(cramjam.snappy.compress_raw(BOMB))
    tracemalloc.start()
    try:
        plain = decompress(codec, memoryview(packed))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert plain == BOMB


class TestSnappy:
    def test_raw_block(self) -> None:
        assert (
            bytes(decompress(SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(b"abc" * 99)))))
            == b"abc" * 99
        )

    def test_bomb_in_one_block(self) -> None:
        with pytest.raises(InvalidRecord):
            decompress(SNAPPY, memoryview(bytes(cramjam.snappy.compress_raw(BOMB))), 1_000_000)

    def test_bomb_in_many_blocks(self) -> None:
        block = bytes(cramjam.snappy.compress_raw(b"\0" * 60_000))
        bomb = XERIAL + (struct.pack(">i", len(block)) + block) * 100
        with pytest.raises(InvalidRecord):
            decompress(SNAPPY, memoryview(bomb), 1_000_000)

    def test_claims_more_than_it_could_hold(self) -> None:
        with pytest.raises(InvalidRecord):
            decompress(SNAPPY, memoryview(b"\xff\xff\xff\x3f\x00\x00"), 2**31)

    @pytest.mark.parametrize("rest", [b"\0\0", b"\0\0\0\x09ab", b"\xff\xff\xff\xff", b"\0\0\0\x02\xff\xff"])
    def test_cut_or_damaged_blocks(self, rest: bytes) -> None:
        with pytest.raises(InvalidRecord):
            decompress(SNAPPY, memoryview(XERIAL + rest))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_garbage_is_refused(codec: int) -> None:
    with pytest.raises(InvalidRecord):
        decompress(codec, memoryview(b"\xff" * 40))


def test_unknown_codec() -> None:
    with pytest.raises(UnsupportedCompressionType):
        decompress(5, memoryview(b""))
    with pytest.raises(UnsupportedCompressionType):
        compress(7, b"")


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    packed = compress(LZ4, bytes(range(256)) * 2000)
    assert packed[4] & 0x20, "Kafka's reader refuses linked blocks"


@pytest.mark.parametrize("level", [1, 3, 9])
@pytest.mark.parametrize("size", [1_000, 100_000, 200_000, 256_000, 300_000])
def test_zstd_frames_are_as_small_as_those_of_a_stream(size: int, level: int) -> None:
    data = bytes(random.Random(size).choices(range(65, 91), k=size))
    stream = zstandard.ZstdCompressor(level=level).compressobj()
    expected = stream.compress(data) + stream.flush()
    assert abs(len(compress(ZSTD, data, level)) - len(expected)) <= 16


@pytest.mark.parametrize("level", [None, 1, 19])
def test_zstd_needs_no_extra(level: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    data = bytes(random.Random(1).choices(range(65, 91), k=10_000))
    assert bytes(decompress(ZSTD, memoryview(compress(ZSTD, data, level)))) == data
