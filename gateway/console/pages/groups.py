"""The groups: their list, one group, and the reset and deletion of its offsets."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seqgate.gateway.admin.groups.deletion import DeleteGroupsRequest
from seqgate.gateway.admin.groups.describing import (
    EMPTY_STATES,
    DescribeGroupRequest,
    committed_offsets,
    listed,
)
from seqgate.gateway.admin.groups.listing import ClusterList
from seqgate.gateway.admin.groups.members import SHARE, STREAMS, assigned
from seqgate.gateway.admin.groups.reset import (
    OffsetChange,
    OffsetReset,
    ResetOffsetsRequest,
    ResetTarget,
    TopicSelection,
)
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.remote.operations import RemoteClient
from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError
from seqgate.gateway.admin.tables import counted, shown
from seqgate.gateway.admin.times import timestamp_ms
from seqgate.gateway.console.answer import (
    Confirmation,
    PageAnswer,
    Redirect,
    View,
    address,
    ordered,
    page_of,
    typed_for,
)
from seqgate.gateway.console.asking.groups import (
    KINDS,
    TOTAL,
    UNKNOWN,
    GroupFigures,
    GroupLetters,
    GroupLine,
    group_figures,
    group_lines,
    kind_of,
    lag_by_topic,
    newest_letters,
    series_of,
)
from seqgate.gateway.console.asking.topics import topic_lines
from seqgate.gateway.console.metrics.history import HOUR_MS, LAG, TOPIC_LAG, Key, key_of
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Post, Visit, above_form
from seqgate.gateway.console.pages.topics import spark

MOST_COMPARED: Final = 10_000
"""Groups whose lags are compared at a time; for more, the list asks for a filter."""
MOST_SORTED: Final = 500
"""Groups of a list that is sorted by lag without being asked to; more are sorted by name, which is quick."""
_KEYS: Final[Mapping[str, Callable[[tuple[GroupLine, GroupFigures]], Any]]] = {
    "group": lambda row: row[0].group,
    "kind": lambda row: (row[0].kind, row[0].group),
    "state": lambda row: (row[0].state, row[0].group),
    "members": lambda row: row[1].members,
    "lag": lambda row: row[1].lag,
}
_FIGURES: Final = ("members", "lag")


def groups(visit: Visit) -> PageAnswer:
    """Show the groups that match the filters; figures of those on the page, unless a filter needs all."""
    wanted, kind = visit.text("filter").strip(), visit.text("kind")
    state, topic, sort = visit.text("state"), visit.text("topic").strip(), visit.text("sort")
    compares = bool(topic) or sort.removeprefix("-") in _FIGURES
    with visit.partial() as cluster:
        lines = group_lines(cluster)
        rows = [
            (line, UNKNOWN)
            for line in lines
            if wanted.lower() in line.group.lower() and kind in ("", line.kind) and state in ("", line.state)
        ]
        if not sort:
            sort = "-lag" if len(rows) <= MOST_SORTED else "group"
            compares = compares or sort != "group"
        if compares and len(rows) > MOST_COMPARED:
            raise ControlError(
                f"the console compares at most {MOST_COMPARED:,} groups by members, lag or topic, and "
                f"{len(rows):,} match; filter by name, kind or state first"
            )
        if compares:
            rows = [row for row in _with_figures(cluster, rows) if topic in ("", *row[1].topics)]
        shown, paging = page_of(ordered(rows, sort, _KEYS, "group"), visit.number("page", 1, 1))
        if not compares:
            shown = _with_figures(cluster, shown)
        offline, silent = ClusterList(cluster).offline_partitions, cluster.silent
    return View(
        "groups.html",
        {
            "rows": shown,
            "offline": offline,
            "silent": silent,
            "sparks": {
                line.group: spark(visit.history.series(LAG, {"group": line.group}, HOUR_MS))
                for line, _ in shown
            },
            "paging": paging,
            "wanted": wanted,
            "kind": kind,
            "state": state,
            "topic": topic,
            "sort": sort,
            "kinds": KINDS,
            "states": sorted({line.state for line in lines} | ({state} if state else set())),
            "all_groups": len(lines),
            "by_state": sorted(Counter(line.state for line in lines).items()),
            "query": {"filter": wanted, "kind": kind, "state": state, "topic": topic},
        },
    )


def _with_figures(
    cluster: Cluster, rows: Sequence[tuple[GroupLine, GroupFigures]]
) -> list[tuple[GroupLine, GroupFigures]]:
    lines = [line for line, _ in rows]
    figures = group_figures(cluster, lines)
    return [(line, figures.get(line.group, UNKNOWN)) for line in lines]


# Deletes a group with its offsets.


def delete(visit: Visit) -> PageAnswer:
    """Delete a group after the person has typed its name. Raises ControlError for a group with members."""
    group = group_of(visit)
    typed = typed_for(group)
    is_confirmed = visit.is_confirmed and visit.text("typed") == typed
    (outcome,) = visit.ask(DeleteGroupsRequest([group], execute=is_confirmed)).groups
    if outcome.refusal is not None:
        raise ControlError(outcome.refusal)
    if is_confirmed:
        group_lines.forget()
        return Redirect("/groups", notice=f"Group {shown(group)} is deleted.")
    return Confirmation(
        title=f"Delete group {shown(group)}?",
        action="Delete the group",
        back=address("/groups/view", group=group),
        sentences=(
            (
                f"The group's committed offsets in {counted(outcome.committed_partitions, 'partition')} are "
                "deleted with it."
            ),
            "A consumer that joins a group of this name afterwards begins where its auto.offset.reset says.",
        ),
        typed=typed,
        is_danger=True,
    )


# Moves the committed offsets of a group: the form, the preview, and the change.

MOST_SHOWN: Final = 200
"""Partitions in the preview; the totals count all."""
TARGETS: Final = (
    ("earliest", "the earliest record"),
    ("latest", "the end: skip everything"),
    ("time", "a time"),
    ("offset", "an offset"),
    ("shift", "some records forward or back"),
    ("current", "the offset committed now, moved into the log"),
)
_FIELDS: Final = ("target", "offset", "shift", "at", "at_ms", "topic", "partitions")
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_MOST_PARTITIONS: Final = 100_000
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """A partition in the preview. `skipped` records will not be read, `again` records will be read again."""

    change: OffsetChange
    skipped: int
    again: int


def reset_form(visit: Visit, problem: str | None = None) -> View:
    """Show the form, and below it what the reset that the address describes would change."""
    group, status = group_of(visit), 200 if problem is None else 400
    preview: OffsetReset | None = None
    with visit.cluster() as cluster:
        row = listed(cluster).get(group)
        topics = sorted({topic for topic, _ in committed_offsets(cluster, [group]).get(group, {})})
        state = None if row is None else row.state
        if visit.text("target") and problem is None:
            try:
                preview = RemoteClient(cluster).ask(_request(visit))
            except ControlError as error:
                problem = str(error)
    moved = [] if preview is None else moves(preview.changes)
    return View(
        "group_reset.html",
        {
            "group": group,
            "state": state,
            "is_empty": state is None or state in EMPTY_STATES,
            "topics": topics,
            "targets": TARGETS,
            "given": {name: visit.text(name) for name in _FIELDS},
            "problem": problem,
            "moved": moved[:MOST_SHOWN],
            "all_moved": len(moved),
            "has_preview": preview is not None,
            "skipped": sum(each.skipped for each in moved),
            "again": sum(each.again for each in moved),
        },
        status,
    )


def moves(changes: Sequence[OffsetChange]) -> list[MovedOffset]:
    """Return how many records each change skips or reads again; 0 where no offset tells what was read."""
    return [
        MovedOffset(change, max(0, change.new_offset - before), max(0, before - change.new_offset))
        for change in changes
        for before in [change.new_offset if change.committed_offset is None else _in_log(change)]
    ]


def _in_log(change: OffsetChange) -> int:
    """Return the committed offset, or the nearest that the log has: others can't be read."""
    assert change.committed_offset is not None
    return min(max(change.committed_offset, change.log_start_offset), change.high_watermark)


@above_form(reset_form, "Nothing is changed: ")
def reset(visit: Visit) -> PageAnswer:
    """Reset the offsets after a confirmation."""
    group = group_of(visit)
    done = visit.ask(_request(visit, execute=visit.is_confirmed))
    moved = moves(done.changes)
    skipped, again = sum(each.skipped for each in moved), sum(each.again for each in moved)
    partitions = counted(len(moved), "partition")
    if visit.is_confirmed:
        group_lines.forget()
        return Redirect(
            address("/groups/view", group=group),
            notice=f"The offsets of group {shown(group)} in {partitions} are committed.",
        )
    return Confirmation(
        title=f"Reset the offsets of group {shown(group)}?",
        action="Reset the offsets",
        back=address("/groups/reset", group=group, **{name: visit.text(name) for name in _FIELDS}),
        sentences=(
            (f"The group will read {again:,} records again, and skip {skipped:,} records, in {partitions}."),
            "The group must stay without members until then; the console checks this once more.",
        ),
        changes=[_shown(each) for each in moved[:MOST_SHOWN]],
        is_danger=skipped > 0,
    )


def _shown(moved: MovedOffset) -> tuple[str, str, str]:
    change = moved.change
    before = "no offset" if change.committed_offset is None else f"{change.committed_offset:,}"
    return f"{change.topic}-{change.partition}", before, f"{change.new_offset:,}"


def _request(visit: Visit, *, execute: bool = False) -> ResetOffsetsRequest:
    """Return the reset that the fields describe. Raises ControlError."""
    target, value = _target(visit)
    topic = visit.text("topic").strip()
    partitions = parse_partitions(visit.text("partitions"))
    if partitions is not None and not topic:
        raise ControlError("partitions need a topic; choose the topic, or leave the partitions empty")
    topics = [TopicSelection(topic, partitions)] if topic else None
    return ResetOffsetsRequest(group_of(visit), target, value, topics, execute)


def _target(visit: Visit) -> tuple[ResetTarget, int]:
    match visit.text("target"):
        case "earliest":
            return "earliest", 0
        case "latest":
            return "latest", 0
        case "offset":
            return "offset", _needed(visit, "offset", 0)
        case "shift":
            return "shift", _needed(visit, "shift", -_LARGEST)
        case "time":
            return "timestamp", _time_ms(visit)
        case "current":
            return "shift", 0
        case other:
            raise ControlError(f"there is no target {other[:40]!r}; choose one of the form's")


def _needed(visit: Visit, name: str, lowest: int) -> int:
    found = visit.optional_number(name, lowest)
    if found is None:
        raise ControlError(f"{name} is empty; give a number")
    return found


def _time_ms(visit: Visit) -> int:
    """Return the time of the form: milliseconds that the browser made of its zone's time, or a text, in UTC
    unless it names a zone.
    """
    exact = visit.optional_number("at_ms")
    if exact is not None:
        return exact
    text = visit.text("at").strip()
    if not text:
        raise ControlError("the time is empty; choose a day and a time")
    try:
        return timestamp_ms(text, dt.UTC)
    except ValueError as error:
        raise ControlError(str(error)) from None


def parse_partitions(text: str) -> list[int] | None:
    """Return the partitions of `0, 3, 5-7`; None for an empty text. Raises ControlError."""
    if not text.strip():
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ControlError(f"partitions must be numbers such as 0, 3, 5-7, not {text[:40]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST_PARTITIONS:
            raise ControlError(f"a topic has no {last - first + 1:,} partitions; name fewer of them")
        found.update(range(first, last + 1))
    return sorted(found)


# One group: its members, its partitions, and its lag over time.

MOST_TOPICS: Final = 3
"""Topics that the chart shows beside the whole group: those with the most lag."""
MOST_MEMBERS: Final = 200
"""Members that the page lists; it counts the others."""
MOST_NODES: Final = 200
"""Nodes of a topology that the page lists."""


def group_of(visit: Visit) -> str:
    """Return the group that the address or the form names. Raises ControlError."""
    group = visit.text("group")
    if not group:
        raise ControlError("the address names no group; open the list of groups, and choose one")
    return group


def view(visit: Visit) -> PageAnswer:
    group = group_of(visit)
    with visit.cluster() as cluster:
        description = RemoteClient(cluster).ask(DescribeGroupRequest(group=group))
        is_share = description.type == SHARE
        letters = newest_letters(cluster, group) if is_share else GroupLetters()
    told, trouble = visit.told(DescribeGroupRequest(group=group, limit=MAX_PAGE_ROWS))
    # The rows of the gateway have more fields than the cluster's own.
    own = {} if told is None else {(row.topic, row.partition): row for row in told.partitions}
    partitions = [own.get((row.topic, row.partition), row) for row in description.partitions]
    topic = visit.text("topic").strip()
    shown = [row for row in partitions if topic in ("", row.topic)]
    rows, paging = page_of(shown, visit.number("page", 1, 1))
    topics = sorted({row.topic for row in partitions})
    lags: Counter[str] = Counter()
    for row in partitions:
        lags[row.topic] += row.lag or 0
    busiest = [topic for topic, _ in lags.most_common(MOST_TOPICS)]
    is_sampled = _sampled(visit, group)
    splits = not is_sampled or visit.console.sampler.asks_cluster  # metrics tell the whole lag only
    return View(
        "group.html",
        {
            "group": group,
            "found": description,
            "kind": kind_of(description.type, description.protocol_type),
            "is_share": is_share,
            "letters": letters,
            "is_streams": description.type == STREAMS,
            "is_empty": description.state in EMPTY_STATES,
            "members": description.members[:MOST_MEMBERS],
            "all_members": len(description.members),
            "nodes": description.topology[:MOST_NODES],
            "all_nodes": len(description.topology),
            "trouble": trouble,
            "leaders": set() if told is None else {each.member_id for each in told.members if each.is_leader},
            "has_times": bool(own),
            "assigned": assigned,
            "rows": rows,
            "paging": paging,
            "topic": topic,
            "topics": topics,
            "all_partitions": len(partitions),
            "lag": lags.total(),
            "pending": [held for row in own.values() for held in row.pending],
            "series": _series(busiest, topics if splits else ()),
            "is_sampled": is_sampled,
            "splits": splits,
            "lag_feed": address(
                "/api/groups/lag",
                group=group,
                share="yes" if is_share else None,
                topic=busiest if splits and len(topics) > 1 else None,
            ),
        },
    )


def _series(busiest: Sequence[str], topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return the chart's series with their labels; a group with one topic has the whole alone."""
    if len(topics) <= 1:
        return [(TOTAL, "lag")]
    return [(TOTAL, "all topics"), *((series_of(topic), topic) for topic in busiest)]


def lag(visit: Visit) -> PageAnswer:
    """Return the lag of a group over a time. The sampler reads it always, and where it can't ask, as this
    person while somebody looks.
    """
    group, is_share = group_of(visit), visit.text("share") == "yes"

    def read() -> Mapping[str, float | None]:
        with visit.cluster() as cluster:
            return lag_by_topic(cluster, group, is_share=is_share)

    topics = visit.query.get("topic", ())
    is_sampled = _sampled(visit, group)
    if is_sampled and visit.user:
        topics = _visible(visit, group, topics)
    names = [TOTAL, *map(series_of, topics)]
    if is_sampled:
        return visit.chart(visit.history, {name: _key(group, name) for name in names})
    history = visit.console.sampler.watches.history(f"lag {visit.user} {is_share} {group}", read)
    return visit.chart(history, {name: Key(name) for name in names})


def _sampled(visit: Visit, group: str) -> bool:
    return _key(group, TOTAL) in visit.history


def _key(group: str, name: str) -> Key:
    """Return the key of a series of the chart in the history."""
    if name == TOTAL:
        return key_of(LAG, {"group": group})
    return key_of(TOPIC_LAG, {"group": group, "topic": name.removeprefix(series_of(""))})


def _visible(visit: Visit, group: str, topics: Sequence[str]) -> list[str]:
    """Return which of the topics of a group that the console has sampled the person may see. Raises
    ControlError for a group that the person may not see.
    """
    with visit.cluster() as cluster:
        if all(line.group != group for line in group_lines(cluster)):
            raise ControlError(f"there is no group {group[:200]} that you may describe")
        visible = {line.name for line in topic_lines(cluster)} if topics else set()
    return [topic for topic in topics if topic in visible]


PAGE: Final = Page(
    "Groups",
    PageGroup.CLIENTS,
    "g",
    Get("/groups", groups, waits_for="the list of groups"),
    Get("/groups/view", view, waits_for="the group's members and offsets"),
    Feed("/api/groups/lag", lag),
    Get("/groups/reset", reset_form, waits_for="the offsets of the group"),
    Post("/groups/reset", reset),
    Post("/groups/delete", delete),
)
