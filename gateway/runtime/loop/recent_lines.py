"""Keeps the newest log lines of this process in memory, for `seqgate logs` and the console."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

LINES_KEPT: Final = 1_000
"""Lines in memory; a further one replaces the oldest. A line has at most a few KiB."""
_LONGEST_ERROR: Final = 4_000
"""Characters of a traceback that are kept: its end."""


class RecentLine(NamedTuple):
    """A log line. `number` counts the lines since the start of the process."""

    number: int
    time_ms: int
    level: str
    logger: str
    message: str
    error: str | None


class RecentLines(logging.Handler):
    """A handler that keeps the newest lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[RecentLine] = deque(maxlen=LINES_KEPT)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self._count += 1
        error = None
        if record.exc_info:
            error = "".join(traceback.format_exception(*record.exc_info))[-_LONGEST_ERROR:]
        self.lines.append(
            RecentLine(
                self._count,
                int(record.created * 1000),
                record.levelname,
                record.name,
                record.getMessage(),
                error,
            )
        )


def recent_lines() -> Sequence[RecentLine]:
    """Return the newest lines of this process, the oldest first; none where the process keeps no lines."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RecentLines):
            return tuple(handler.lines)
    return ()
