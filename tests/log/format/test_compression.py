from __future__ import annotations

import random
import struct
import sys
import tracemalloc
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

from seqgate.log import InvalidRecord
from seqgate.log.errors import UnsupportedCompressionType
from seqgate.log.format import compression
from seqgate.log.format.compression import (
    CODEC_IDS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    check_one_frame,
    compress,
    decompress,
    decompress_quickly,
)

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


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the buffers into which data is decompressed."""
    sizes: list[int] = []

    def buffer(size_bytes: int) -> memoryview:
        sizes.append(size_bytes)
        return memoryview(bytearray(size_bytes))

    monkeypatch.setattr(compression, "_buffer", buffer)
    return sizes


WITHOUT_SIZE = zstandard.ZstdCompressor(write_content_size=False)
FRAMES = {
    "gzip": (GZIP, lambda data: compress(GZIP, data)),
    "snappy": (SNAPPY, lambda data: compress(SNAPPY, data)),
    "snappy, one block": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (LZ4, lambda data: compress(LZ4, data)),
    "lz4, the library's frame": (LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (ZSTD, lambda data: compress(ZSTD, data)),
    "zstd without its size": (ZSTD, WITHOUT_SIZE.compress),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_what_is_small_is_decompressed_quickly_and_a_bomb_not_at_all(frame: str, buffers: list[int]) -> None:
    codec, packed = FRAMES[frame]
    chance = random.Random(7)
    for data in (b"", b"a", bytes(1_000_000), chance.randbytes(50_000), b"abc" * 5_000):
        found = decompress_quickly(codec, memoryview(packed(data)), 1 << 20)
        assert found is not None
        assert bytes(found) == data
    buffers.clear()
    assert decompress_quickly(codec, memoryview(packed(bytes(2_000_000))), 1 << 20) is None
    assert buffers == []


@pytest.mark.parametrize("frame", ["lz4", "zstd", "zstd without its size"])
@pytest.mark.parametrize("data", [b"a", b"abc" * 50_000, random.Random(7).randbytes(200_000)])
def test_a_batch_of_a_producer_needs_no_new_state_of_the_library(
    frame: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make one takes far longer than to decompress a small batch."""
    codec, packed = FRAMES[frame]
    sent = memoryview(packed(data))
    monkeypatch.setattr(compression, "_decompressor", None)
    for _ in range(2):
        found = decompress_quickly(codec, sent, 1 << 20)
        assert found is not None
        assert bytes(found) == data


def _lz4_frame(*blocks: bytes, end: bytes = bytes(4)) -> memoryview:
    """Return a frame as Kafka's Java client makes it."""
    sized = [struct.pack("<I", len(block)) + block for block in blocks]
    return memoryview(b"\x04\x22\x4d\x18\x60\x40\x82" + b"".join(sized) + end)


def test_an_lz4_block_that_begins_like_a_size_is_read_as_a_block() -> None:
    block = bytes.fromhex("1c000000500000000000")  # 1 byte, 16 repeated ones, 5 bytes; or 28, and 5 bytes
    sent = _lz4_frame(block)
    found = decompress_quickly(LZ4, sent, 1 << 20)
    assert found is not None
    assert bytes(found) == bytes(decompress(LZ4, sent)) == bytes(22)
    with_size = struct.pack("<I", 8) + b"\x80" + bytes(8)
    with pytest.raises(InvalidRecord):
        decompress_quickly(LZ4, _lz4_frame(with_size), 1 << 20)


@pytest.mark.parametrize("block", [b"\x00", b"\x10a"])
@pytest.mark.parametrize("end", [b"", b"\x00", b"\x09\0\0\0"])
def test_a_cut_lz4_frame_of_many_blocks_is_refused(block: bytes, end: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decompress_quickly(LZ4, _lz4_frame(*[block] * 40, end=end), 1 << 20)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_checksum": True, "content_checksum": True},
        {"store_size": False, "block_linked": False, "content_checksum": True},
        {"store_size": True, "block_checksum": True, "block_size": lz4.frame.BLOCKSIZE_MAX256KB},
    ],
)
def test_kafkas_consumers_read_one_lz4_frame_only(options: dict[str, Any]) -> None:
    frame = lz4.frame.compress(b"abc" * 50_000, **options)
    found = decompress_quickly(LZ4, memoryview(frame), 1 << 20)
    assert found is not None
    assert len(found) == 150_000
    check_one_frame(LZ4, memoryview(frame))
    for rest in (lz4.frame.compress(b"a"), lz4.frame.compress(b""), b"\x50\x2a\x4d\x18" + bytes(4), bytes(4)):
        with pytest.raises(InvalidRecord):
            check_one_frame(LZ4, memoryview(frame + rest))
        with pytest.raises(InvalidRecord):
            decompress_quickly(LZ4, memoryview(frame + rest), 1 << 20)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_no_more_than_the_limit_is_decompressed_quickly(codec: int) -> None:
    assert decompress_quickly(codec, memoryview(compress(codec, b"a" * 3_000)), 1_500) is None


def test_zstd_is_decompressed_quickly_without_the_extra_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    compression._kept_zstd.cache_clear()
    try:
        found = decompress_quickly(ZSTD, memoryview(compress(ZSTD, b"abc" * 99)), 1 << 20)
        assert found is not None
        assert bytes(found) == b"abc" * 99
    finally:
        compression._kept_zstd.cache_clear()


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (GZIP, compress(GZIP, BOMB)[:-4] + struct.pack("<I", 100_000)),
        (GZIP, compress(GZIP, BOMB) + compress(GZIP, b"end" * 100)),
        (ZSTD, compress(ZSTD, b"small") + compress(ZSTD, BOMB)),
        (LZ4, compress(LZ4, b"small") + compress(LZ4, BOMB)),
        (LZ4, cramjam.lz4.compress(BOMB)),
    ],
    ids=("a wrong size", "a size of the last part only", "zstd frames", "lz4 frames", "large lz4 blocks"),
)
def test_a_frame_that_says_too_little_is_not_decompressed_beyond_that(
    codec: int, data: bytes, buffers: list[int]
) -> None:
    found = decompress_quickly(codec, memoryview(data), 1 << 20)
    assert sum(buffers) <= 5 * max(len(data), 100_000)
    assert found is None or found == decompress(codec, memoryview(data))


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (SNAPPY, XERIAL + 9_000 * (struct.pack(">i", 3) + bytes(cramjam.snappy.compress_raw(b"a")))),
        (ZSTD, WITHOUT_SIZE.compress(b"")[:6] + 9_000 * b"\x08\0\0a" + b"\x09\0\0a"),
    ],
    ids=("snappy", "zstd"),
)
def test_many_small_blocks_are_not_decompressed_quickly(codec: int, data: bytes) -> None:
    """Each takes time, so a batch of 64 KiB would take as long as a bomb."""
    assert decompress_quickly(codec, memoryview(data), 1 << 20) is None
    assert set(bytes(decompress(codec, memoryview(data)))) == {ord("a")}


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
