"""The newest batches that the gateway did not store, for the pages about producers."""

from __future__ import annotations

from typing import Any, Final

from gateway.admin.request import ControlError
from gateway.admin.verdicts.messages import ListVerdictsRequest, VerdictRow
from gateway.console.page import Answer, Data, Visit
from gateway.console.pages.verdict_reasons import reason_of

ROWS: Final = 100
"""Verdicts of a table."""


def verdicts(
    visit: Visit,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    *,
    after: int = 0,
    limit: int = ROWS,
) -> list[VerdictRow]:
    """Return the newest verdicts, the newest first. Raises ControlError."""
    request = ListVerdictsRequest(topic, partition, producer_id, after, limit=limit)
    return visit.ask_gateway(request).verdicts


def table_of(
    visit: Visit, topic: str | None, partition: int | None, producer_id: int | None = None
) -> dict[str, Any]:
    """Return the values of templates/parts/verdicts.html; `verdicts` is None without a metrics listener that answers."""
    source = {"topic": topic, "partition": partition, "id": producer_id}
    if not visit.has_metrics:
        return {"verdicts": None, "verdicts_trouble": None, "verdicts_source": source}
    try:
        rows = [shown(row) for row in verdicts(visit, topic, partition, producer_id)]
    except ControlError as error:
        return {"verdicts": None, "verdicts_trouble": str(error), "verdicts_source": source}
    return {"verdicts": rows, "verdicts_trouble": None, "verdicts_source": source}


def shown(row: VerdictRow) -> dict[str, Any]:
    """Return a verdict with the reason in words."""
    reason = reason_of(row)
    is_one = row.base_sequence == row.last_sequence
    sequences = str(row.base_sequence) if is_one else f"{row.base_sequence}–{row.last_sequence}"
    return {
        "number": row.number,
        "time_ms": row.time_ms,
        "topic": row.topic,
        "partition": row.partition,
        "producer_id": str(row.producer_id) if row.producer_id >= 0 else None,
        "epoch": row.producer_epoch if row.producer_epoch >= 0 else None,
        "sequences": sequences if row.base_sequence >= 0 else "–",
        "offset": row.base_offset if row.base_offset >= 0 else None,
        "outcome": row.outcome,
        "client_id": row.client_id,
        "message": row.message,
        "short": reason.short,
        "meaning": reason.meaning,
        "advice": reason.advice,
    }


def newer(visit: Visit) -> Answer:
    """Return the verdicts after a number, for the island that adds them to the table."""
    rows = verdicts(
        visit,
        visit.text("topic") or None,
        visit.optional_number("partition"),
        visit.optional_number("id"),
        after=visit.number("number", 0),
    )
    return Data({"verdicts": [shown(row) for row in rows]})
