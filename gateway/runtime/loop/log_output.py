"""Chooses the format and destination of the gateway's log lines: text or JSON, to stderr or to a file."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Final

from gateway.runtime.loop import loggers
from gateway.runtime.loop.log_rate_limit import AUDIT, LineLimit
from gateway.runtime.loop.recent_lines import RecentLines

TEXT, JSON = "text", "json"
FORMATS: Final = (TEXT, JSON)
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

    A line of the audit log has its own fields in place of the message. One of several workers adds its number.
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
    """Return the handler of all log lines. A file that was renamed or deleted, by log rotation, is opened again.

    Raises OSError when the file can't be opened.
    """
    handler: logging.Handler = (
        logging.StreamHandler(sys.stderr) if file is None else WatchedFileHandler(file, encoding="utf-8")
    )
    handler.setFormatter(JsonLines() if line_format == JSON else _Utc(_TEXT_LINE))
    handler.addFilter(LineLimit(now_s))
    return handler


def begin(level: str, line_format: str, file: str | None) -> None:
    """Send all log lines of this process from `level` up to stderr or to `file`. Raises OSError."""
    recent = RecentLines()
    recent.addFilter(LineLimit(time.monotonic))
    logging.basicConfig(handlers=[handler_for(line_format, file, time.monotonic), recent])
    loggers.set_start_level(level)


def name_worker(number: int) -> None:
    """Put the number of one of several workers into each of its lines. Call this after `begin`."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.worker = number
        elif isinstance(handler.formatter, _Utc):
            handler.setFormatter(_Utc(_TEXT_LINE.replace("%(levelname)s", f"worker {number} %(levelname)s")))


def begin_audit(file: str) -> None:
    """Send the lines of the audit log to a file of their own, at every level of other lines. Raises OSError."""
    handler = _PrivateFile(file, encoding="utf-8")
    handler.setFormatter(_AuditLines())
    audit = logging.getLogger(AUDIT)
    for former in audit.handlers[:]:
        audit.removeHandler(former)
        former.close()
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False
