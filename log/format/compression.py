"""Compresses and decompresses the records of a batch: four codecs and "none"; every decompression has a limit.

Snappy records arrive as raw blocks or in the framing of the xerial library that Kafka's Java client uses. This module reads both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import cramjam

from log.config import DEFAULT_DECOMPRESSED_BYTES
from log.errors import InvalidRecord, UnsupportedCompressionType

if TYPE_CHECKING:
    from collections.abc import Callable

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_IDS: Final = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
FRAME_MAGIC: Final = {GZIP: b"\x1f\x8b", LZ4: b"\x04\x22\x4d\x18", ZSTD: b"\x28\xb5\x2f\xfd"}
"""The first bytes of compressed records, by codec. A snappy block has no magic bytes."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
_FIRST_GUESS_BYTES: Final = 4096


def decompress(codec: int, data: memoryview, limit_bytes: int = DEFAULT_DECOMPRESSED_BYTES) -> memoryview:
    """Return the plain bytes of `data`.

    Raises InvalidRecord when `data` is damaged or would exceed `limit_bytes`, UnsupportedCompressionType for an id above 4.
    """
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            return _snappy(data, limit_bytes)
        return _bounded(_decompressor(codec), data, limit_bytes)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"compressed records can't be read: {error}") from error


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` compressed, in the framing of Kafka's Java client. Raises UnsupportedCompressionType for an id above 4."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        return _xerial(data)
    if codec == LZ4:
        # Kafka's reader refuses frames whose blocks depend on each other.
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    raise UnsupportedCompressionType(f"unknown compression type {codec}")


def _decompressor(codec: int) -> Callable[[memoryview, bytearray], int]:
    if codec == GZIP:
        return cramjam.gzip.decompress_into
    if codec == LZ4:
        return cramjam.lz4.decompress_into
    if codec == ZSTD:
        return cramjam.zstd.decompress_into
    raise UnsupportedCompressionType(f"unknown compression type {codec}")


def _bounded(
    decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, limit_bytes: int
) -> memoryview:
    """Decompress into a buffer of fixed size, and retry with a larger buffer up to `limit_bytes`.

    A decompression bomb so meets the limit before it fills the memory.
    """
    size = min(limit_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
        if size == limit_bytes:
            raise InvalidRecord(f"records decompress to more than {limit_bytes} bytes")
        size = min(limit_bytes, 4 * size)


def _snappy(data: memoryview, limit_bytes: int) -> memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return memoryview(_snappy_block(data, limit_bytes))
    output = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise InvalidRecord("snappy block is cut")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if length < 0 or position + length > len(data):
            raise InvalidRecord("snappy block is cut")
        output += _snappy_block(data[position : position + length], limit_bytes - len(output))
        position += length
    return memoryview(output)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytearray:
    length = cramjam.snappy.decompress_raw_len(block)
    # Snappy copies at most 64 bytes per 3 bytes of input, so a larger length is false.
    if length > limit_bytes or length > 64 * (len(block) + 1):
        raise InvalidRecord(
            f"a snappy block of {len(block)} bytes claims {length} bytes; "
            f"records may decompress to at most {limit_bytes} bytes, and a block to 64 times its size"
        )
    output = bytearray(length)
    if cramjam.snappy.decompress_raw_into(block, output) != length:
        raise InvalidRecord("snappy block is shorter than it says")
    return output


def _xerial(data: bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)
