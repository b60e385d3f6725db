"""The producer names that topics with deduplication remember."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from gateway.admin.names.messages import NamesRequest, Position
from gateway.admin.request import ControlError
from gateway.console.asking.topics import topic_settings
from gateway.console.metrics import rates
from gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit

ROWS: Final = 50
SETTING: Final = "message.deduplication.enable"
_SERIES: Final = (rates.NAMES, rates.NAMES_DROPPED)


def names(visit: Visit) -> Answer:
    """Show a page of the names, and the topics that remember names."""
    with visit.cluster() as cluster:
        settings = topic_settings(cluster, (SETTING,))
    topics = sorted(topic for topic, values in settings.items() if values.get(SETTING) == "true")
    topic, partition = visit.text("topic") or None, visit.optional_number("partition")
    name = visit.text("name")
    if partition is not None and topic is None:
        raise ControlError(f"choose the topic of partition {partition}")
    values: dict[str, Any] = {
        "topics": topics,
        "topic": topic,
        "partition": partition,
        "name": name,
        "query": {"topic": topic, "partition": partition},
        "begins": bool(visit.text("begin_topic")),
    }
    if not visit.has_metrics:
        return View("names.html", {**values, "found": None, "next": None})
    request = NamesRequest(
        topic, partition, name.encode("utf-8", "replace") or None, _begin(visit), limit=ROWS
    )
    found = visit.ask_gateway(request)
    return View("names.html", {**values, "found": found, "next": _next(values["query"], found.next)})


def _begin(visit: Visit) -> Position | None:
    topic = visit.text("begin_topic")
    if not topic:
        return None
    after = visit.text("begin_after")
    try:
        name = base64.urlsafe_b64decode(after) if after else None
    except (binascii.Error, ValueError):
        raise ControlError("begin_after must be base64; open the first page of the list") from None
    return topic, visit.number("begin_partition", 0), name


def _next(query: dict[str, Any], position: Position | None) -> dict[str, Any] | None:
    """Return the query of the next page."""
    if position is None:
        return None
    topic, partition, after = position
    return {
        **query,
        "begin_topic": topic,
        "begin_partition": partition,
        "begin_after": base64.urlsafe_b64encode(after).decode() if after is not None else None,
    }


def figures(visit: Visit) -> Answer:
    """Return how many names are remembered, and the records dropped per second, since a time."""
    sampler = visit.console.sampler
    times, series = sampler.history.since(visit.number("after", 0), _SERIES)
    return Data({"times": times, "series": series, "error": sampler.error})


PAGE: Final = Page(
    title="Producer names",
    path="/names",
    section=Section.CLIENTS,
    key="n",
    places=(Look("/names", names, waits_for="the producer names"), Feed("/api/names", figures)),
)
