"""The log lines of this process: their format, text or JSON; their destination, stderr or a file; the levels
of the loggers; and the newest lines, which memory keeps for `seqgate logs` and the console.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Final, Generic, NamedTuple, TypeVar

TEXT, JSON = "text", "json"
_TEXT_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Utc(logging.Formatter):
    """Times in UTC with milliseconds and zone, such as 2026-11-22T18:32:32.417Z."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        moment = datetime.fromtimestamp(record.created, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


class _AuditLines(_Utc):
    """One JSON object per line: the time, and what the audit log says."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"time": self.formatTime(record), **json.loads(record.getMessage())})


class JsonLines(_Utc):
    """One JSON object per line: time, level, logger, message, and error when there is a traceback.

    Audit lines have their own fields in place of the message. One of several workers adds its number.
    """

    worker: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
        }
        if self.worker is not None:
            line["worker"] = self.worker
        if record.name == AUDIT:
            line.update(json.loads(record.getMessage()))
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _PrivateFile(WatchedFileHandler):
    """A log file that only its owner may read, also after a rotation."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding=self.encoding, opener=private)


def handler_for(line_format: str, file: str | None, now_s: Callable[[], float]) -> logging.Handler:
    """Return the handler of all log lines. A file that log rotation renamed or deleted is reopened. Raises
    OSError when the file can't be opened.
    """
    handler: logging.Handler = (
        logging.StreamHandler(sys.stderr) if file is None else WatchedFileHandler(file, encoding="utf-8")
    )
    handler.setFormatter(JsonLines() if line_format == JSON else _Utc(_TEXT_LINE))
    handler.addFilter(LineLimit(now_s))
    return handler


def begin(level: str, line_format: str, file: str | None) -> None:
    """Send all log lines of this process from `level` up to stderr or to `file`. Raises OSError."""
    handler, recent = handler_for(line_format, file, time.monotonic), RecentLines()
    for limit in handler.filters:
        recent.addFilter(limit)
    logging.basicConfig(handlers=[handler, recent])
    set_start_level(level)
    for name in _RECORDS:
        set_level(name, None)


def name_worker(number: int) -> None:
    """Put the number of one of several workers into each of its lines. Call this after `begin`."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.worker = number
        elif isinstance(handler.formatter, _Utc):
            handler.setFormatter(_Utc(_TEXT_LINE.replace("%(levelname)s", f"worker {number} %(levelname)s")))


def begin_audit(file: str) -> None:
    """Send the audit log's lines to a file of their own, at every level of others. Raises OSError."""
    handler = _PrivateFile(file, encoding="utf-8")
    handler.setFormatter(_AuditLines())
    audit = logging.getLogger(AUDIT)
    for former in audit.handlers[:]:
        audit.removeHandler(former)
        former.close()
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False


# Keeps a hostile or broken client from filling the log, or from inserting lines of its own.

LINES_PER_SECOND = 20
UNLIMITED: Final = "seqgate.changes"
"""The logger of administrative changes. Its lines always pass, because that record must be complete. Clients
can't flood it: each line needs a durable change.
"""
AUDIT: Final = "seqgate.audit"
"""The logger of the audit log, which bounds its lines itself: each is a whole JSON object in ASCII."""
_RECORDS: Final = (UNLIMITED, AUDIT)
"""The loggers of what users do. They inherit no level: that of another logger would hide their lines."""
KINDS = 1000
"""The number of kinds of lines that are remembered. Beyond it all counts of `LineLimit` start again."""
MAX_CHARACTERS: Final = 2_000
"""Longer lines are cut."""
_PASSES: Final = "passes_line_limit"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineLimit(logging.Filter):
    """A filter of log lines: at most `lines_per_second` of one kind, which is a place in the code.

    Errors always pass, except those with a traceback: a client can repeat a request that always fails. Lines
    of the logger `UNLIMITED` always pass. The first line after dropped ones says how many were dropped.

    It decides once for a record, which all handlers share: it changes the text.
    """

    def __init__(self, now_s: Callable[[], float], lines_per_second: int = LINES_PER_SECOND) -> None:
        super().__init__()
        self._now_s = now_s
        self._limit = lines_per_second
        self._kinds: dict[tuple[str, int], tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        passes: bool | None = record.__dict__.get(_PASSES)
        if passes is None:
            passes = record.__dict__[_PASSES] = self._decide(record)
        return passes

    def _decide(self, record: logging.LogRecord) -> bool:
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


K = TypeVar("K", bound=Hashable)


class SparseLines(Generic[K]):
    """Decides which events get a line of the log: of each key the first, and then one in an interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lines: dict[K, tuple[float, int]] = {}
        """The time of each key's last line, and the events since; beyond KINDS keys the oldest is dropped."""

    def left_out(self, key: K, now: float) -> int | None:
        """Return how many events of the key got no line before this one; None when this one gets none."""
        logged, unlogged = self._lines.get(key, (None, 0))
        if logged is not None and 0 <= now - logged < self._interval:
            self._lines[key] = logged, unlogged + 1
            return None
        self._lines.pop(key, None)
        if len(self._lines) >= KINDS:
            del self._lines[next(iter(self._lines))]
        self._lines[key] = now, 0
        return unlogged


def _make_harmless(record: logging.LogRecord) -> None:
    text = record.getMessage()
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"
    record.msg = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    record.args = None


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
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[RecentLine] = deque(maxlen=LINES_KEPT)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
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
    """Return each logger's level in effect; all inherit from `root` but those of `_RECORDS`. Packages are
    loggers too: a level of `seqgate.gateway.server` applies to its modules without one.
    """
    root = logging.getLogger()
    names = sorted(root.manager.loggerDict)
    return {ROOT: _name(root), **{name: _name(logging.getLogger(name)) for name in names}}


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger. With None it inherits again; `root`, and the records of what users do,
    return to their levels of the start.
    """
    logger = logging.getLogger(None if name == ROOT else name)
    if level is not None:
        logger.setLevel(_LEVELS[level])
    elif name == AUDIT and not logger.propagate:
        logger.setLevel(logging.INFO)  # it has a file of its own
    else:
        logger.setLevel(_start_level if name in {ROOT, *_RECORDS} else logging.NOTSET)


def hides_changes(name: str, level: str) -> bool:
    """Return whether this level of this logger drops the record of what users changed."""
    return name in _RECORDS and _LEVELS[level] > logging.INFO


def _name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if effective <= number), "FATAL")
