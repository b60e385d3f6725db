"""Moves the committed offsets of a group: the form, the preview, and the change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.admin.groups.messages import (
    OffsetChange,
    OffsetReset,
    ResetOffsetsRequest,
    ResetTarget,
    TopicSelection,
)
from gateway.admin.groups.remote import EMPTY_STATES, committed_offsets, listed, reset_offsets
from gateway.admin.printing import shown
from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.admin.times import timestamp_ms
from gateway.console.asking.groups import group_lists
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit
from gateway.console.pages.groups_view import group_of
from gateway.console.pages.links import link

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
class Moved:
    """A partition in the preview. `skipped` records will not be read, `again` records will be read again."""

    change: OffsetChange
    skipped: int
    again: int


def reset_form(visit: Visit) -> Answer:
    """Show the form, and below it what the reset that the address describes would change."""
    return _form(visit, problem=None)


def _form(visit: Visit, problem: str | None, status: int = 200) -> View:
    group = group_of(visit)
    preview: OffsetReset | None = None
    with visit.cluster() as cluster:
        row = listed(cluster).get(group)
        topics = sorted({topic for topic, _ in committed_offsets(cluster, [group]).get(group, {})})
        state = None if row is None else str(row.get("group_state") or "Unknown")
        if visit.text("target") and problem is None:
            try:
                preview = reset_offsets(cluster, _request(visit))
            except (ControlError, ValueError) as error:
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


def moves(changes: Sequence[OffsetChange]) -> list[Moved]:
    """Return how many records each change skips, and how many the group reads again.

    Without a committed offset nobody knows what the group has read, so both are 0.
    """
    return [
        Moved(change, max(0, change.new_offset - before), max(0, before - change.new_offset))
        for change in changes
        for before in [change.new_offset if change.committed_offset is None else _in_log(change)]
    ]


def _in_log(change: OffsetChange) -> int:
    """Return the committed offset, or the nearest one that the log has: records outside of it can't be read."""
    assert change.committed_offset is not None
    return min(max(change.committed_offset, change.log_start_offset), change.high_watermark)


def reset(visit: Visit) -> Answer:
    """Reset the offsets after a confirmation; a refusal is shown above the form."""
    group = group_of(visit)
    try:
        with visit.cluster() as cluster:
            return _changed(visit, cluster, group)
    except (ControlError, ValueError) as error:
        return _form(visit, problem=f"Nothing is changed: {error}", status=400)


def _changed(visit: Visit, cluster: Cluster, group: str) -> Answer:
    done = reset_offsets(cluster, _request(visit, execute=visit.is_confirmed))
    moved = moves(done.changes)
    skipped, again = sum(each.skipped for each in moved), sum(each.again for each in moved)
    if visit.is_confirmed:
        group_lists.forget()
        return Redirect(
            link("/groups/view", group=group),
            notice=f"The offsets of group {shown(group)} in {_partitions(moved)} are committed.",
        )
    return Confirmation(
        title=f"Reset the offsets of group {shown(group)}?",
        action="Reset the offsets",
        back=link("/groups/reset", group=group, **{name: visit.text(name) for name in _FIELDS}),
        sentences=(
            f"The group will read {again:,} records again, and skip {skipped:,} records, in {_partitions(moved)}.",
            "The group must stay without members until then; the console checks this once more.",
        ),
        changes=[_shown(each) for each in moved[:MOST_SHOWN]],
        is_danger=skipped > 0,
    )


def _partitions(moved: Sequence[Moved]) -> str:
    return "1 partition" if len(moved) == 1 else f"{len(moved):,} partitions"


def _shown(moved: Moved) -> tuple[str, str, str]:
    change = moved.change
    before = "no offset" if change.committed_offset is None else f"{change.committed_offset:,}"
    return f"{change.topic}-{change.partition}", before, f"{change.new_offset:,}"


def _request(visit: Visit, *, execute: bool = False) -> ResetOffsetsRequest:
    """Return the reset that the fields describe. Raises ControlError and ValueError."""
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
    """Return the time of the form: milliseconds that the browser made of its own zone's time, or else a time in UTC."""
    exact = visit.optional_number("at_ms")
    if exact is not None:
        return exact
    text = visit.text("at").strip()
    if not text:
        raise ControlError("the time is empty; choose a day and a time")
    has_zone = text.isdigit() or text.endswith("Z") or "+" in text
    return timestamp_ms(text if has_zone else f"{text}Z")


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
