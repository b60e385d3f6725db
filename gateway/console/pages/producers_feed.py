"""The feed of the strips: what the producers of a page wrote, repeated and were refused in the newest minutes."""

from __future__ import annotations

import time
from typing import Any, Final

from gateway.admin.producers.messages import ProducerRow
from gateway.admin.request import ControlError
from gateway.admin.verdicts.messages import VerdictRow
from gateway.console.metrics.rates import History
from gateway.console.page import Answer, Data, Visit
from gateway.console.pages import verdicts
from gateway.console.pages.producers_asking import Cursor, place_of, producers
from gateway.console.pages.producers_strip import (
    SAMPLED,
    accepted,
    judged,
    key_of,
    sample_of,
    series_names,
)

ROWS: Final = 50
"""Producers of a page."""
WINDOW_MS: Final = 20 * 60_000
"""Time before now of which the first answer tells."""
OVERLAP_MS: Final = 60_000
"""Time before `after` whose samples are read again, because an event needs the sample before it."""
MOST_VERDICTS: Final = 2_000


def strips(visit: Visit) -> Answer:
    """Return the events after a time, and after a number of verdicts, of the producers of one page."""
    topic, partition = visit.text("topic") or None, visit.optional_number("partition")
    producer_id = visit.optional_number("id")
    cursor, limit = cursor_of(visit), ROWS
    if topic is not None and partition is not None and producer_id is not None:
        cursor, limit = (topic, partition, producer_id - 1), 1
    rows: dict[str, ProducerRow | None] = {
        key_of(*place_of(row)): row for row in producers(visit, topic, partition, cursor, limit).rows
    }
    if topic is not None and partition is not None and producer_id is not None:
        key = key_of(topic, partition, producer_id)
        rows = {key: rows.get(key)}
    history = _watched(visit, topic, partition, cursor, limit)
    now_ms = time.time_ns() // 1_000_000
    after = max(visit.number("after", 0), now_ms - WINDOW_MS)
    names = [name for key in rows for name in series_names(key)]
    times, series = history.since(after - OVERLAP_MS, [SAMPLED, *names])
    events: dict[str, list[Any]] = {
        key: [event for event in accepted(times, series, key) if event.time_ms > after] for key in rows
    }
    number, error = visit.number("number", 0), None
    try:
        found = _verdicts(visit, topic, partition, producer_id, number)
    except ControlError as refusal:
        found, error = [], str(refusal)
    for row in found:
        key = key_of(row.topic, row.partition, row.producer_id)
        if key in events:
            events[key].append(judged(row))
    return Data(
        {
            "now": now_ms,
            "since": history.since(0, [])[0][:1],
            "sampled": times[-1] if times else after,
            "number": max([number, *(row.number for row in found)]),
            "events": {key: sorted(of_key) for key, of_key in events.items() if of_key},
            "rows": {key: _shown(row) for key, row in rows.items() if row is not None},
            "error": error,
        }
    )


def _watched(
    visit: Visit, topic: str | None, partition: int | None, cursor: Cursor | None, limit: int
) -> History:
    def read() -> dict[str, float | None]:
        return sample_of(producers(visit, topic, partition, cursor, limit).rows)

    key = f"producers {visit.user!r} {topic!r} {partition} {cursor!r} {limit}"
    return visit.console.sampler.watches.history(key, read)


def _verdicts(
    visit: Visit, topic: str | None, partition: int | None, producer_id: int | None, number: int
) -> list[VerdictRow]:
    if not visit.has_metrics:
        return []
    return verdicts.verdicts(visit, topic, partition, producer_id, after=number, limit=MOST_VERDICTS)


def _shown(row: ProducerRow) -> dict[str, Any]:
    """Return what the table shows of a producer now."""
    return {
        "epoch": row.producer_epoch,
        "sequence": row.last_sequence,
        "offset": row.last_offset,
        "age_ms": row.age_ms,
        "batches": row.retained_batches,
        "transaction": row.current_txn_start_offset if row.current_txn_start_offset >= 0 else None,
    }


def cursor_of(visit: Visit) -> Cursor | None:
    """Return the place after which the page begins: after_topic, after_partition and after_id of the address, or before from_id."""
    topic, partition = visit.text("topic"), visit.optional_number("partition")
    first = visit.optional_number("from_id")
    if first is not None and topic and partition is not None:
        return topic, partition, first - 1
    producer_id = visit.optional_number("after_id", -1)
    if producer_id is None:
        return None
    return visit.text("after_topic") or topic, visit.number("after_partition", partition or 0), producer_id
