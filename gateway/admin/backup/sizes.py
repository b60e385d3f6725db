"""Parses sizes that a person writes, and shows sizes to a person."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE: Final = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.ASCII)


def size_bytes(text: str) -> int:
    """Return the bytes of `1048576`, `512K`, `50M` or `1G`; units are powers of 1,024. Raises ValueError with a sentence."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is not a size; write bytes, or 512K, 50M or 1G")
    return int(match[1]) * _UNITS[match[2]]


def size_in_words(count: int) -> str:
    """Return a number of bytes in its largest unit: `512 B`, `1.5 MiB`, `20.0 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
