"""The form in which a person gives a schema for the keys or values of a topic."""

from __future__ import annotations

from typing import Final

from gateway.admin.request import ControlError
from gateway.console.contents.schemas import AVRO, PROTOBUF, SCHEMA, ContentError
from gateway.console.page import Answer, Redirect, View, Visit, address, records_path
from gateway.console.pages.record_views import FILTER_FIELDS, FORM_FIELDS, kept_fields

_KEPT: Final = ("partition", "from", "offset", "time", "at", "rows", *FILTER_FIELDS, *FORM_FIELDS)


def form(visit: Visit) -> Answer:
    """Show the form."""
    return _form(visit, None)


def _form(visit: Visit, error: str | None) -> View:
    values = {
        "topic": visit.text("topic"),
        "part": visit.text("part", "value"),
        "kind": visit.text("kind", AVRO),
        "text": visit.text("text"),
        "message": visit.text("message"),
        "kept": kept_fields(visit, *_KEPT),
        "error": error,
    }
    return View("record_schema.html", values, 200 if error is None else 400)


def give(visit: Visit) -> Answer:
    """Keep the schema, and show the records with it."""
    part, kind = visit.text("part", "value"), visit.text("kind", AVRO)
    if part not in {"key", "value"} or kind not in {AVRO, PROTOBUF}:
        raise ControlError("choose key or value, and Avro or Protobuf")
    upload = visit.uploads.get("file")
    content = upload.content if upload is not None and upload.content else visit.text("text").encode()
    if not content.strip():
        return _form(visit, "Paste a schema, or choose a file.")
    try:
        schema_id = visit.console.schemas.add(kind, content, visit.text("message").strip())
    except ContentError as error:
        return _form(visit, str(error))
    chosen = {f"{part}_form": SCHEMA, f"{part}_schema": schema_id}
    return Redirect(address(records_path(visit.text("topic")), **{**kept_fields(visit, *_KEPT), **chosen}))
