"""Keeps a hostile or broken client from filling the log: each kind of line at most so often per second."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES_PER_SECOND = 20
KINDS = 1000
"""Kinds of line remembered; beyond it all are forgotten and counted anew."""


class LineLimit(logging.Filter):
    """A filter for the log handler. A kind of line is its place in the code; errors always pass.

    The first line that passes after others were dropped says how many there were.
    """

    def __init__(self, now_s: Callable[[], float], lines_per_second: int = LINES_PER_SECOND) -> None:
        super().__init__()
        self._now_s = now_s
        self._limit = lines_per_second
        self._kinds: dict[tuple[str, int], tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        kind = (record.pathname, record.lineno)
        second = int(self._now_s())
        in_second, lines, dropped = self._kinds.get(kind, (second, 0, 0))
        if in_second != second:
            in_second, lines = second, 0
        if lines >= self._limit:
            self._kinds[kind] = (in_second, lines, dropped + 1)
            return False
        if dropped:
            record.msg = f"{record.msg} (and {dropped} more lines like this)"
        if len(self._kinds) >= KINDS and kind not in self._kinds:
            self._kinds.clear()
        self._kinds[kind] = (in_second, lines + 1, 0)
        return True
