"""The newest lines of the gateway's log, and its tasks: both come from the metrics listener."""

from __future__ import annotations

from typing import Any, Final

from gateway.admin.logs.messages import LogLine, LogLinesRequest
from gateway.admin.printing import shown
from gateway.admin.request import ControlError
from gateway.admin.status.messages import Status, StatusRequest
from gateway.admin.sweep.messages import ListTasksRequest, TaskPage
from gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_LINES: Final = 1_000
"""Lines of one answer; the gateway keeps no more in memory."""
LONGEST: Final = 20_000
"""Characters of a message or a traceback that a page gets."""


def logs(visit: Visit) -> Answer:
    """Show the page; its island asks for the lines."""
    gateway, trouble = _gateway(visit)
    level = visit.text("level", "INFO")
    values = {
        "gateway": gateway,
        "trouble": trouble,
        "url": visit.console.options.metrics_url,
        "levels": LEVELS,
        "level": level if level in LEVELS else "INFO",
        "wanted": visit.text("filter"),
    }
    return View("logs.html", values)


def _gateway(visit: Visit) -> tuple[Status | None, str | None]:
    """Return whose log this is, or why nobody tells."""
    if not visit.has_metrics:
        return None, None
    try:
        return visit.ask_gateway(StatusRequest()), None
    except ControlError as error:
        return None, str(error)


def lines(visit: Visit) -> Answer:
    """Return the lines after a number. `restarted`: the gateway counts from the beginning again, and these lines are its first."""
    after = visit.number("after", 0)
    found = visit.ask_gateway(LogLinesRequest(after=after, limit=MOST_LINES)).lines
    restarted = not found and after > 0 and _newest(visit) < after
    if restarted:
        found = visit.ask_gateway(LogLinesRequest(limit=MOST_LINES)).lines
    return Data({"lines": [_shown(line) for line in found], "restarted": restarted})


def _newest(visit: Visit) -> int:
    """Return the number of the newest line; a gateway that has none yet has just started."""
    return max((line.number for line in visit.ask_gateway(LogLinesRequest(limit=1)).lines), default=0)


def _shown(line: LogLine) -> dict[str, Any]:
    """Return a line whose texts can't pretend to be other lines: only a traceback has line breaks."""
    error = None
    if line.error is not None:
        error = "\n".join(shown(each) for each in line.error[:LONGEST].rstrip().split("\n"))
    return {
        "number": line.number,
        "time_ms": line.time_ms,
        "level": shown(line.level),
        "logger": shown(line.logger),
        "message": shown(line.message, LONGEST),
        "error": error,
    }


def tasks(visit: Visit) -> Answer:
    """Show the tasks under way, and the last ones that ended."""
    found: TaskPage | None = None
    trouble: str | None = None
    if visit.has_metrics:
        try:
            found = visit.ask_gateway(ListTasksRequest())
        except ControlError as error:
            trouble = str(error)
    return View("tasks.html", {"found": found, "trouble": trouble, "url": visit.console.options.metrics_url})


PAGE: Final = Page(
    title="Logs",
    path="/logs",
    section=Section.GATEWAYS,
    key="l",
    places=(
        Look("/logs", logs, waits_for="the gateway's answer"),
        Feed("/api/logs", lines),
        Look("/logs/tasks", tasks, waits_for="the gateway's tasks"),
    ),
)
