"""Checks that what was told as the end of a partition was its end at some moment between request and answer.

`watermarks` finds an end that is too low: an earlier answer or acknowledgement had told a higher one. This
checker finds an end that is too high: not all records before it had been sent when the answer came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from tests.simulation.checkers.facts import LATEST, Facts, place
from tests.simulation.history import Fetched, OffsetListed, TopicPartition


def latest(facts: Facts) -> list[str]:
    """Find answers that tell an end behind records that were sent later."""
    breaches = []
    sent = _sent_until(facts)
    for event in facts.history.events:
        if isinstance(event, Fetched):
            end = event.high_watermark
        elif isinstance(event, OffsetListed) and event.timestamp == LATEST:
            end = event.offset
        else:
            continue
        offsets, times = sent.get(event.partition, ([], []))
        index = bisect_left(offsets, end) - 1
        if index >= 0 and times[index] > event.at_ms:
            breaches.append(
                f"{event.at_ms} ms: {place(event.partition)} was told to end at {end}, "
                f"and a record before that was sent at {times[index]} ms"
            )
    return breaches


def _sent_until(facts: Facts) -> dict[TopicPartition, tuple[list[int], list[int]]]:
    """Return, for each partition, the offsets of the stored records, and when all records up to each had been
    sent.
    """
    rows: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for name, offset in facts.stored.items():
        sent = facts.sent[name]
        rows[sent.partition].append((offset, sent.at_ms))
    found = {}
    for partition, of_partition in rows.items():
        offsets, times = [], []
        for offset, at_ms in sorted(of_partition):
            offsets.append(offset)
            times.append(max(at_ms, times[-1]) if times else at_ms)
        found[partition] = offsets, times
    return found
