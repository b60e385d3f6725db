"""Checks that the last reading is complete: it reached the end, and every offset before has a record, a
marker or an explanation.
"""

from __future__ import annotations

from tests.simulation.checkers.facts import Facts, Reading, place
from tests.simulation.history import Acknowledged, TopicPartition


def dense(facts: Facts) -> list[str]:
    """Find gaps in the last reading.

    Only compaction may leave gaps. Under read_uncommitted, aborted records count as records.
    """
    breaches = []
    for partition, reading in facts.uncommitted.items():
        breaches += _check_ends(partition, reading)
        offsets = [offset for offset, _ in reading.records] + [marker.offset for marker in reading.markers]
        offsets.sort()
        if partition.topic in facts.compacted or partition.topic in facts.history.named:
            continue
        expected = reading.start_offset
        for offset in offsets:
            if offset > expected:
                breaches.append(f"{place(partition)} has nothing from offset {expected} to {offset - 1}")
            elif offset < expected:
                breaches.append(f"{place(partition, offset)} was given twice")
            expected = offset + 1
        if expected < reading.end_offset:
            breaches.append(
                f"{place(partition)} has nothing from offset {expected} to {reading.end_offset - 1}"
            )
    for partition in {event.partition for event in facts.all(Acknowledged)}:
        if partition not in facts.uncommitted or partition not in facts.committed:
            breaches.append(f"{place(partition)} was not read at the end")
    return breaches


def _check_ends(partition: TopicPartition, reading: Reading) -> list[str]:
    breaches = []
    if reading.start_offset != reading.log_start_offset:
        breaches.append(
            f"the last reading of {place(partition)} began at {reading.start_offset}, "
            f"it starts at {reading.log_start_offset}"
        )
    if reading.end_offset != reading.high_watermark:
        breaches.append(
            f"the last reading of {place(partition)} came to {reading.end_offset}, "
            f"its high watermark is {reading.high_watermark}"
        )
    return breaches
