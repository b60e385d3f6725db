"""The producer names that topics with deduplication remember."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from seqgate.gateway.admin.names.messages import NamesRequest, Position
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.connections import Cache
from seqgate.gateway.console.asking.topics import topic_settings
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.rates import FigureReader, PushingClient, clients_of, is_counter
from seqgate.gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit, page_of
from seqgate.gateway.console.pages.links import link

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


def figures_names(visit: Visit) -> Answer:
    """Return how many names are remembered, and the records dropped per second, since a time."""
    sampler = visit.console.sampler
    times, series = sampler.history.since(visit.number("after", 0), _SERIES)
    return Data({"times": times, "series": series, "error": sampler.error})


# The metrics that clients push about themselves (KIP-714).

KEPT_S: Final = 3.0
_clients: Final[Cache[dict[str, PushingClient]]] = Cache(KEPT_S)


def clients(visit: Visit) -> Answer:
    """Show the clients whose names match the filter."""
    wanted = visit.text("filter").strip()
    found = _found(visit) if visit.has_metrics else {}
    rows = [row for row in found.values() if _matches(row, wanted.lower())]
    rows.sort(key=lambda row: (row.labels.get("client_id", ""), row.instance_id))
    shown, paging = page_of(rows, visit.number("page", 1, 1))
    return View(
        "clients.html", {"rows": shown, "paging": paging, "wanted": wanted, "all_clients": len(found)}
    )


def _found(visit: Visit) -> dict[str, PushingClient]:
    return _clients.get(
        visit.security, visit.console.options.metrics_url, lambda: clients_of(visit.metrics_text())
    )


def _matches(row: PushingClient, wanted: str) -> bool:
    return any(wanted in value.lower() for value in row.labels.values())


def view(visit: Visit) -> Answer:
    """Show the metrics of a client, and one of them over time."""
    instance_id, wanted = visit.text("instance"), visit.text("filter").strip()
    client = _found(visit).get(instance_id)
    if client is None:
        raise ControlError(
            f"no client with the instance id {instance_id[:60]!r} pushes metrics now; open the list of "
            "clients again"
        )
    names = sorted({sample.name for sample in client.series})
    chosen = visit.text("metric")
    rows = sorted(
        (sample for sample in client.series if wanted.lower() in sample.name.lower()),
        key=lambda sample: (sample.name, sorted(sample.labels.items())),
    )
    shown, paging = page_of(rows, visit.number("page", 1, 1))
    return View(
        "client.html",
        {
            "client": client,
            "rows": [(sample, client.own_labels(sample)) for sample in shown],
            "paging": paging,
            "wanted": wanted,
            "metric": chosen if chosen in names else "",
            "is_counter": is_counter(chosen),
            "feed": link("/api/clients/figures", instance=instance_id, metric=chosen),
            "query": {"instance": instance_id, "filter": wanted},
        },
    )


def figures_clients(visit: Visit) -> Answer:
    """Return a metric of a client since a time; the sampler reads it while somebody looks."""
    instance_id, metric = visit.text("instance"), visit.text("metric")
    visit.check_metrics()
    reader = FigureReader(visit.metrics_text, instance_id, metric)
    watches = visit.console.sampler.watches
    history = watches.history(f"client {visit.user} {instance_id} {metric}", reader, keeps_reader=True)
    times, series = history.since(visit.number("after", 0), [metric])
    return Data({"times": times, "series": series, "error": None})


CLIENTS_PAGE: Final = Page(
    title="Client metrics",
    path="/clients",
    section=Section.CLIENTS,
    key="m",
    places=(
        Look("/clients", clients, waits_for="the metrics that clients have pushed"),
        Look("/clients/view", view, waits_for="the metrics that clients have pushed"),
        Feed("/api/clients/figures", figures_clients),
    ),
)


NAMES_PAGE: Final = Page(
    title="Producer names",
    path="/names",
    section=Section.CLIENTS,
    key="n",
    places=(Look("/names", names, waits_for="the producer names"), Feed("/api/names", figures_names)),
)
