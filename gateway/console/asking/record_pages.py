"""Chooses the offsets of a page of records, and the pages before and after it.

A page begins at positions, offsets by partition: then it shows what follows them; or it ends before positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.admin.remote.cluster import Cluster, topic_partition
from gateway.admin.request import ControlError
from gateway.console.asking.record_filter import RecordFilter
from gateway.console.asking.record_search import MOST_BYTES, Found, Kept, Search, Span
from gateway.console.asking.topic_details import TopicPlaces, offsets, partition_figures

MOST_PARTITIONS: Final = 32
"""Partitions that one page reads; a person names others."""
SEARCHED: Final = 5_000
"""How many offsets of each partition one page reads when it searches for a text from the end."""
_LONGEST_POSITIONS: Final = 2_000


class From(StrEnum):
    """The place at which a page of records begins; with BEFORE and NEWEST the place at which the page ends."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Wish:
    """The records that a person asks for. `at` is an offset or a time in milliseconds. `positions` are the offsets by partition for BEFORE and AFTER."""

    start: From = From.NEWEST
    at: int = 0
    positions: Mapping[int, int] | None = None
    partition: int | None = None
    rows: int = 50
    committed: bool = False


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records. `newer` and `older` are the positions of the pages after and before; None where there is none."""

    records: Sequence[Kept]
    found: Found
    spans: Mapping[int, Span]
    newer: Mapping[int, int] | None
    older: Mapping[int, int] | None
    left_out: int
    is_newest_first: bool


def record_page(cluster: Cluster, topic: TopicPlaces, wish: Wish, wanted: RecordFilter) -> RecordPage:
    """Return the records of a page. Raises ControlError or an error of kafka-python."""
    partitions, left_out = _partitions(topic, wish)
    starts, ends = offsets(cluster, topic.name, partitions)
    if wish.start in {From.NEWEST, From.BEFORE}:
        return _backward(cluster, topic, wish, wanted, starts, ends, left_out)
    return _forward(cluster, topic, wish, wanted, starts, ends, left_out)


def _partitions(topic: TopicPlaces, wish: Wish) -> tuple[list[int], int]:
    """Return the partitions to read, and how many are left out. Raises ControlError."""
    led = [place.partition for place in topic.partitions if place.leader is not None]
    if wish.partition is not None:
        if wish.partition not in {place.partition for place in topic.partitions}:
            raise ControlError(f"topic {topic.name} has no partition {wish.partition}")
        if wish.partition not in led:
            raise ControlError(f"partition {wish.partition} of topic {topic.name} has no leader now")
        return [wish.partition], 0
    if wish.positions is not None:
        led = [partition for partition in led if partition in wish.positions]
    return led[:MOST_PARTITIONS], max(0, len(led) - MOST_PARTITIONS)


def _backward(
    cluster: Cluster,
    topic: TopicPlaces,
    wish: Wish,
    wanted: RecordFilter,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    left_out: int,
) -> RecordPage:
    given = wish.positions or {}
    before = {partition: min(given.get(partition, end), end) for partition, end in ends.items()}
    back = _offsets_back(cluster, topic, wish, wanted, before)
    spans = {
        partition: Span(max(starts[partition], end - back[partition]), end)
        for partition, end in before.items()
    }
    found = Search(topic, spans, wanted, SEARCHED, wish.committed).run(cluster)
    newest = sorted(found.records, key=_order(spans), reverse=True)
    shown, dropped = newest[: wish.rows], newest[wish.rows :]
    older = {partition: span.first for partition, span in spans.items()}
    for kept in dropped:
        partition = kept.record.partition
        older[partition] = max(older[partition], kept.record.offset + 1)
    has_older = any(older[partition] > starts[partition] for partition in older)
    newer: Mapping[int, int] | None = (
        before if any(end < ends[partition] for partition, end in before.items()) else None
    )
    if found.stopped is not None:
        newer = found.positions
    return RecordPage(shown, found, spans, newer, older if has_older else None, left_out, True)


def _offsets_back(
    cluster: Cluster, topic: TopicPlaces, wish: Wish, wanted: RecordFilter, before: Mapping[int, int]
) -> dict[int, int]:
    """Return how many offsets to go back in each partition: fewer where records are large."""
    many = SEARCHED if wanted.matches is not None else wish.rows
    places = [place for place in topic.partitions if place.partition in before]
    figures = partition_figures(cluster, topic, places)
    budget = MOST_BYTES // max(1, len(places)) // 2
    back = {}
    for partition in before:
        figure = figures[partition]
        used = (figure.log_end_offset or 0) - (figure.log_start_offset or 0)
        average = (figure.size_bytes or 0) // max(1, used)
        back[partition] = max(1, min(many, budget // max(1, average)))
    return back


def _forward(
    cluster: Cluster,
    topic: TopicPlaces,
    wish: Wish,
    wanted: RecordFilter,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    left_out: int,
) -> RecordPage:
    first = _first_offsets(cluster, topic, wish, starts, ends)
    spans = {
        partition: Span(min(max(first[partition], starts[partition]), end), end)
        for partition, end in ends.items()
    }
    found = Search(topic, spans, wanted, wish.rows, wish.committed).run(cluster)
    oldest = sorted(found.records, key=_order(spans))
    shown, dropped = oldest[: wish.rows], oldest[wish.rows :]
    newer = dict(found.positions)
    for kept in dropped:
        partition = kept.record.partition
        newer[partition] = min(newer[partition], kept.record.offset)
    has_newer = any(newer[partition] < ends[partition] for partition in newer)
    older = {partition: span.first for partition, span in spans.items()}
    has_older = any(older[partition] > starts[partition] for partition in older)
    return RecordPage(
        shown, found, spans, newer if has_newer else None, older if has_older else None, left_out, False
    )


def _first_offsets(
    cluster: Cluster, topic: TopicPlaces, wish: Wish, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Mapping[int, int]:
    match wish.start:
        case From.OFFSET:
            return dict.fromkeys(starts, wish.at)
        case From.AFTER:
            given = wish.positions or {}
            return {partition: given.get(partition, end) for partition, end in ends.items()}
        case From.TIME:
            return _at_time(cluster, topic, wish.at, ends)
        case _:
            return starts


def _at_time(cluster: Cluster, topic: TopicPlaces, time_ms: int, ends: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of the first record that is not older than a time; the log end where there is none."""
    if not ends:
        return {}
    places = [topic_partition(topic.name, partition) for partition in ends]
    found = cluster.admin.list_partition_offsets(dict.fromkeys(places, time_ms))
    return {
        place.partition: int(found[place].offset)
        if found.get(place) is not None and found[place].offset >= 0
        else ends[place.partition]
        for place in places
    }


def _order(spans: Mapping[int, Span]) -> Callable[[Kept], tuple[int, int, int]]:
    """Return the order of records: by offset in one partition, by time among several."""
    is_one = len(spans) == 1

    def place(kept: Kept) -> tuple[int, int, int]:
        record = kept.record
        return 0 if is_one else record.time_ms, record.offset, record.partition

    return place


def written_positions(positions: Mapping[int, int]) -> str:
    """Return positions as they stand in an address: `0:120,1:7`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def read_positions(text: str) -> dict[int, int]:
    """Return the positions of an address. Raises ControlError."""
    if len(text) > _LONGEST_POSITIONS:
        raise ControlError("the positions of this link are too long")
    return dict(_position(part) for part in _parts(text))


def _parts(text: str) -> Iterable[str]:
    return filter(None, text.split(","))


def _position(part: str) -> tuple[int, int]:
    partition, colon, offset = part.partition(":")
    if not (
        colon and partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()
    ):
        raise ControlError(f"{part[:40]!r} is no position; a position is PARTITION:OFFSET")
    if len(partition) > 9 or len(offset) > 18:
        raise ControlError(f"{part[:40]!r} is no position; its numbers are too large")
    return int(partition), int(offset)
