"""Compresses and decompresses a batch's records: four codecs and "none". Decompression is limited.

A level is Kafka's: gzip 1 to 9 or −1, lz4 1 to 17, zstd −131072 to 22. Snappy and "none" have no levels.

Snappy records arrive as raw blocks or framed as by the xerial library of Kafka's Java client; both are read.
"""

from __future__ import annotations

import mmap
import struct
import threading
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

from seqgate.log.config import DEFAULT_DECOMPRESSED_BYTES
from seqgate.log.errors import DecompressionLimitReached, InvalidRecord, UnsupportedCompressionType

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
_MAPPED_BYTES: Final = 1 << 20
"""The size from which a buffer is mapped. Python writes zeros to any other one, and keeps its lock meanwhile:
70 ms and more for 128 MiB.
"""
_ZSTD_DEFAULT_LEVEL: Final = 3
_LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's default level of lz4. It means the quick compressor; every other level means the strong one."""
_LZ4_QUICK: Final = 0
_LZ4_STRONG: Final = range(3, 13)
"""The levels of the lz4 library's strong compressor; it treats lower ones as quick, higher ones as 12."""
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""The header of an lz4 frame: independent blocks of 64 KiB, no checksums."""
_LZ4_FLAGS_AT: Final = 4
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_HAS_CHECKSUMS: Final = 0x10
_LZ4_HAS_CHECKSUM: Final = 0x04
"""The flag of a frame with a checksum at its end; the one above means one for each block."""
_LZ4_BLOCK_SIZE: Final = struct.Struct("<I")
_LZ4_SIZE_MASK: Final = 0x7FFFFFFF
"""The size of a block without the bit of a block that is not compressed."""
_LZ4_ROOM_UNIT: Final = 256
"""The library takes the first four bytes of a block for the size of its plain bytes, or for a part of the
block, whichever it can read. A multiple of this number begins no block: it would repeat bytes before the
first.
"""
_LZ4_SMALLEST_BYTES: Final = 11
_LZ4_LARGEST_RATIO: Final = 255
_GZIP_SMALLEST_BYTES: Final = 18
_GZIP_LARGEST_RATIO: Final = 1032
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_BLOCK_SIZES: Final = {number: 1 << 8 + 2 * number for number in range(4, 8)}
"""The most plain bytes of a block, by the number in the header of the frame; there are no other numbers."""
_LZ4_END: Final = bytes(4)
_LZ4_TRAILER_BYTES: Final = 12
"""The checksum of the last block, the end mark and the content's checksum at the end of a library's frame."""
_ZSTD_FLAGS_AT: Final = 4
_ZSTD_ONE_SEGMENT: Final = 0x20
"""The flag of a zstd frame that has the size of its content in the place of that of its window."""
_ZSTD_HAS_CHECKSUM: Final = 0x04
_ZSTD_SIZES: Final = (0, 2, 4, 8)
"""The bytes of the content's size, by the two highest flags."""
_ZSTD_DICTIONARY: Final = (0, 1, 2, 4)
"""The bytes of the dictionary's id, by the two lowest flags."""
_ZSTD_LARGEST_WINDOW: Final = 13 << 3
"""The byte of a window of 8 MiB. A state keeps the memory for it."""
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
"""The most plain bytes of a block in a zstd frame."""
_ZSTD_REPEATED: Final = 1
_ZSTD_COMPRESSED: Final = 2
_MANY_BLOCKS: Final = 64
"""A batch of more blocks is not decompressed quickly, because each takes time however small it is."""


class Compression(NamedTuple):
    """A codec and the level to compress with; None is the library's default level."""

    codec: int
    level: int | None = None


def decompress(codec: int, data: memoryview, limit_bytes: int = DEFAULT_DECOMPRESSED_BYTES) -> memoryview:
    """Return the plain bytes of `data`. Raises InvalidRecord for damage, DecompressionLimitReached above
    `limit_bytes` of plain bytes, UnsupportedCompressionType for an id above 4.
    """
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            return _snappy(data, limit_bytes)
        expected, _ = _frame_bytes(codec, data, limit_bytes)
        return _bounded(_decompressor(codec), data, expected, limit_bytes)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"compressed records can't be read: {error}") from error


def decompress_quickly(codec: int, data: memoryview, limit_bytes: int) -> memoryview | None:
    """Return the plain bytes of `data`; None where these may be more than `limit_bytes`, or more than the
    frame says. None takes no longer than to decompress `limit_bytes`, and nearly no time if the frame says
    that there are more. Raises InvalidRecord; UnsupportedCompressionType for an id above 4.
    """
    if codec == NONE:
        return data
    try:
        if codec == SNAPPY:
            return _snappy(data, limit_bytes) if _snappy_bytes(data, limit_bytes) <= limit_bytes else None
        expected, most = _frame_bytes(codec, data, limit_bytes)
        if most > limit_bytes:
            return None
        if codec == LZ4:
            plain = _lz4_of_producers(data, most)
        elif codec == ZSTD:
            plain = _zstd_with_kept_state(data, most)
        else:
            plain = None
        if plain is not None:
            return plain
        decompress_into = _decompressor(codec)
        plain = _into(decompress_into, data, min(expected, limit_bytes))
        if plain is None and expected < most:
            plain = _into(decompress_into, data, most)
        if plain is not None:
            check_one_frame(codec, data)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"compressed records can't be read: {error}") from error
    return plain


def _lz4_of_producers(data: memoryview, room: int) -> memoryview | None:
    """Return the plain bytes of a frame of the kind that Kafka's Java client and librdkafka make, with blocks
    of 64 KiB and no checksums; None for any other frame, and for a damaged one.

    To make the library's state for a frame takes ten times as long as a small block. The library's function
    for a block keeps Python's lock, so threads don't use it.
    """
    if not room or bytes(data[: len(_LZ4_HEADER)]) != _LZ4_HEADER:
        return None
    output = _buffer(room + _LZ4_ROOM_UNIT)
    position, filled = len(_LZ4_HEADER), 0
    while size := int.from_bytes(data[position : position + 4], "little"):
        start = position + 4
        position = start + (size & _LZ4_SIZE_MASK)
        if not start < position <= min(start + _LZ4_BLOCK_BYTES, len(data)):
            return None
        block, rest = data[start:position], output[filled : filled + _LZ4_BLOCK_BYTES]
        try:
            if size > _LZ4_SIZE_MASK:
                rest[: len(block)] = block
                filled += len(block)
            else:
                most = len(rest) // _LZ4_ROOM_UNIT * _LZ4_ROOM_UNIT
                filled += cramjam.lz4.decompress_block_into(_LZ4_BLOCK_SIZE.pack(most) + block, rest)
        except (cramjam.DecompressionError, ValueError):
            return None
    return output[:filled] if position + 4 == len(data) else None


def check_one_frame(codec: int, data: memoryview) -> None:
    """Refuse bytes after a whole lz4 frame, because Kafka's consumers read no second one
    (`Lz4BlockInputStream`). Raises InvalidRecord.
    """
    if codec != LZ4:
        return
    flags, position = _lz4_start(data)
    between = 4 if flags & _LZ4_HAS_CHECKSUMS else 0
    while size := int.from_bytes(data[position : position + 4], "little"):
        position += 4 + (size & _LZ4_SIZE_MASK) + between
    if position + (8 if flags & _LZ4_HAS_CHECKSUM else 4) != len(data):
        raise InvalidRecord("more bytes follow the lz4 frame; Kafka's consumers read one frame only")


class _KeptZstd(threading.local):
    """The state of zstd's library, one for each thread, with the optional package that can keep it."""

    def __init__(self) -> None:
        try:
            import zstandard  # noqa: PLC0415 - a start is mostly imports
        except ModuleNotFoundError:
            self.decompress: Callable[..., bytes] | None = None
        else:
            self.decompress = zstandard.ZstdDecompressor().decompress
            self.error = zstandard.ZstdError


@cache
def _kept_zstd() -> _KeptZstd:
    return _KeptZstd()


def _zstd_with_kept_state(data: memoryview, most: int) -> memoryview | None:
    """Return the plain bytes of one zstd frame; None for more frames, for a damaged one, for one with a large
    window, and without the extra `codecs`. To make the state takes thirty times as long as a small frame.
    """
    kept = _kept_zstd()
    if not most or kept.decompress is None or len(data) <= _ZSTD_FLAGS_AT + 1:
        return None
    flags, window = data[_ZSTD_FLAGS_AT], data[_ZSTD_FLAGS_AT + 1]
    if not flags & _ZSTD_ONE_SEGMENT and window > _ZSTD_LARGEST_WINDOW:
        return None
    position, _ = _zstd_header(data)
    _, end = _zstd_blocks(data, position, most + _ZSTD_BLOCK_BYTES)
    if not end or end + (4 if flags & _ZSTD_HAS_CHECKSUM else 0) != len(data):
        return None
    try:
        return memoryview(kept.decompress(data, max_output_size=most))
    except kept.error:
        return None


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress and frame `data` as Kafka's Java client. Raises UnsupportedCompressionType above id 4."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, None if level == -1 else level))
    if codec == SNAPPY:
        return _xerial(data)
    if codec == LZ4:
        return _lz4(data, _lz4_level(level))
    if codec == ZSTD:
        return _zstd(data, level)
    raise UnsupportedCompressionType(f"unknown compression type {codec}")


def _zstd(data: bytes | memoryview, level: int | None) -> bytes:
    """Return a zstd frame, made with the parameters for data of unknown size, as Kafka's stream makes it.

    Those for data of 128 to 256 KiB search matches of four bytes: at level 3 five times as long for random
    letters, and the frame is larger. Without the extra `codecs` these parameters must do.
    """
    try:
        import zstandard  # noqa: PLC0415 - a start is mostly imports
    except ModuleNotFoundError:
        return bytes(cramjam.zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))

    parameters = zstandard.ZstdCompressionParameters.from_level(
        _ZSTD_DEFAULT_LEVEL if level is None else level
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    """Return an lz4 frame of independent blocks, because Kafka's reader refuses any other frame.

    The library links a frame's blocks, or keeps Python's lock. So each block comes from its own frame.
    """
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        frame = bytes(cramjam.lz4.compress(data[start : start + _LZ4_BLOCK_BYTES], level))
        parts.append(frame[len(_LZ4_HEADER) : -_LZ4_TRAILER_BYTES])
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_level(level: int | None) -> int | None:
    """Return the level of the lz4 library for a level of Kafka. Source: Kafka's `Lz4BlockOutputStream`."""
    if level is None:
        return None
    if level == _LZ4_DEFAULT_LEVEL:
        return _LZ4_QUICK
    return min(max(level, _LZ4_STRONG[0]), _LZ4_STRONG[-1])


def _decompressor(codec: int) -> Callable[[memoryview, memoryview], int]:
    if codec == GZIP:
        return cramjam.gzip.decompress_into
    if codec == LZ4:
        return cramjam.lz4.decompress_into
    if codec == ZSTD:
        return cramjam.zstd.decompress_into
    raise UnsupportedCompressionType(f"unknown compression type {codec}")


def _frame_bytes(codec: int, data: memoryview, limit_bytes: int) -> tuple[int, int]:
    """Return the plain size to try first, and the most that it can be by what the frame says; both only as
    far as up to `limit_bytes`. 0 is the most where the frame says nothing.
    """
    most = 0
    if codec == LZ4:
        most = min(_lz4_room(data, limit_bytes), _LZ4_LARGEST_RATIO * len(data))
    elif codec == GZIP and len(data) >= _GZIP_SMALLEST_BYTES:
        most = min(int.from_bytes(data[-4:], "little"), _GZIP_LARGEST_RATIO * len(data))
    elif codec == ZSTD:
        position, said = _zstd_header(data)
        if said is None:
            most, _ = _zstd_blocks(data, position, limit_bytes)
            return min(most, _guess(data)), most
        most = said
    return most or _guess(data), most


def _guess(data: memoryview) -> int:
    return max(_FIRST_GUESS_BYTES, 4 * len(data))


def _lz4_room(data: memoryview, limit_bytes: int) -> int:
    """Return the room that the blocks of the first frame need at most, or a number above `limit_bytes`; 0 for
    no whole frame, and for one block whose room alone is above the limit, because it may be nearly empty.
    """
    if len(data) < _LZ4_SMALLEST_BYTES:
        return 0
    flags, position = _lz4_start(data)
    block_bytes = _LZ4_BLOCK_SIZES.get(data[_LZ4_FLAGS_AT + 1] >> 4 & 7, 0)
    between = 4 if flags & _LZ4_HAS_CHECKSUMS else 0
    room = 0
    while block_bytes and room <= limit_bytes and position + 4 <= len(data):
        (size,) = _LZ4_BLOCK_SIZE.unpack_from(data, position)
        if not size:
            return room
        room += block_bytes
        position += 4 + (size & _LZ4_SIZE_MASK) + between
    return room if room > max(limit_bytes, block_bytes) else 0


def _lz4_start(data: memoryview) -> tuple[int, int]:
    """Return the flags of a frame, and the position of its first block."""
    flags = data[_LZ4_FLAGS_AT]
    size_bytes, dictionary_bytes = 8 * bool(flags & _LZ4_HAS_SIZE), 4 * (flags & _LZ4_HAS_DICTIONARY)
    return flags, len(_LZ4_HEADER) + size_bytes + dictionary_bytes


def _zstd_header(data: memoryview) -> tuple[int, int | None]:
    """Return the position of the first block of the first frame, and the plain size if the frame says it."""
    flags = data[_ZSTD_FLAGS_AT] if len(data) > _ZSTD_FLAGS_AT else 0
    is_one_segment = bool(flags & _ZSTD_ONE_SEGMENT)
    position = _ZSTD_FLAGS_AT + 1 + (not is_one_segment) + _ZSTD_DICTIONARY[flags & 3]
    size_bytes = _ZSTD_SIZES[flags >> 6] or is_one_segment
    said = int.from_bytes(data[position : position + size_bytes], "little")
    return position + size_bytes, said + (256 if size_bytes == 2 else 0) if size_bytes else None


def _zstd_blocks(data: memoryview, position: int, limit_bytes: int) -> tuple[int, int]:
    """Return the most plain bytes that the blocks from `position` on may have, and the end of the last one.
    The first is a number above `limit_bytes` where the blocks are many, and the second 0 for no whole frame.
    """
    room = blocks = 0
    while room <= limit_bytes and position + 3 <= len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
        room += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
        position += 3 + (1 if kind == _ZSTD_REPEATED else size)
        if is_last:
            return room, position
        blocks += 1
        if blocks > _MANY_BLOCKS:
            return limit_bytes + 1, 0
    return room, 0


def _bounded(
    decompress_into: Callable[[memoryview, memoryview], int],
    data: memoryview,
    expected_bytes: int,
    limit_bytes: int,
) -> memoryview:
    """Decompress into a buffer of fixed size, and retry with a larger buffer up to `limit_bytes`. A
    decompression bomb so meets the limit before it fills the memory.
    """
    size = min(limit_bytes, expected_bytes)
    while True:
        plain = _into(decompress_into, data, size)
        if plain is not None:
            return plain
        if size == limit_bytes:
            raise DecompressionLimitReached(f"records decompress to more than {limit_bytes} bytes")
        size = min(limit_bytes, 4 * size)


def _into(
    decompress_into: Callable[[memoryview, memoryview], int], data: memoryview, size: int
) -> memoryview | None:
    """Decompress into a buffer of `size` bytes; return None where that is too small."""
    output = _buffer(size)
    try:
        return output[: decompress_into(data, output)]
    except cramjam.DecompressionError as error:
        if "write whole buffer" not in str(error):
            raise
    return None


def _buffer(size_bytes: int) -> memoryview:
    """Return zeros to write to. Raises MemoryError."""
    if size_bytes < _MAPPED_BYTES:
        return memoryview(bytearray(size_bytes))
    try:
        return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except OSError as error:
        raise MemoryError(f"there is no memory of {size_bytes} bytes") from error


def _snappy(data: memoryview, limit_bytes: int) -> memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit_bytes)
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


def _snappy_bytes(data: memoryview, limit_bytes: int) -> int:
    """Return the plain size that the blocks say they have; a number above `limit_bytes` for many blocks."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_len(data))
    said = blocks = 0
    position = len(_XERIAL_HEADER)
    while said <= limit_bytes and position + 4 < len(data):
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        said += cramjam.snappy.decompress_raw_len(data[position : position + max(length, 0)])
        position += max(length, 0)
        blocks += 1
        if blocks > _MANY_BLOCKS:
            return limit_bytes + 1
    return said


def _snappy_block(block: memoryview, limit_bytes: int) -> memoryview:
    length = cramjam.snappy.decompress_raw_len(block)
    # Snappy copies at most 64 bytes per 3 bytes of input, so a larger length is wrong.
    if length > 64 * (len(block) + 1):
        raise InvalidRecord(
            f"a snappy block of {len(block)} bytes claims {length} bytes; a block decompresses to at most 64 "
            "times its size"
        )
    if length > limit_bytes:
        raise DecompressionLimitReached(f"records decompress to more than {limit_bytes} bytes")
    output = _buffer(length)
    if cramjam.snappy.decompress_raw_into(block, output) != length:
        raise InvalidRecord("a snappy block is shorter than the length in its header")
    return output


def _xerial(data: bytes | memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)
