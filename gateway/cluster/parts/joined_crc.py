"""Computes the CRC-32C of bytes from the CRC-32Cs of their pieces, without reading the bytes again.

A CRC is the rest of a division of polynomials over two values, so that bytes that follow multiply the CRC of those before by a power of x.
Source: M. Adler, crc32_combine in zlib.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""The CRC-32C's, with the highest power of x in the lowest bit, as in all numbers here."""
_ONE: Final = 1 << 31
_BYTE: Final = 1 << 23
"""x to the power of the bits of a byte."""
_SIZE_BITS: Final = 40
"""The bits of the largest number of bytes."""


def joined_crc(pieces: Iterable[tuple[int, int]]) -> int:
    """Return the CRC of the pieces one after the other; each is the CRC of its bytes, and their number."""
    joined = 0
    for crc, size_bytes in pieces:
        joined = _product(_power(size_bytes), joined) ^ crc if joined else crc
    return joined


@lru_cache(maxsize=64)
def _power(size_bytes: int) -> int:
    """Return what so many bytes that follow multiply a CRC by."""
    power = _ONE
    for bit, square in enumerate(_squares()):
        if size_bytes >> bit & 1:
            power = _product(power, square)
    return power


@lru_cache(maxsize=1)
def _squares() -> list[int]:
    """Return what 1, 2, 4… bytes that follow multiply a CRC by."""
    squares = [_BYTE]
    while len(squares) < _SIZE_BITS:
        squares.append(_product(squares[-1], squares[-1]))
    return squares


def _product(one: int, other: int) -> int:
    """Return the product of two polynomials, modulo the CRC's."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ _POLYNOMIAL if other & 1 else other >> 1
    return product
