"""The list of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.console.asking.groups import (
    KINDS,
    UNKNOWN,
    GroupFigures,
    GroupLine,
    group_figures,
    group_lines,
)
from gateway.console.page import (
    Answer,
    Change,
    Feed,
    Look,
    Page,
    Paging,
    Section,
    View,
    Visit,
    ordered,
    page_of,
)
from gateway.console.pages.groups_delete import delete
from gateway.console.pages.groups_reset import reset, reset_form
from gateway.console.pages.groups_view import lag, view

MOST_COMPARED: Final = 10_000
"""Groups whose lags are compared at a time; for more, the list asks for a filter."""
_QUICK: Final[Mapping[str, Callable[[GroupLine], Any]]] = {
    "group": lambda line: line.group,
    "kind": lambda line: (line.kind, line.group),
    "state": lambda line: (line.state, line.group),
}
_FIGURES: Final[Mapping[str, Callable[[GroupFigures], Any]]] = {
    "members": lambda figures: figures.members,
    "lag": lambda figures: figures.lag,
}


def groups(visit: Visit) -> Answer:
    """Show the groups that match the filters."""
    wanted, kind = visit.text("filter").strip(), visit.text("kind")
    state, topic, sort = visit.text("state"), visit.text("topic").strip(), visit.text("sort", "group")
    number = visit.number("page", 1, 1)
    with visit.cluster() as cluster:
        lines = group_lines(cluster)
        matching = [
            line
            for line in lines
            if wanted.lower() in line.group.lower() and kind in ("", line.kind) and state in ("", line.state)
        ]
        if topic or sort.removeprefix("-") in _FIGURES:
            rows, paging = _compared(cluster, matching, topic, sort, number)
        else:
            shown, paging = page_of(ordered(matching, sort, _QUICK, "group"), number)
            figures = group_figures(cluster, shown)
            rows = [(line, figures.get(line.group, UNKNOWN)) for line in shown]
    return View(
        "groups.html",
        {
            "rows": rows,
            "paging": paging,
            "wanted": wanted,
            "kind": kind,
            "state": state,
            "topic": topic,
            "sort": sort,
            "kinds": KINDS,
            "states": sorted({line.state for line in lines} | ({state} if state else set())),
            "all_groups": len(lines),
            "by_state": sorted(Counter(line.state for line in lines).items()),
            "query": {"filter": wanted, "kind": kind, "state": state, "topic": topic},
        },
    )


def _compared(
    cluster: Cluster, lines: Sequence[GroupLine], topic: str, sort: str, number: int
) -> tuple[list[tuple[GroupLine, GroupFigures]], Paging]:
    """Return a page of the groups by a figure, or of those that read a topic."""
    if len(lines) > MOST_COMPARED:
        raise ControlError(
            f"the console compares at most {MOST_COMPARED:,} groups by members, lag or topic, and {len(lines):,} match; "
            "filter by name, kind or state first"
        )
    figures = group_figures(cluster, lines)
    rows = [(line, figures.get(line.group, UNKNOWN)) for line in lines]
    if topic:
        rows = [row for row in rows if topic in row[1].topics]
    keys: dict[str, Callable[[tuple[GroupLine, GroupFigures]], Any]] = {
        **{name: _of_line(key) for name, key in _QUICK.items()},
        **{name: _of_figures(key) for name, key in _FIGURES.items()},
    }
    shown, paging = page_of(ordered(rows, sort, keys, "group"), number)
    return list(shown), paging


def _of_line(key: Callable[[GroupLine], Any]) -> Callable[[tuple[GroupLine, GroupFigures]], Any]:
    return lambda row: key(row[0])


def _of_figures(key: Callable[[GroupFigures], Any]) -> Callable[[tuple[GroupLine, GroupFigures]], Any]:
    return lambda row: key(row[1])


PAGE: Final = Page(
    title="Groups",
    path="/groups",
    section=Section.CLIENTS,
    key="g",
    places=(
        Look("/groups", groups, waits_for="the list of groups"),
        Look("/groups/view", view, waits_for="the group's members and offsets"),
        Feed("/api/groups/lag", lag),
        Look("/groups/reset", reset_form, waits_for="the offsets of the group"),
        Change("/groups/reset", reset),
        Change("/groups/delete", delete),
    ),
)
