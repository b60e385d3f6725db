"""The overview: what is wrong with the cluster and the gateway first, then the figures over time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.remote.operations import RemoteClient
from seqgate.gateway.admin.request import ControlError, Unreachable
from seqgate.gateway.admin.status import ClusterStatus, StatusRequest
from seqgate.gateway.admin.transactions.hanging import FindHangingRequest
from seqgate.gateway.admin.transactions.list_and_describe import rows_of
from seqgate.gateway.console.answer import PageAnswer, View
from seqgate.gateway.console.asking.connections import kept
from seqgate.gateway.console.asking.groups import group_figures, group_lines
from seqgate.gateway.console.health import Facts, GroupSamples, OpenTransaction, Problem, full_in_ms, judge
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.gateways import COUNTED, GATEWAYS
from seqgate.gateway.console.metrics.history import (
    DAY_MS,
    DISK_FREE,
    HOUR_MS,
    LAG,
    QUARTER_MS,
    TOPIC_LAG,
    TOPIC_RECORDS,
)
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Visit, status_of
from seqgate.gateway.console.pages.transactions import TransactionFilter, listed

SERIES: Final = (
    rates.RECORDS,
    rates.BYTES_IN,
    rates.BYTES_OUT,
    rates.PRODUCE_P99,
    rates.DUPLICATES,
    rates.REFUSALS,
    rates.CONNECTIONS,
    rates.LOOP_DELAY,
    GATEWAYS,
    COUNTED,
)
MOST_GROUPS: Final = 200
"""Groups whose lag counts; the page says when there are more."""
MOST_TRANSACTIONS: Final = 200
"""Open transactions whose age is judged."""
MOST_PARTITIONS: Final = 500
"""Partitions that are asked for hanging transactions over the Kafka protocol; in a larger cluster only
--metrics tells them.
"""
DISK_MS: Final = 6 * HOUR_MS
"""The time over which the growth of a disk is judged."""

A = TypeVar("A")


def overview(visit: Visit) -> PageAnswer:
    """Show what is wrong, and the state of the cluster. While nothing answers, the charts stay."""
    notes: list[Problem] = []
    try:
        with ThreadPoolExecutor(2) as meanwhile:
            # a page waits once for brokers and a listener that are silent
            asked = meanwhile.submit(visit.told_by_gateways, StatusRequest())
            readiness = meanwhile.submit(_readiness, visit)
            with visit.partial() as cluster:
                status, silent = status_of(cluster), cluster.silent
            (told, untold), trouble = asked.result(), readiness.result()
    except Unreachable as error:
        advice = f"{error}. This page asks again by itself."
        return View(
            "overview.html", {**_nothing(visit), "problems": [Problem("The cluster does not answer", advice)]}
        )
    missing = untold if told is None else told.note
    if missing is not None:
        trouble.append(_missing(missing))
    trouble = [problem for problem in trouble if not _note_right(visit, notes, problem.advice)]
    groups = _asked(visit, notes, lambda cluster: _groups(visit, cluster))
    transactions = _asked(visit, notes, _transactions)
    hanging = None if silent else _hanging(visit, notes, status)
    disks = {
        str(broker.node_id): visit.history.series(DISK_FREE, {"broker": str(broker.node_id)}, DISK_MS)
        for broker in status.brokers
        if broker.log_dirs
    }
    for broker in status.brokers:
        if broker.error is not None:
            _note_right(visit, notes, broker.error)
    produce_p99 = visit.history.series(rates.PRODUCE_P99, {}, QUARTER_MS)
    health = judge(
        Facts(
            status,
            None if told is None else told.answers,
            told is not None and (bool(told.silent) or len(told.answers) < told.of),
            groups,
            transactions,
            hanging,
            visit.history.series(rates.OLDEST_TRANSACTION, {}, DAY_MS),
            produce_p99 if produce_p99.known() else None,
            disks,
            visit.console.options.p99_limit_ms,
        )
    )
    sizes = [directory for broker in status.brokers for directory in broker.log_dirs]
    free = [directory.free_bytes for directory in sizes if directory.free_bytes is not None]
    full = [found for each in disks.values() if (found := full_in_ms(each)) is not None]
    lags = [row.lag for row in groups or () if row.lag is not None]
    problems = sorted([*trouble, *health.problems], key=lambda problem: not problem.is_bad)
    return View(
        "overview.html",
        {
            **_nothing(visit),
            "status": status,
            "silent": silent,
            "told": () if told is None else told.answers,
            "problems": problems,
            "notes": notes,
            "unjudged": health.unjudged,
            "used_bytes": sum(directory.used_bytes for directory in sizes) if sizes else None,
            "free_bytes": min(free, default=None),
            "full_ms": min(full, default=None),
            "groups": groups,
            "most_groups": MOST_GROUPS,
            "lag": sum(lags) if groups is not None else None,
            "open_transactions": transactions,
            "is_empty": status.topics == status.internal_topics,
            "has_login": bool(visit.user),
        },
    )


def _nothing(visit: Visit) -> dict[str, Any]:
    """Return what the page shows while nothing answers: the charts, and of how many gateways they are."""
    nothing = {"status": None, "silent": (), "notes": (), "unjudged": (), "is_empty": False}
    return {**nothing, "gateways": visit.gateway_figures()}


def _asked(visit: Visit, notes: list[Problem], ask: Callable[[Cluster], A]) -> A | None:
    """Return an answer of the cluster; None without one. A missing right becomes a note, no problem."""
    try:
        with visit.partial() as cluster:
            return ask(cluster)
    except ControlError as error:
        _note_right(visit, notes, str(error))
        return None


def _note_right(visit: Visit, notes: list[Problem], error: str) -> bool:
    """Note, once, the right that an error asks for; return whether it asks for one."""
    lack = visit.missing_right(error)
    if lack is None:
        return False
    note = Problem("You may not see all of this", lack.sentence, is_bad=False, command=lack.command)
    if note not in notes:
        notes.append(note)
    return True


def _readiness(visit: Visit) -> list[Problem]:
    """Return what is wrong with the word of the gateway behind --metrics about being ready."""
    if not visit.has_metrics:
        return []
    try:
        is_ready, words = visit.listener().readiness()
    except ControlError as error:
        return [_missing(str(error))]
    return [] if is_ready else [Problem("The gateway says that it is not ready", words)]


def _missing(reason: str) -> Problem:
    return Problem("What only the gateway knows is missing", reason, is_bad=False)


def _groups(visit: Visit, cluster: Cluster) -> list[GroupSamples]:
    """Return the groups that this person may describe, with their lag over the last minutes."""
    return [
        GroupSamples(
            group,
            found.lag,
            found.members,
            visit.history.series(LAG, {"group": group}, QUARTER_MS),
            {
                topic: (
                    visit.history.series(TOPIC_LAG, {"group": group, "topic": topic}, QUARTER_MS),
                    visit.history.series(TOPIC_RECORDS, {"topic": topic}, QUARTER_MS),
                )
                for topic in found.topics
            },
        )
        for group, found in sorted(group_figures(cluster, group_lines(cluster)[:MOST_GROUPS]).items())
    ]


def _transactions(cluster: Cluster) -> list[OpenTransaction]:
    names = [row.transactional_id for row in listed(cluster, TransactionFilter(state="Ongoing"))]
    return [
        OpenTransaction(row.transactional_id, row.age_ms, row.timeout_ms)
        for row in rows_of(cluster, names[:MOST_TRANSACTIONS])
        if row.age_ms is not None
    ]


@kept(60.0)
def _hanging_count(cluster: Cluster) -> int:
    return len(RemoteClient(cluster).ask(FindHangingRequest()).hanging)


def _hanging(visit: Visit, notes: list[Problem], status: ClusterStatus) -> int | None:
    """Return how many transactions hang; None where asking costs too much, or nobody answers. All brokers
    must answer: a transaction hangs if none of them knows it.
    """
    told, _ = visit.told(FindHangingRequest())
    if told is not None:
        return len(told.hanging)
    if status.partitions > MOST_PARTITIONS:
        return None
    return _asked(visit, notes, _hanging_count)


PAGE: Final = Page(
    "Overview",
    PageGroup.NOW,
    "o",
    Get("/", overview, waits_for="the state of the brokers"),
    Feed("/api/figures", lambda visit: visit.figures(SERIES)),
)
