"""The gateway's only source of time; tests inject another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The port to the wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
