"""Deadlines of coordinators, as wall-clock times in ms."""

from __future__ import annotations

from typing import Final

NEVER: Final = 2**63 - 1


def moved(deadline_ms: int, by_ms: int) -> int:
    """Return the deadline after the clock was set by `by_ms`; NEVER stays NEVER."""
    return deadline_ms if deadline_ms == NEVER else deadline_ms + by_ms
