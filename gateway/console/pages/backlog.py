"""The records that groups have not read yet: the backlog of a topic with its quota, and delayed records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.backlog import ELSEWHERE, BacklogPage, BacklogRequest, joined_backlogs
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.answer import Data, PageAnswer, View, page_of
from seqgate.gateway.console.asking.topics import topic_settings
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.history import Key
from seqgate.gateway.console.page import Feed, Gathered, Get, NoGateways, Page, PageGroup, Visit
from seqgate.gateway.console.pages.gateway import limits_told

BYTES: Final = "backlog.quota.bytes"
AGE: Final = "backlog.quota.ms"
POLICY: Final = "backlog.quota.policy"
TTL: Final = "message.ttl.ms"
ROWS: Final = 100
"""Groups of all partitions of a page."""
MOST_FILLED: Final = 50
"""Topics of the list whose backlog is asked for, to show how full their quotas are."""
MOST_ROWS: Final = 10_000
"""Groups that the chart adds up; it lacks those of further partitions."""
BYTES_SERIES: Final = "backlog_bytes"
AGE_SERIES: Final = "backlog_age_ms"


class LimitedTopic(NamedTuple):
    """A topic with a quota or a TTL; None where a limit is not set."""

    name: str
    quota_bytes: int | None
    quota_ms: int | None
    policy: str
    ttl_ms: int | None


def backlog(visit: Visit) -> PageAnswer:
    """Show the topics with a limit, and the backlog of one topic."""
    topic = visit.text("topic") or None
    with visit.partial() as cluster:
        settings = topic_settings(cluster, (BYTES, AGE, POLICY, TTL))
    after = visit.optional_number("after", -1)
    told: Gathered[BacklogPage] | None = None
    found: BacklogPage | None = None
    if topic is not None:
        with suppress(NoGateways):
            told = visit.ask_gateways(BacklogRequest(topic, after, limit=ROWS))
            found = joined_backlogs(told.answers)
    topics = limited(settings)
    shares, trouble = ({}, None) if topic is not None else _shares(visit, topics)
    return View(
        "backlog.html",
        {
            "topics": topics,
            "shares": shares,
            "trouble": trouble,
            "all_topics": sorted(settings),
            "topic": topic,
            "told": told,
            "found": found,
            "begins": after is not None,
            "after": after,
            "next": None if found is None or found.complete else found.partitions[-1].partition,
        },
    )


def limited(settings: Mapping[str, Mapping[str, str]]) -> list[LimitedTopic]:
    rows = [
        LimitedTopic(
            name,
            _limit(values.get(BYTES)),
            _limit(values.get(AGE)),
            values.get(POLICY, ""),
            _limit(values.get(TTL)),
        )
        for name, values in sorted(settings.items())
    ]
    return [row for row in rows if (row.quota_bytes, row.quota_ms, row.ttl_ms) != (None, None, None)]


def _shares(visit: Visit, topics: Iterable[LimitedTopic]) -> tuple[dict[str, float], str | None]:
    """Return how full the quota of each topic is, where gateways tell it, or why they do not."""
    limited = [row.name for row in topics if row.quota_bytes or row.quota_ms]
    shares: dict[str, float] = {}
    for name in limited[:MOST_FILLED]:
        try:
            found = visit.ask_gateways(BacklogRequest(name, limit=ROWS))
        except NoGateways:
            break
        except ControlError as error:
            return shares, str(error)
        shares[name] = max(map(share_of, found.answers))
        if found.silent:  # one that lets a page wait would do so for each topic
            return shares, found.trouble
    return shares, None


def share_of(page: BacklogPage) -> float:
    """Return the share of its quota that the fullest partition of a topic has, by size or by age."""
    shares = [
        value / quota
        for row in page.partitions
        for value, quota in ((row.backlog_bytes, page.quota_bytes), (row.age_ms, page.quota_ms))
        if value is not None and quota > 0
    ]
    return max(shares, default=0.0)


def _limit(text: str | None) -> int | None:
    """Return a limit; None for -1, which means none, and where the cluster does not know the setting."""
    return None if text is None or text.startswith("-") else int(text)


def backlog_figures(visit: Visit) -> PageAnswer:
    topic = visit.text("topic")

    def read() -> dict[str, float | None]:
        found = visit.ask_gateways(BacklogRequest(topic, limit=MOST_ROWS))
        rows = joined_backlogs(found.answers).partitions
        if found.silent or any(row.untold for row in rows):
            return {}  # a gap, in place of a fall that nobody caused
        ages = [row.age_ms for row in rows if row.age_ms is not None]
        return {BYTES_SERIES: sum(row.backlog_bytes for row in rows), AGE_SERIES: max(ages, default=0)}

    history = visit.console.sampler.watches.history(f"backlog {visit.user!r} {topic!r}", read)
    return visit.chart(history, {name: Key(name) for name in (BYTES_SERIES, AGE_SERIES)})


def partitions(visit: Visit) -> PageAnswer:
    """Return what the table shows of each partition now, for the island."""
    told = visit.ask_gateways(
        BacklogRequest(visit.text("topic"), visit.optional_number("after", -1), limit=ROWS)
    )
    page = joined_backlogs(told.answers)
    rows: dict[str, dict[str, Any]] = {
        str(row.partition): {
            "bytes": None if row.untold else row.backlog_bytes,
            "age_ms": row.age_ms,
            "slowest": row.slowest,
            "verdict": row.verdict,
            "refused": row.refused,
            "node": None if row.verdict == ELSEWHERE else row.node_id,
        }
        for row in page.partitions
    }
    return Data({"rows": rows, "error": told.trouble})


# The delayed records: how many wait, and in which topics records can wait.

HEADER: Final = "delivery.delay.header"
LONGEST: Final = "delivery.delay.max.ms"
HOLD: Final = "delivery.delay.hold.ms"
LIMIT: Final = "seqgate.delayed.records.max"


class DelayingTopic(NamedTuple):
    name: str
    header: str
    longest_ms: int | None
    hold_ms: int | None


def delayed(visit: Visit) -> PageAnswer:
    """Show the topics with a header for delays, and how many records wait."""
    with visit.partial() as cluster:
        settings = topic_settings(cluster, (HEADER, LONGEST, HOLD))
    topics = [
        DelayingTopic(name, values[HEADER], _number(values.get(LONGEST)), _number(values.get(HOLD)))
        for name, values in sorted(settings.items())
        if values.get(HEADER)
    ]
    rows, paging = page_of(topics, visit.number("page", 1, 1))
    told, trouble, limits = limits_told(visit)
    waiting = [row for row in limits if row.setting == LIMIT]
    return View(
        "delayed.html", {"rows": rows, "paging": paging, "told": told, "trouble": trouble, "waiting": waiting}
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


BACKLOG_PAGE: Final = Page(
    "Backlog",
    PageGroup.CLIENTS,
    "b",
    Get("/backlog", backlog, waits_for="the settings of the topics"),
    Feed("/api/backlog", backlog_figures),
    Feed("/api/backlog/partitions", partitions),
)


DELAYED_PAGE: Final = Page(
    "Delayed records",
    PageGroup.DATA,
    "d",
    Get("/delayed", delayed, waits_for="the settings of the topics"),
    Feed("/api/delayed", lambda visit: visit.figures((rates.DELAYED,))),
)
