"""Keeps the newest log lines of this process in memory, for `seqgate logs` and the console."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
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


# The levels of this process's loggers, under Kafka's names. A level lasts until the process ends.

ROOT: Final = "root"
TRACE: Final = 5
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


_start_level = logging.INFO


def set_start_level(level: str) -> None:
    """Set the level of `root`, to which it also returns when its own level is deleted."""
    global _start_level  # noqa: PLW0603 - loggers are global to the process, too
    _start_level = _LEVELS[level]
    logging.getLogger().setLevel(_start_level)


def levels() -> dict[str, str]:
    """Return the level in effect of every logger by its name; all loggers inherit from `root`.

    Packages are loggers too: a level of `seqgate.gateway.server` applies to all its modules without a level of their
    own.
    """
    root = logging.getLogger()
    names = sorted(root.manager.loggerDict)
    return {ROOT: _name(root), **{name: _name(logging.getLogger(name)) for name in names}}


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger. With None the logger inherits again, and `root` returns to its level at the
    start.
    """
    inherited = _start_level if name == ROOT else logging.NOTSET
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(inherited if level is None else _LEVELS[level])


def _name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if effective <= number), "FATAL")
