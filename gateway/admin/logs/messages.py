"""The request for the newest log lines of a gateway, and what `seqgate logs --json` prints."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.request import PagedRequest


class LogLine(msgspec.Struct, frozen=True):
    """A line of the gateway's log; `error` is the traceback of an unexpected error. `number` counts the lines
    since the start.
    """

    number: int
    time_ms: int
    level: str
    logger: str
    message: str
    error: str | None


class LogPage(msgspec.Struct, frozen=True):
    """The newest lines, the oldest first. The gateway keeps the newest `kept` lines in memory."""

    lines: list[LogLine]
    kept: int


class LogLinesRequest(PagedRequest[LogPage], tag="log-lines"):
    """The newest lines of the gateway's log, with a number above `after`."""

    is_spread = True
    rows = "lines"
    after: int = 0
