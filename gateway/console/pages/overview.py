"""The overview: what is wrong first, then the figures over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.admin.request import ControlError
from gateway.admin.status.messages import ClusterStatus, Status, StatusRequest
from gateway.admin.status.remote import cluster_status
from gateway.console.asking.connections import Cache
from gateway.console.metrics import rates
from gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit
from gateway.console.pages.problems import Problem, problems_of_cluster, problems_of_gateway

KEPT_S: Final = 3.0
SERIES: Final = (
    rates.RECORDS,
    rates.BYTES_IN,
    rates.BYTES_OUT,
    rates.PRODUCE_P99,
    rates.DUPLICATES,
    rates.REFUSALS,
    rates.CONNECTIONS,
    rates.LOOP_DELAY,
)

_statuses: Final[Cache[ClusterStatus]] = Cache(KEPT_S)


def overview(visit: Visit) -> Answer:
    """Show what is wrong, and the state of the cluster."""
    with visit.cluster() as cluster:
        status = _statuses.get(visit.security, "status", lambda: cluster_status(cluster))
    problems = list(problems_of_cluster(status))
    gateway, trouble = _gateway_status(visit)
    if gateway is not None:
        problems = [*problems_of_gateway(gateway), *problems]
    problems += trouble
    return View(
        "overview.html",
        {
            "status": status,
            "gateway": gateway,
            "problems": _worst_first(problems),
            "sizes": [directory for broker in status.brokers for directory in broker.log_dirs],
        },
    )


def _gateway_status(visit: Visit) -> tuple[Status | None, list[Problem]]:
    """Return what only the gateway knows, with its word about being ready; nothing without --metrics."""
    if not visit.has_metrics:
        return None, []
    problems: list[Problem] = []
    try:
        is_ready, words = visit.readiness()
        if not is_ready:
            problems.append(Problem("The gateway says that it is not ready", words))
        return visit.ask_gateway(StatusRequest()), problems
    except ControlError as error:
        return None, [
            *problems,
            Problem("What only the gateway knows is missing", str(error), is_bad=False),
        ]


def _worst_first(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: not problem.is_bad)


def figures(visit: Visit) -> Answer:
    """Return the figures for the charts since a time."""
    sampler = visit.console.sampler
    times, series = sampler.history.since(visit.number("after", 0), SERIES)
    return Data({"times": times, "series": series, "error": sampler.error})


PAGE: Final = Page(
    title="Overview",
    path="/",
    section=Section.NOW,
    key="o",
    places=(
        Look("/", overview, waits_for="the state of the brokers"),
        Feed("/api/figures", figures),
    ),
)
