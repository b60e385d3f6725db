"""The metrics that clients push about themselves (KIP-714)."""

from __future__ import annotations

from typing import Final

from gateway.admin.request import ControlError
from gateway.console.asking.connections import Cache
from gateway.console.metrics.rates import FigureReader, PushingClient, clients_of, is_counter
from gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit, page_of
from gateway.console.pages.links import link

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
            f"no client with the instance id {instance_id[:60]!r} pushes metrics now; open the list of clients again"
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


def figures(visit: Visit) -> Answer:
    """Return a metric of a client since a time; the sampler reads it while somebody looks."""
    instance_id, metric = visit.text("instance"), visit.text("metric")
    visit.check_metrics()
    reader = FigureReader(visit.metrics_text, instance_id, metric)
    watches = visit.console.sampler.watches
    history = watches.history(f"client {visit.user} {instance_id} {metric}", reader, keeps_reader=True)
    times, series = history.since(visit.number("after", 0), [metric])
    return Data({"times": times, "series": series, "error": None})


PAGE: Final = Page(
    title="Client metrics",
    path="/clients",
    section=Section.CLIENTS,
    key="m",
    places=(
        Look("/clients", clients, waits_for="the metrics that clients have pushed"),
        Look("/clients/view", view, waits_for="the metrics that clients have pushed"),
        Feed("/api/clients/figures", figures),
    ),
)
