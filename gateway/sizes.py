"""Sizes for people, in the log, in answers to clients and in commands."""

from __future__ import annotations


def size_in_words(size_bytes: int) -> str:
    """Return a number of bytes in its largest unit: `512 B`, `1.5 MiB`, `20 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " TiB"
