"""The newest log lines of a running gateway."""

from __future__ import annotations

from itertools import islice

from seqgate.gateway.admin.logs.messages import LogLine, LogLinesRequest, LogPage
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.runtime.loop.log_output import LINES_KEPT, recent_lines


def log_lines(_: LiveGateway, request: LogLinesRequest) -> LogPage:
    """Return the newest lines with a number above `after`."""
    newest = islice((line for line in reversed(recent_lines()) if line.number > request.after), request.limit)
    return LogPage([LogLine(*line) for line in newest][::-1], LINES_KEPT)
