"""The list of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.console.asking.topics import TopicLine, topic_lines
from gateway.console.page import Answer, Change, Look, Page, Section, View, Visit, ordered, page_of
from gateway.console.pages import topic_changes, topic_partitions, topic_settings

_ORDERS: Final[Mapping[str, Callable[[TopicLine], Any]]] = {
    "name": lambda line: line.name,
    "partitions": lambda line: line.partitions,
    "size": lambda line: line.size_bytes,
    "trouble": lambda line: (line.offline, line.under_replicated),
}


def topics(visit: Visit) -> Answer:
    """Show the topics whose names contain the filter."""
    wanted = visit.text("filter").strip()
    internal = visit.text("internal") == "yes"
    sort = visit.text("sort", "name")
    with visit.cluster() as cluster:
        lines = topic_lines(cluster)
    known = [line for line in lines if internal or not line.is_internal]
    matching = [line for line in known if wanted.lower() in line.name.lower()]
    rows, paging = page_of(ordered(matching, sort, _ORDERS, "name"), visit.number("page", 1, 1))
    return View(
        "topics.html",
        {
            "rows": rows,
            "paging": paging,
            "wanted": wanted,
            "internal": internal,
            "sort": sort,
            "all_topics": len(known),
            "query": {"filter": wanted, "internal": "yes" if internal else None},
        },
    )


PAGE: Final = Page(
    title="Topics",
    path="/topics",
    section=Section.DATA,
    key="t",
    places=(
        Look("/topics", topics, waits_for="the list of topics"),
        Look(topic_changes.CREATE, topic_changes.creation),
        Change(topic_changes.CREATE, topic_changes.create),
        Look("/topics/{topic}", topic_partitions.partitions, waits_for="the partitions' leaders"),
        Change("/topics/{topic}/partitions", topic_partitions.add_partitions),
        Look("/topics/{topic}/settings", topic_settings.settings, waits_for="the settings of the topic"),
        Change("/topics/{topic}/settings", topic_settings.change_setting),
        Change("/topics/{topic}/delete", topic_changes.delete),
    ),
)
