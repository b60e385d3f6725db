"""Producing one record."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from gateway.admin.records.producing import produce as send
from gateway.admin.records.texts import ProducedRecord
from gateway.admin.request import ControlError
from gateway.console.page import Answer, Confirmation, Redirect, View, Visit, records_path

NULL: Final = "null"
TEXT: Final = "text"
BASE64: Final = "base64"
_FORMS: Final = (TEXT, BASE64, NULL)
_FIELDS: Final = ("key", "key_is", "value", "value_is", "headers", "partition")
_SHOWN: Final = 200


def form(visit: Visit) -> Answer:
    """Show the form for a record."""
    return _form(visit, None)


def _form(visit: Visit, error: str | None) -> View:
    given = {name: visit.text(name) for name in _FIELDS}
    given["key_is"] = given["key_is"] or NULL
    given["value_is"] = given["value_is"] or TEXT
    values = {"topic": visit.text("topic"), "given": given, "error": error}
    return View("record_produce.html", values, 200 if error is None else 400)


def produce(visit: Visit) -> Answer:
    """Store the record, after a question."""
    topic = visit.text("topic")
    try:
        record = _record(visit)
        if not visit.is_confirmed:
            return _question(topic, record)
        with visit.cluster() as cluster:
            report = send(cluster, topic, [record], compression=None, at_once=True)
    except ControlError as error:
        return _form(visit, str(error))
    (stored,) = report.partitions
    return Redirect(
        f"{records_path(topic)}/{stored.partition}/{stored.first_offset}",
        f"The record is stored in partition {stored.partition} at offset {stored.first_offset:,}.",
    )


def _record(visit: Visit) -> ProducedRecord:
    """Return the record of the form. Raises ControlError."""
    return ProducedRecord(
        value=_content("value", visit.text("value"), visit.text("value_is", TEXT)),
        key=_content("key", visit.text("key"), visit.text("key_is", NULL)),
        headers=_headers(visit.text("headers")),
        partition=visit.optional_number("partition", 0, (1 << 31) - 1),
    )


def _content(part: str, text: str, form: str) -> bytes | None:
    if form not in _FORMS:
        raise ControlError(f"the {part} must be one of {', '.join(_FORMS)}, not {form[:40]}")
    if form == NULL:
        if text:
            raise ControlError(f"the {part} is null, but the form has a {part}; choose text, or remove it")
        return None
    if form == TEXT:
        return text.encode()
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ControlError(f"the {part} is not base64: {error}") from None


def _headers(text: str) -> list[tuple[str, bytes]]:
    found = []
    for line in filter(None, text.split("\n")):
        name, colon, value = line.partition(":")
        if not colon:
            raise ControlError(f"each line of the headers must be NAME: VALUE, not {line[:80]!r}")
        found.append((name.strip(), value.strip().encode()))
    return found


def _question(topic: str, record: ProducedRecord) -> Confirmation:
    partition = "by the key, or any" if record.partition is None else str(record.partition)
    return Confirmation(
        title=f"Store this record in topic {topic}?",
        action="Store the record",
        back=f"{records_path(topic)}/produce",
        sentences=("A record can't be taken back.",),
        changes=(
            ("partition", "–", partition),
            ("key", "–", _shown(record.key)),
            ("value", "–", _shown(record.value)),
            *((f"header {name}", "–", _shown(value)) for name, value in record.headers),
        ),
    )


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    text = content[:_SHOWN].decode(errors="replace")
    return f"{text}{'…' if len(content) > _SHOWN else ''} ({len(content):,} bytes)"
