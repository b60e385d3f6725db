"""The records of a topic: browsed by offset and time, filtered, and followed."""

from __future__ import annotations

import time
from typing import Final

from gateway.admin.request import ControlError
from gateway.admin.times import time_or_age_ms
from gateway.console.asking.records import (
    From,
    RecordPage,
    Wish,
    read_positions,
    record_page,
    written_positions,
)
from gateway.console.asking.topics import topic_lines, topic_places
from gateway.console.page import (
    Answer,
    Change,
    Feed,
    Look,
    Page,
    Redirect,
    Section,
    View,
    Visit,
    records_path,
)
from gateway.console.pages import record_contents, record_produce, record_schemas, record_tail
from gateway.console.pages.record_views import (
    FILTER_FIELDS,
    FORM_FIELDS,
    filter_of,
    forms_of,
    kept_fields,
    row_of,
)

ROWS: Final = 50
MOST_ROWS: Final = 500
LIVE: Final = "live"
MOST_CHOICES: Final = 5_000
"""Topics in the list of choices; a person types the name of another."""


def choice(visit: Visit) -> Answer:
    """Show the form that asks for a topic, or lead to the topic's records."""
    wanted = visit.text("topic").strip()
    if wanted:
        return Redirect(records_path(wanted))
    with visit.cluster() as cluster:
        names = [line.name for line in topic_lines(cluster) if not line.is_internal]
    return View("records_choice.html", {"names": names[:MOST_CHOICES]})


def records(visit: Visit) -> Answer:
    """Show records of a topic."""
    name = visit.text("topic")
    forms = forms_of(visit)
    wanted = filter_of(visit)
    start = visit.text("from") or "newest"
    page: RecordPage | None = None
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if start != LIVE:
            page = record_page(cluster, topic, _wish(visit, start), wanted)
    kept = kept_fields(visit, "partition", "rows", *FILTER_FIELDS, *FORM_FIELDS)
    path = records_path(name)
    return View(
        "records.html",
        {
            "topic": topic,
            "page": page,
            "rows": [] if page is None else [row_of(found, forms) for found in page.records],
            "forms": forms,
            "start": start,
            "path": path,
            "kept": kept,
            "shown_forms": kept_fields(visit, *FORM_FIELDS),
            "newer": None if page is None or page.newer is None else written_positions(page.newer),
            "older": None if page is None or page.older is None else written_positions(page.older),
            "searched": [] if page is None else sorted(page.spans.items()),
            "given": {
                field: visit.text(field)
                for field in ("partition", "offset", "time", "rows", *FILTER_FIELDS, *FORM_FIELDS)
            },
        },
    )


def _wish(visit: Visit, chosen: str) -> Wish:
    """Return what the address asks for. Raises ControlError."""
    try:
        start = From(chosen)
    except ValueError:
        raise ControlError(f"from must be one of {', '.join((*From, LIVE))}, not {chosen[:40]}") from None
    return Wish(
        start=start,
        at=_at(visit, start),
        positions=read_positions(visit.text("at")) if start in {From.BEFORE, From.AFTER} else None,
        partition=visit.optional_number("partition", 0, (1 << 31) - 1),
        rows=visit.number("rows", ROWS, 1, MOST_ROWS),
        committed=visit.text("committed") == "yes",
    )


def _at(visit: Visit, start: From) -> int:
    if start is From.OFFSET:
        return visit.number("offset", 0)
    if start is not From.TIME:
        return 0
    text = visit.text("time").strip()
    if not text:
        raise ControlError("give a time, such as 2026-01-31T13:45:00Z, 10m ago as 10m, or milliseconds")
    try:
        return time_or_age_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise ControlError(str(error)) from None


PAGE: Final = Page(
    title="Records",
    path="/records",
    section=Section.DATA,
    key="r",
    places=(
        Look("/records", choice, waits_for="the list of topics"),
        Look("/records/{topic}", records, waits_for="the records"),
        Feed("/api/records/{topic}/tail", record_tail.tail),
        Look("/records/{topic}/produce", record_produce.form),
        Change("/records/{topic}/produce", record_produce.produce),
        Look("/records/{topic}/schema", record_schemas.form),
        Change("/records/{topic}/schema", record_schemas.give),
        Look("/records/{topic}/{partition}/{offset}", record_contents.record, waits_for="the record"),
        Feed("/records/{topic}/{partition}/{offset}/{part}", record_contents.download),
    ),
)
