"""One group: its members, its partitions, and its lag over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.admin.groups.assigned import assigned
from gateway.admin.groups.messages import (
    DescribeGroupRequest,
    GroupDescription,
    GroupMember,
    GroupPartition,
)
from gateway.admin.groups.remote import EMPTY_STATES, SHARE, STREAMS, describe_group
from gateway.admin.request import MAX_PAGE_ROWS, ControlError
from gateway.admin.transactions.messages import PendingOffset
from gateway.console.asking.groups import SIMPLE, TOTAL, lag_by_topic, series_of
from gateway.console.page import Answer, Data, View, Visit, page_of
from gateway.console.pages.links import link

MOST_TOPICS: Final = 3
"""Topics that the chart shows beside the whole group: those with the most lag."""
MOST_MEMBERS: Final = 200
"""Members that the page lists; it counts the others."""


class GatewayFacts(NamedTuple):
    """The facts of a group that only the gateway tells: partitions by place, members by id. `trouble` says why they are missing."""

    partitions: Mapping[tuple[str, int], GroupPartition]
    members: Mapping[str, GroupMember]
    trouble: str | None


def group_of(visit: Visit) -> str:
    """Return the group that the address or the form names. Raises ControlError."""
    group = visit.text("group")
    if not group:
        raise ControlError("the address names no group; open the list of groups, and choose one")
    return group


def view(visit: Visit) -> Answer:
    """Show a group."""
    group = group_of(visit)
    with visit.cluster() as cluster:
        description = describe_group(cluster, DescribeGroupRequest(group=group))
    facts = _facts(visit, group)
    partitions = [_with_facts(row, facts) for row in description.partitions]
    topic = visit.text("topic").strip()
    shown = [row for row in partitions if topic in ("", row.topic)]
    rows, paging = page_of(shown, visit.number("page", 1, 1))
    topics = sorted({row.topic for row in partitions})
    busiest = _busiest(partitions)
    return View(
        "group.html",
        {
            "group": group,
            "found": description,
            "kind": _kind(description),
            "is_share": description.type == SHARE,
            "is_streams": description.type == STREAMS,
            "is_empty": description.state in EMPTY_STATES,
            "members": description.members[:MOST_MEMBERS],
            "all_members": len(description.members),
            "facts": facts,
            "assigned": assigned,
            "rows": rows,
            "paging": paging,
            "topic": topic,
            "topics": topics,
            "all_partitions": len(partitions),
            "lag": sum(row.lag or 0 for row in partitions),
            "pending": _pending(facts.partitions.values()),
            "series": _series(busiest, topics),
            "lag_feed": link(
                "/api/groups/lag",
                group=group,
                share="yes" if description.type == SHARE else None,
                topic=busiest if len(topics) > 1 else None,
            ),
        },
    )


def _kind(description: GroupDescription) -> str:
    is_simple = description.type == "classic" and not description.protocol_type
    return SIMPLE if is_simple else description.type


def _facts(visit: Visit, group: str) -> GatewayFacts:
    """Ask the gateway behind --metrics, where there is one."""
    if not visit.has_metrics:
        return GatewayFacts({}, {}, None)
    try:
        told = visit.ask_gateway(DescribeGroupRequest(group=group, limit=MAX_PAGE_ROWS))
    except ControlError as error:
        return GatewayFacts({}, {}, str(error))
    return GatewayFacts(
        {(row.topic, row.partition): row for row in told.partitions},
        {member.member_id: member for member in told.members},
        None,
    )


def _with_facts(row: GroupPartition, facts: GatewayFacts) -> GroupPartition:
    """Return the row of the gateway, which has more fields, or else the cluster's own."""
    return facts.partitions.get((row.topic, row.partition), row)


def _pending(rows: Iterable[GroupPartition]) -> list[PendingOffset]:
    return [held for row in rows for held in row.pending]


def _busiest(rows: Sequence[GroupPartition]) -> list[str]:
    lags: Counter[str] = Counter()
    for row in rows:
        lags[row.topic] += row.lag or 0
    return [topic for topic, _ in lags.most_common(MOST_TOPICS)]


def _series(busiest: Sequence[str], topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return the series of the chart with their labels; the topics of a group with one topic are the whole."""
    if len(topics) <= 1:
        return [(TOTAL, "lag")]
    return [(TOTAL, "all topics"), *((series_of(topic), topic) for topic in busiest)]


def lag(visit: Visit) -> Answer:
    """Return the lag of a group since a time; the sampler reads it while somebody looks."""
    group, is_share = group_of(visit), visit.text("share") == "yes"

    def read() -> Mapping[str, float | None]:
        with visit.cluster() as cluster:
            return lag_by_topic(cluster, group, is_share=is_share)

    names = [TOTAL, *(series_of(topic) for topic in visit.query.get("topic", ()))]
    history = visit.console.sampler.watches.history(f"lag {visit.user} {is_share} {group}", read)
    times, series = history.since(visit.number("after", 0), names)
    return Data({"times": times, "series": series, "error": None})
