"""Checks that high watermark, last stable offset and log start never go back, and that no answer has records
beyond them.

Two answers are comparable when the second was requested after the first had arrived: overlapping requests may
have been decided in any order. The high watermark moves only over persisted records, so a crash is no excuse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Final

from tests.simulation.checkers.facts import EARLIEST, LATEST, Facts, place
from tests.simulation.history import Acknowledged, Fetched, OffsetListed, RecordsDeleting, TopicPartition

_HIGH_WATERMARK: Final = "high watermark"
_LAST_STABLE: Final = "last stable offset"
_LOG_START: Final = "log start"


class Told:
    """The answers about one watermark of one partition: for every point in time, the highest value that an
    answer had reported until then.
    """

    def __init__(self) -> None:
        self._times: list[int] = []
        self._values: list[int] = []

    def add(self, at_ms: int, value: int) -> None:
        """Add a value; times must ascend."""
        if not self._values or value > self._values[-1]:
            self._times.append(at_ms)
            self._values.append(value)

    def before(self, at_ms: int) -> tuple[int, int]:
        """Return the highest value answered before this time, and when."""
        index = bisect_left(self._times, at_ms)
        return (self._values[index - 1], self._times[index - 1]) if index else (-1, 0)


def watermarks(facts: Facts) -> list[str]:
    """Find values that went back in answers to Fetch and ListOffsets.

    An acknowledgement also shows that the high watermark has passed its record.
    """
    breaches = []
    told: dict[tuple[TopicPartition, str], Told] = defaultdict(Told)
    for event in facts.history.events:
        if isinstance(event, Acknowledged):
            told[event.partition, _HIGH_WATERMARK].add(event.at_ms, event.offset + 1)
        if not isinstance(event, Fetched | OffsetListed):
            continue
        for what, value in _values(event):
            highest, at_ms = told[event.partition, what].before(event.asked_at_ms)
            # Elsewhere the uploaded records count, and the log start that the leader told a short time ago.
            if value < highest and not (isinstance(event, Fetched) and event.elsewhere):
                breaches.append(
                    f"{event.at_ms} ms: the {what} of {place(event.partition)} was told as {value}, asked "
                    f"for at {event.asked_at_ms} ms, and at {at_ms} ms it was {highest}"
                )
            told[event.partition, what].add(event.at_ms, value)
    return breaches


def _values(event: Fetched | OffsetListed) -> list[tuple[str, int]]:
    if isinstance(event, Fetched):
        return [
            (_HIGH_WATERMARK, event.high_watermark),
            (_LAST_STABLE, event.last_stable_offset),
            (_LOG_START, event.log_start_offset),
        ]
    if event.timestamp == LATEST:
        return [(_LAST_STABLE if event.read_committed else _HIGH_WATERMARK, event.offset)]
    return [(_LOG_START, event.offset)] if event.timestamp == EARLIEST else []


def beyond(facts: Facts) -> list[str]:
    """Find answers with records above the high watermark or last stable offset, or below the requested
    offset.
    """
    breaches = []
    for event in facts.all(Fetched):
        limit = event.last_stable_offset if event.read_committed else event.high_watermark
        name = "last stable offset" if event.read_committed else "high watermark"
        where = f"{event.at_ms} ms: a Fetch of {place(event.partition, event.fetch_offset)}"
        offsets = [offset for offset, _ in event.records]
        if event.next_offset > limit:
            breaches.append(f"{where} was answered up to {event.next_offset}, beyond the {name} of {limit}")
        if offsets and (max(offsets) >= event.next_offset or min(offsets) < event.fetch_offset):
            breaches.append(
                f"{where} with next offset {event.next_offset} got {min(offsets)} to {max(offsets)}"
            )
        if offsets != sorted(set(offsets)):
            breaches.append(f"{where} got offsets out of order")
        if not event.log_start_offset <= event.last_stable_offset <= event.high_watermark:
            breaches.append(
                f"{where} tells log start {event.log_start_offset}, last stable offset "
                f"{event.last_stable_offset} and high watermark {event.high_watermark}"
            )
    return breaches


def log_start(facts: Facts) -> list[str]:
    """Find a log start above every offset that a client had asked to delete up to by then. Without times in
    the history, requests at any time count.
    """
    breaches = []
    allowed: dict[TopicPartition, int] = {}
    timed = {event.partition for event in facts.all(RecordsDeleting)}
    for event in facts.history.events:
        if isinstance(event, RecordsDeleting):
            allowed[event.partition] = max(allowed.get(event.partition, 0), event.offset)
        elif isinstance(event, Fetched):
            partition = event.partition
            limit = (
                allowed.get(partition, 0) if partition in timed else facts.deleted_before.get(partition, 0)
            )
            if event.log_start_offset > limit:
                breaches.append(
                    f"{event.at_ms} ms: {place(partition)} begins at {event.log_start_offset}, "
                    f"and nobody had asked to delete beyond {limit}"
                )
    return breaches
