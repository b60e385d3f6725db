"""The producers of partitions, with a strip over time of what happened to their batches."""

from __future__ import annotations

from typing import Any, Final

from gateway.console.page import Answer, Feed, Look, Page, Section, View, Visit
from gateway.console.pages import verdicts
from gateway.console.pages.producers_asking import place_of, producers
from gateway.console.pages.producers_feed import ROWS, cursor_of, strips
from gateway.console.pages.producers_one import one
from gateway.console.pages.producers_strip import key_of


def all_producers(visit: Visit) -> Answer:
    """Show a page of the producers, and the newest batches that were not stored."""
    topic, partition = visit.text("topic") or None, visit.optional_number("partition")
    cursor = cursor_of(visit)
    told = producers(visit, topic, partition, cursor, ROWS)
    following = None if told.complete or not told.rows else place_of(told.rows[-1])
    query: dict[str, Any] = {"topic": topic, "partition": partition}
    return View(
        "producers.html",
        {
            "rows": [(key_of(*place_of(row)), row) for row in told.rows],
            "counters": told.counters,
            "trouble": told.trouble,
            "topic": topic,
            "partition": partition,
            "query": query,
            "begins": cursor is not None,
            "from_id": visit.optional_number("from_id"),
            "after": _cursor_fields(cursor),
            "next": None if following is None else {**query, **_cursor_fields(following)},
            **verdicts.table_of(visit, topic, partition),
        },
    )


def _cursor_fields(cursor: tuple[str, int, int] | None) -> dict[str, Any]:
    if cursor is None:
        return {}
    return {"after_topic": cursor[0], "after_partition": cursor[1], "after_id": cursor[2]}


PAGE: Final = Page(
    title="Producers",
    path="/producers",
    section=Section.CLIENTS,
    key="p",
    places=(
        Look("/producers", all_producers, waits_for="the producers"),
        Look("/producers/one", one, waits_for="the producer"),
        Feed("/api/producers/strips", strips),
        Feed("/api/verdicts", verdicts.newer),
    ),
)
