"""The pages from the gateway's metrics listener: the newest lines of its log, its tasks, and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from seqgate.gateway.admin.logs import LogLine, LogLinesRequest
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.tasks import ListTasksRequest
from seqgate.gateway.console.answer import Data, PageAnswer, View
from seqgate.gateway.console.metrics.listener import ScrapedSample, samples
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Visit

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_LINES: Final = 1_000
"""Lines of one answer; the gateway keeps no more in memory."""
LONGEST: Final = 20_000
"""Characters of a message or a traceback that a page gets."""


def logs(visit: Visit) -> PageAnswer:
    """Show the page; its island asks for the lines."""
    gateway, trouble = visit.told(StatusRequest())
    level = visit.text("level", "INFO")
    values = {
        "gateway": gateway,
        "trouble": trouble,
        "url": visit.metrics_url,
        "levels": LEVELS,
        "level": level if level in LEVELS else "INFO",
        "wanted": visit.text("filter"),
    }
    return View("logs.html", values)


def lines(visit: Visit) -> PageAnswer:
    """Return the lines after a number. `restarted`: the gateway counts anew, and these are its first."""
    after = visit.number("after", 0)
    found = visit.ask_gateway(LogLinesRequest(after=after, limit=MOST_LINES)).lines
    restarted = after > 0 and (found[-1].number if found else _newest(visit)) < after
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


def tasks(visit: Visit) -> PageAnswer:
    """Show the tasks under way, and the last ones that ended."""
    found, trouble = visit.told(ListTasksRequest())
    return View("tasks.html", {"found": found, "trouble": trouble, "url": visit.metrics_url})


# The limits of the gateway, the nearest first.

USED: Final = "seqgate_limit_used"
MOST: Final = "seqgate_limit_max"
NEAR: Final = 0.8
"""The share of a limit from which on the page warns."""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit: its setting, what counts towards it now, and the limit itself, None where there is none."""

    setting: str
    used: float
    most: float | None

    @property
    def share(self) -> float:
        """How much of the limit is used, from 0 to 1; 0 without a limit."""
        return self.used / self.most if self.most else 0.0

    @property
    def is_near(self) -> bool:
        return self.share >= NEAR

    @property
    def is_bytes(self) -> bool:
        return self.setting.endswith(".bytes")


def limits_of(found: Iterable[ScrapedSample]) -> list[LimitRow]:
    """Return the limits in a gateway's metrics, the nearest first."""
    used: dict[str, float] = {}
    most: dict[str, float] = {}
    for sample in found:
        (used if sample.name == USED else most)[sample.labels["setting"]] = sample.value
    limits = [LimitRow(setting, value, most.get(setting)) for setting, value in used.items()]
    return sorted(limits, key=lambda limit: (-limit.share, limit.setting))


def limits(visit: Visit) -> PageAnswer:
    if not visit.has_metrics:
        return View("limits.html", {"limits": []})
    return View("limits.html", {"limits": limits_of(samples(visit.metrics_text(), (USED, MOST)))})


LIMITS_PAGE: Final = Page(
    "Limits", PageGroup.GATEWAYS, None, Get("/limits", limits, waits_for="the gateway's metrics")
)


LOGS_PAGE: Final = Page(
    "Logs",
    PageGroup.GATEWAYS,
    "l",
    Get("/logs", logs, waits_for="the gateway's answer"),
    Feed("/api/logs", lines),
    Get("/logs/tasks", tasks, waits_for="the gateway's tasks"),
)
