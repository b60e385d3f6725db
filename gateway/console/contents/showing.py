"""Shows a key or a value in the form that a person has chosen."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.console.contents import avro, protobuf
from gateway.console.contents.errors import ContentError
from gateway.console.contents.schemas import PROTOBUF, Schema
from gateway.console.contents.texts import formatted_json, hexadecimal, is_readable, json_text, text
from gateway.console.contents.wire_format import Framed, without_header, without_indexes

AUTO: Final = "auto"
TEXT: Final = "text"
JSON: Final = "json"
HEX: Final = "hex"
SCHEMA: Final = "schema"
FORMS: Final = (AUTO, TEXT, JSON, HEX, SCHEMA)
_STARTS_JSON: Final = b'{["'
LONGEST_LINE: Final = 300
_HEX_IN_A_LINE: Final = 48


class Shown(NamedTuple):
    """A content in words. `form` is how it is shown; `error` says why it is not shown in the form that was chosen."""

    text: str
    form: str
    schema_id: int | None = None
    error: str | None = None


def show(content: bytes, form: str, schema: Schema | None, *, is_cut: bool) -> Shown:
    """Return a content in a form; what can't be read is shown as text or in hexadecimal, with the reason.

    `is_cut`: `content` is only the beginning.
    """
    try:
        return _as_chosen(content, form, schema, is_cut=is_cut)
    except ContentError as error:
        return _readable(content, is_cut=is_cut)._replace(error=str(error))


def _as_chosen(content: bytes, form: str, schema: Schema | None, *, is_cut: bool) -> Shown:
    if form == HEX:
        return Shown(hexadecimal(content), HEX)
    if form == TEXT:
        return Shown(text(content, is_cut=is_cut), TEXT)
    if form in {JSON, SCHEMA} and is_cut:
        raise ContentError("only the beginning is loaded, which can't be decoded")
    if form == JSON:
        return Shown(formatted_json(content), JSON)
    if form == SCHEMA:
        if schema is None:
            raise ContentError("give a schema first")
        return _by_schema(content, schema)
    return _readable(content, is_cut=is_cut)


def _readable(content: bytes, *, is_cut: bool) -> Shown:
    """Return a content as JSON, as text, or else in hexadecimal."""
    framed = without_header(content)
    if framed is not None and framed.content[:1] and framed.content[:1] in _STARTS_JSON:
        found = _readable(framed.content, is_cut=is_cut)
        if found.form == JSON:
            return found._replace(schema_id=framed.schema_id)
    if not is_cut and content[:1] and content.lstrip()[:1] in _STARTS_JSON:
        try:
            return Shown(formatted_json(content), JSON)
        except ContentError:
            pass
    try:
        found_text = text(content, is_cut=is_cut)
    except ContentError:
        return Shown(hexadecimal(content), HEX)
    return Shown(found_text, TEXT) if is_readable(found_text) else Shown(hexadecimal(content), HEX)


def _by_schema(content: bytes, schema: Schema) -> Shown:
    """Return a content by its schema, after a registry's header where there is one."""
    failed: ContentError | None = None
    for framed in (without_header(content), Framed(None, content)):
        if framed is None:
            continue
        try:
            return Shown(_read(framed, schema), SCHEMA, framed.schema_id)
        except ContentError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _read(framed: Framed, schema: Schema) -> str:
    if schema.kind != PROTOBUF:
        return json_text(avro.read(framed.content, schema.parsed))
    content: bytes | None = framed.content
    if framed.schema_id is not None:
        content = without_indexes(framed.content)
    if content is None:
        raise ContentError("the content has no message indexes after the schema id")
    return protobuf.read(content, schema.parsed)


def line(content: bytes | None, form: str, schema: Schema | None, *, is_cut: bool) -> str:
    """Return a content as one short line for a table; empty for null."""
    if content is None:
        return ""
    shown = show(content, form, schema, is_cut=is_cut)
    if shown.form == HEX:
        found = content[:_HEX_IN_A_LINE].hex(" ")
    elif shown.form in {JSON, SCHEMA}:
        found = formatted_json(shown.text, indent=-1)
    else:
        found = " ".join(shown.text.split())
    return found if len(found) <= LONGEST_LINE and not is_cut else f"{found[:LONGEST_LINE]}…"
