"""How records look: the forms that a person has chosen, and a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gateway.admin.request import ControlError
from gateway.console.asking.records import ANYWHERE, Kept, RecordFilter, record_filter
from gateway.console.contents.schemas import AUTO, FORMS, SCHEMA, ContentError, Schema, line
from gateway.console.page import Visit

FORM_FIELDS: Final = ("key_form", "value_form", "key_schema", "value_schema")
FILTER_FIELDS: Final = ("filter", "in", "regex", "committed", "markers")


@dataclass(frozen=True, slots=True)
class Forms:
    """How keys and values are shown. `problem` says why a schema can't be used."""

    key: str
    value: str
    key_schema: Schema | None
    value_schema: Schema | None
    problem: str | None


def forms_of(visit: Visit) -> Forms:
    """Return the forms of an address. Raises ControlError for unknown ones."""
    chosen = {}
    for part in ("key", "value"):
        form = visit.text(f"{part}_form") or AUTO
        if form not in FORMS:
            raise ControlError(f"{part}_form must be one of {', '.join(FORMS)}, not {form[:40]}")
        chosen[part] = form
    schemas: dict[str, Schema | None] = {"key": None, "value": None}
    problem = None
    for part, form in chosen.items():
        schema_id = visit.text(f"{part}_schema")
        if form == SCHEMA and schema_id:
            try:
                schemas[part] = visit.console.schemas.get(schema_id)
            except ContentError as error:
                problem = str(error)
    return Forms(chosen["key"], chosen["value"], schemas["key"], schemas["value"], problem)


def filter_of(visit: Visit) -> RecordFilter:
    """Return the filter of an address. Raises ControlError."""
    return record_filter(
        visit.text("filter"),
        visit.text("in") or ANYWHERE,
        is_regex=visit.text("regex") == "yes",
        markers=visit.text("markers") == "yes",
    )


def kept_fields(visit: Visit, *names: str) -> dict[str, str]:
    """Return fields of the address that links keep."""
    return {name: visit.text(name) for name in names if visit.text(name)}


class RecordRow(NamedTuple):
    """A record as a row. `key` and `value` are None for null."""

    partition: int
    offset: int
    time_ms: int
    key: str | None
    value: str | None
    key_bytes: int | None
    value_bytes: int | None
    headers: int
    producer_id: int
    is_transactional: bool
    marker: str | None


def row_of(kept: Kept, forms: Forms) -> RecordRow:
    """Return a record as a row."""
    record = kept.record
    key = (
        None if record.key is None else line(record.key, forms.key, forms.key_schema, is_cut=kept.is_key_cut)
    )
    value = (
        None
        if record.value is None
        else line(record.value, forms.value, forms.value_schema, is_cut=kept.is_value_cut)
    )
    return RecordRow(
        partition=record.partition,
        offset=record.offset,
        time_ms=record.time_ms,
        key=key,
        value=value,
        key_bytes=kept.key_bytes,
        value_bytes=kept.value_bytes,
        headers=len(record.headers),
        producer_id=record.producer_id,
        is_transactional=record.is_transactional,
        marker=record.marker,
    )


def as_json(row: RecordRow) -> dict[str, Any]:
    """Return a row for an island; numbers of 64 bits as text, because JavaScript rounds them."""
    return {
        **row._asdict(),
        "offset": str(row.offset),
        "producer_id": str(row.producer_id),
    }
