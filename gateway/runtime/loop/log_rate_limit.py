"""Keeps a hostile or broken client from filling the log, or from inserting lines of its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

LINES_PER_SECOND = 20
UNLIMITED: Final = "gateway.changes"
"""The logger of administrative changes. Its lines always pass, because that record must be complete.

Clients can't flood it: each line needs a durable change.
"""
AUDIT: Final = "seqgate.audit"
"""The logger of the audit log, which bounds its lines itself: each is a whole JSON object in ASCII."""
KINDS = 1000
"""The number of kinds of lines that are remembered. Beyond it all counts start again."""
MAX_CHARACTERS: Final = 2_000
"""Longer lines are cut."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineLimit(logging.Filter):
    """A filter for the log handler: at most `lines_per_second` lines of one kind, which is a place in the code.

    Errors always pass, except those with a traceback: a client can repeat a request that always fails. Lines of the logger
    `UNLIMITED` always pass. The first line after dropped ones says how many were dropped.
    """

    def __init__(self, now_s: Callable[[], float], lines_per_second: int = LINES_PER_SECOND) -> None:
        super().__init__()
        self._now_s = now_s
        self._limit = lines_per_second
        self._kinds: dict[tuple[str, int], tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == AUDIT:
            return True
        if record.name == UNLIMITED or (record.levelno >= logging.ERROR and not record.exc_info):
            _make_harmless(record)
            return True
        kind = (record.pathname, record.lineno)
        second = int(self._now_s())
        in_second, lines, dropped = self._kinds.get(kind, (second, 0, 0))
        if in_second != second:
            in_second, lines = second, 0
        if lines >= self._limit:
            self._kinds[kind] = (in_second, lines, dropped + 1)
            return False
        _make_harmless(record)
        if dropped:
            record.msg = f"{record.msg} (and {dropped} more lines like this)"
        if len(self._kinds) >= KINDS and kind not in self._kinds:
            self._kinds.clear()
        self._kinds[kind] = (in_second, lines + 1, 0)
        return True


def _make_harmless(record: logging.LogRecord) -> None:
    text = record.getMessage()
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"
    record.msg = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    record.args = None
