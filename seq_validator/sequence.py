"""Sequence numbers: 32-bit, never negative, wrapping from 2**31 - 1 to 0.

The arithmetic is that of Kafka's `DefaultRecordBatch.incrementSequence`.
"""

from __future__ import annotations

from typing import Final

MAX_SEQUENCE: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
UNKNOWN_SEQUENCE: Final = -2
"""The next sequence of a producer that may have written a damaged batch: no batch has it."""


def following(last_sequence: int) -> int:
    """Return the sequence that must follow a batch that ends with `last_sequence`."""
    return (last_sequence + 1) & MAX_SEQUENCE


def last_of(base_sequence: int, last_offset_delta: int) -> int:
    """Return the last sequence of a batch. It is lower than `base_sequence` when the batch wraps."""
    return (base_sequence + last_offset_delta) & MAX_SEQUENCE
