"""The overview: what is wrong with the cluster and the gateway first, then the figures over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.status.messages import ClusterStatus, Status, StatusRequest, TroubledPartition
from seqgate.gateway.console.answer import PageAnswer, View
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Visit

# Finds what is wrong with a cluster or a gateway. Pure.

MOST_NAMED: Final = 5
"""Partitions that a problem names; it counts the others."""


class Problem(NamedTuple):
    """A problem, the advice, and the page with more. With `is_bad` somebody can't work; else it warns."""

    title: str
    advice: str
    link: str = ""
    is_bad: bool = True


def problems_of_cluster(status: ClusterStatus) -> Iterator[Problem]:
    """Yield what the brokers report over the Kafka protocol."""
    if status.controller is None:
        yield Problem("The cluster has no controller", "Topics can't be created or changed until it has one.")
    for broker in status.brokers:
        if broker.error is not None:
            yield Problem(f"Broker {broker.node_id} at {broker.address} does not answer", broker.error)
        for directory in broker.log_dirs:
            if directory.error is not None:
                yield Problem(
                    f"A log directory of broker {broker.node_id} is out of service", directory.error
                )
    if status.offline:
        yield Problem(
            f"{_counted(len(status.offline))} out of service: {_named(status.offline)}",
            "Clients can't read or write there. Look for the reason in the gateway's log; seqgate reopen "
            "opens a partition again.",
            "/topics?sort=-trouble",
        )
    if status.under_replicated:
        yield Problem(
            f"{_counted(len(status.under_replicated))} without all replicas in sync: "
            f"{_named(status.under_replicated)}",
            "Start the brokers that are missing.",
            "/topics?sort=-trouble",
            is_bad=False,
        )


def problems_of_gateway(status: Status) -> Iterator[Problem]:
    """Yield what only the gateway itself reports."""
    for offline in status.offline_partitions[:MOST_NAMED]:
        yield Problem(
            f"Partition {offline.partition} of {offline.topic} is out of service",
            f"{offline.reason}. When the disk is well, run: seqgate reopen {offline.topic} "
            f"{offline.partition}",
            f"/topics/{offline.topic}",
        )
    if status.is_disk_short:
        yield Problem(
            "The disk is nearly full, and producers are refused",
            "Delete topics, shorten their retention, or add space.",
        )
    if status.producer_id_store_error is not None:
        yield Problem("New producer ids can't be claimed", status.producer_id_store_error)
    for row in status.damaged[:MOST_NAMED]:
        yield Problem(
            f"Offsets {row.first_offset:,} to {row.end_offset - 1:,} of {row.topic}-{row.partition} are "
            "damaged",
            "Consumers get an error there. Stop the gateway, and run: seqgate repair",
            f"/topics/{row.topic}",
        )
    if status.bucket is not None and status.bucket.is_behind:
        yield Problem(
            "The bucket is behind, and producers are refused", "Check the bucket and the network to it."
        )
    for sentence in status.missing_workers:
        yield Problem("A worker does not answer", sentence)
    for certificate in status.certificates:
        if certificate.warning is not None:
            yield Problem(
                f"The certificate of listener {certificate.listener} needs care",
                certificate.warning,
                is_bad=False,
            )


def _counted(number: int) -> str:
    return "1 partition is" if number == 1 else f"{number:,} partitions are"


def _named(rows: Sequence[TroubledPartition]) -> str:
    named = ", ".join(f"{row.topic}-{row.partition}" for row in rows[:MOST_NAMED])
    return named if len(rows) <= MOST_NAMED else f"{named} and {len(rows) - MOST_NAMED:,} more"


# The overview: what is wrong first, then the figures over time.

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


def overview(visit: Visit) -> PageAnswer:
    """Show what is wrong, and the state of the cluster."""
    with visit.cluster() as cluster:
        status = visit.status(cluster)
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
            "problems": sorted(problems, key=lambda problem: not problem.is_bad),
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
        return None, [*problems, Problem("What only the gateway knows is missing", str(error), is_bad=False)]


PAGE: Final = Page(
    "Overview",
    PageGroup.NOW,
    "o",
    Get("/", overview, waits_for="the state of the brokers"),
    Feed("/api/figures", lambda visit: visit.figures(SERIES)),
)
