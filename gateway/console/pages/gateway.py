"""The pages that show what each gateway and worker tells of itself: the newest lines of its log, its tasks,
and its limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.samples import Sample

from seqgate.gateway.admin.logs import LogLine, LogLinesRequest, LogPage
from seqgate.gateway.admin.metrics import MetricsPage, MetricsRequest
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.tasks import ListTasksRequest
from seqgate.gateway.console.answer import Data, PageAnswer, View
from seqgate.gateway.console.metrics.listener import samples
from seqgate.gateway.console.page import Feed, Gathered, Get, Page, PageGroup, Visit, numbers_of, numbers_text

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_LINES: Final = 1_000
"""Lines of one answer, the newest; a gateway keeps no more in memory."""
LONGEST: Final = 20_000
"""Characters of a message or a traceback that a page gets."""


def logs(visit: Visit) -> PageAnswer:
    """Show the page; its island asks for the lines."""
    found, trouble = visit.told_by_gateways(LogLinesRequest(limit=1))
    level = visit.text("level", "INFO")
    values = {
        "found": found,
        "kept": 0 if found is None else found.answers[0].kept,
        "trouble": trouble,
        "levels": LEVELS,
        "level": level if level in LEVELS else "INFO",
        "wanted": visit.text("filter"),
    }
    return View("logs.html", values)


def lines(visit: Visit) -> PageAnswer:
    """Return the lines of all gateways after a number of each, by time. `restarted` are the nodes that count
    anew, and whose first lines these are.
    """
    after, started = numbers_of(visit, "after"), numbers_of(visit, "started")
    found = visit.ask_gateways(LogLinesRequest(after_of=after, limit=MOST_LINES))
    restarted = [
        node_id
        for node_id, page in _by_node(found)
        if started.get(node_id, page.started_ms) != page.started_ms
    ]
    if restarted:
        after = {node_id: number for node_id, number in after.items() if node_id not in restarted}
        found = visit.ask_gateways(LogLinesRequest(after_of=after, limit=MOST_LINES))
    rows: list[LogLine] = []
    for node_id, page in _by_node(found):
        begin = after.pop(node_id, 0)
        rows += [line for line in page.lines if line.number > begin]
        started.pop(node_id, None)  # the one that answered last stands last
        after[node_id] = page.lines[-1].number if page.lines else begin
        started[node_id] = page.started_ms
    rows.sort(key=lambda line: (line.time_ms, line.node_id, line.number))
    return Data(
        {
            "lines": [_shown(line) for line in rows[-MOST_LINES:]],
            "after": numbers_text(after),
            "started": numbers_text(started),
            "restarted": restarted,
            "silent": found.silent,
            "is_several": found.is_several,
        }
    )


def _by_node(found: Gathered[LogPage]) -> list[tuple[int, LogPage]]:
    return [(page.nodes[0] if page.nodes else -1, page) for page in found.answers]


def _shown(line: LogLine) -> dict[str, Any]:
    """Return a line whose texts can't pretend to be other lines: only a traceback has line breaks."""
    error = None
    if line.error is not None:
        error = "\n".join(shown(each) for each in line.error[:LONGEST].rstrip().split("\n"))
    return {
        "node": line.node_id,
        "number": line.number,
        "time_ms": line.time_ms,
        "level": shown(line.level),
        "logger": shown(line.logger),
        "message": shown(line.message, LONGEST),
        "error": error,
    }


def tasks(visit: Visit) -> PageAnswer:
    """Show the tasks under way, and the last ones that ended, the newest first."""
    found, trouble = visit.told_by_gateways(ListTasksRequest())
    answers = [] if found is None else found.answers
    rows = [row for page in answers for row in page.tasks]
    rows.sort(key=lambda row: (row.begun_ms, row.node_id, row.number), reverse=True)
    waiting = sum(page.files_to_delete for page in answers)
    return View("tasks.html", {"found": found, "trouble": trouble, "rows": rows, "files_to_delete": waiting})


# The limits of all gateways, the nearest first.

USED: Final = "seqgate_limit_used"
MOST: Final = "seqgate_limit_max"
NEAR: Final = 0.8
"""The share of a limit from which on the page warns."""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit of a gateway: its setting, what counts towards it now, and the limit; None: there is none."""

    setting: str
    used: float
    most: float | None
    node_id: int

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


def limits_of(found: Iterable[Sample], node_id: int) -> list[LimitRow]:
    """Return the limits in a gateway's metrics."""
    used: dict[str, float] = {}
    most: dict[str, float] = {}
    for sample in found:
        (used if sample.name == USED else most)[sample.labels["setting"]] = sample.value
    return [LimitRow(setting, value, most.get(setting), node_id) for setting, value in used.items()]


def nearest(limits: Iterable[LimitRow]) -> list[LimitRow]:
    return sorted(limits, key=lambda limit: (-limit.share, limit.setting, limit.node_id))


def limits_told(visit: Visit) -> tuple[Gathered[MetricsPage] | None, str | None, list[LimitRow]]:
    """Return what `Visit.told_by_gateways` returns, and the limits of the gateways, the nearest first."""
    found, trouble = visit.told_by_gateways(MetricsRequest("seqgate_limit_"))
    rows = [
        row
        for page in ([] if found is None else found.answers)
        for gateway in page.gateways
        for row in limits_of(samples(gateway.text, (USED, MOST)), gateway.node_id)
    ]
    return found, trouble, nearest(rows)


def limits(visit: Visit) -> PageAnswer:
    """Show the limits of all gateways, the nearest first."""
    found, trouble, rows = limits_told(visit)
    return View("limits.html", {"found": found, "trouble": trouble, "limits": rows})


LIMITS_PAGE: Final = Page(
    "Limits", PageGroup.GATEWAYS, None, Get("/limits", limits, waits_for="the gateways' metrics")
)


LOGS_PAGE: Final = Page(
    "Logs",
    PageGroup.GATEWAYS,
    "l",
    Get("/logs", logs, waits_for="the gateways' answers"),
    Feed("/api/logs", lines),
    Get("/logs/tasks", tasks, waits_for="the gateways' tasks"),
)
