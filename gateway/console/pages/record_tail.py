"""The records that arrive while a person looks."""

from __future__ import annotations

from typing import Any, Final

from gateway.console.asking.fetching import Limits, Stretch, fetch
from gateway.console.asking.records import (
    LONGEST_KEPT,
    MOST_PARTITIONS,
    Kept,
    RecordFilter,
    read_positions,
    written_positions,
)
from gateway.console.asking.topics import TopicPlaces, offsets, topic_places
from gateway.console.page import Answer, Data, Visit
from gateway.console.pages.record_views import Forms, as_json, filter_of, forms_of, row_of

MOST_ROWS: Final = 200
"""Rows of one answer; of more only the newest are sent."""
_LIMITS: Final = Limits(answer_bytes=2 << 20, partition_bytes=1 << 20, wait_ms=500)


def tail(visit: Visit) -> Answer:
    """Return the records after positions, and the positions after them; without positions only those of the log ends."""
    name = visit.text("topic")
    forms, wanted = forms_of(visit), filter_of(visit)
    positions = read_positions(visit.text("at"))
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if not positions:
            return Data(_answer([], _log_ends(cluster, topic, visit), 0, []))
        stretches = fetch(cluster, topic, positions, _LIMITS, committed=visit.text("committed") == "yes")
    rows: list[dict[str, Any]] = []
    skipped = 0
    problems: list[str] = []
    for partition, stretch in stretches.items():
        found = _rows(stretch, wanted, forms)
        rows += found[-MOST_ROWS:]
        skipped += max(0, len(found) - MOST_ROWS)
        positions[partition] = stretch.next_offset
        problems += stretch.problems
    return Data(_answer(rows, positions, skipped, problems))


def _rows(stretch: Stretch, wanted: RecordFilter, forms: Forms) -> list[dict[str, Any]]:
    return [
        as_json(row_of(Kept(record, LONGEST_KEPT), forms))
        for record in stretch.records()
        if wanted.accepts(record)
    ]


def _log_ends(cluster: Any, topic: TopicPlaces, visit: Visit) -> dict[int, int]:
    only = visit.optional_number("partition", 0, (1 << 31) - 1)
    led = [place.partition for place in topic.partitions if place.leader is not None]
    chosen = [partition for partition in led if only is None or partition == only][:MOST_PARTITIONS]
    return offsets(cluster, topic.name, chosen)[1]


def _answer(
    rows: list[dict[str, Any]], positions: dict[int, int], skipped: int, problems: list[str]
) -> dict[str, Any]:
    rows.sort(key=lambda row: (row["time_ms"], row["partition"], int(row["offset"])))
    return {
        "rows": rows[-MOST_ROWS:],
        "at": written_positions(positions),
        "skipped": skipped + max(0, len(rows) - MOST_ROWS),
        "problems": problems,
    }
