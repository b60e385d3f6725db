"""The data of one row of a WAL object: one buffer, or several that follow each other."""

from __future__ import annotations

from gateway.cluster.objects.objects import Buffer
from seq_validator.checksum import crc32c

RowData = Buffer | tuple[Buffer, ...]


def pieces_of(data: RowData) -> tuple[Buffer, ...]:
    """Return the buffers."""
    return data if isinstance(data, tuple) else (data,)


def in_one_piece(data: RowData) -> Buffer:
    """Return the data as one buffer."""
    return b"".join(data) if isinstance(data, tuple) else data


def crc_of(pieces: tuple[Buffer, ...]) -> int:
    """Return the CRC-32C of the buffers, one after the other."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc
