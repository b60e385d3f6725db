"""The records of a topic: browsed by offset and time, filtered, and followed."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.produce import ProducedRecord
from seqgate.gateway.admin.produce import send_records as send
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import counted, shown
from seqgate.gateway.admin.times import time_or_age_ms
from seqgate.gateway.console.answer import (
    Confirmation,
    Data,
    Download,
    PageAnswer,
    Redirect,
    View,
    address,
    records_path,
)
from seqgate.gateway.console.asking.records import (
    ANYWHERE,
    LONGEST_KEPT,
    FetchLimits,
    From,
    Kept,
    ReadRecord,
    RecordFilter,
    RecordPage,
    Search,
    Wish,
    fetch,
    partitions_to_read,
    read_positions,
    record_filter,
    record_page,
    without_leader,
    written_positions,
)
from seqgate.gateway.console.asking.topics import TopicPlaces, known_offsets, topic_lines, topic_places
from seqgate.gateway.console.contents import (
    AUTO,
    AVRO,
    FORMS,
    HEX,
    JSON,
    PROTOBUF,
    SCHEMA,
    ContentError,
    Schema,
    Shown,
    is_json,
    json_tokens,
    line,
    show,
)
from seqgate.gateway.console.files import FILES, write_file
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Post, Visit, above_form
from seqgate.gateway.console.pages.transactions import TransactionFilter, listed

ROWS: Final = 50
RECORDS_MOST_ROWS: Final = 500
LIVE: Final = "live"
WHOLE_PAGE: Final = "whole"
"""The field that asks for a search in one page, for browsers without scripts."""
MOST_CHOICES: Final = 5_000
"""Topics in the list of choices; a person types the name of another."""


def choice(visit: Visit) -> PageAnswer:
    """Show the form that asks for a topic, or lead to the topic's records."""
    wanted = visit.text("topic").strip()
    if wanted:
        return Redirect(records_path(wanted))
    with visit.cluster() as cluster:
        names = [line.name for line in topic_lines(cluster) if not line.is_internal]
    return View("records_choice.html", {"names": names[:MOST_CHOICES]})


def records(visit: Visit) -> PageAnswer:
    name = visit.text("topic")
    forms = forms_of(visit)
    wanted = filter_of(visit)
    start = visit.text("from") or "newest"
    is_search = wanted.matches is not None and start != LIVE and visit.text(WHOLE_PAGE) != "yes"
    page: RecordPage | None = None
    wish = None if start == LIVE else _wish(visit, start)
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if wish is not None and not is_search:
            page = record_page(cluster, topic, wish, wanted)
    only = visit.optional_number("partition", 0, (1 << 31) - 1)
    kept = kept_fields(visit, "partition", "rows", *FILTER_FIELDS, *FORM_FIELDS, WHOLE_PAGE)
    place = kept_fields(visit, "from", "offset", "time", "at")
    path = records_path(name)
    return View(
        "records.html",
        {
            "topic": topic,
            "page": page,
            "rows": [] if page is None else [row_of(found, forms) for found in page.records],
            "forms": forms,
            "start": start,
            "is_search": is_search,
            "left_out": partitions_to_read(topic, only)[1] if start == LIVE else 0,
            "unled": without_leader(topic.unled) if start == LIVE and only is None else [],
            "here": kept | place,
            "has_parquet": find_spec("pyarrow") is not None,
            "path": path,
            "kept": kept,
            "shown_forms": kept_fields(visit, *FORM_FIELDS),
            "newer": None if page is None or page.newer is None else written_positions(page.newer),
            "older": None if page is None or page.older is None else written_positions(page.older),
            "given": {
                field: visit.text(field)
                for field in ("partition", "offset", "time", "rows", *FILTER_FIELDS, *FORM_FIELDS)
            },
        },
    )


def _wish(visit: Visit, chosen: str) -> Wish:
    try:
        start = From(chosen)
    except ValueError:
        raise ControlError(f"from must be one of {', '.join((*From, LIVE))}, not {chosen[:40]}") from None
    return Wish(
        start=start,
        at=_at(visit, start),
        positions=read_positions(visit.text("at")) if start in {From.BEFORE, From.AFTER} else None,
        partition=visit.optional_number("partition", 0, (1 << 31) - 1),
        rows=visit.number("rows", ROWS, 1, RECORDS_MOST_ROWS),
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


# One record: its key, value and headers in full, and what its batch says about the producer.

SHOWN_BYTES: Final = 512 << 10
"""Bytes of a content that the page shows; the rest comes as a download."""
HEX_BYTES: Final = 16 << 10
WHOLE: Final = 1 << 31
_CHUNK_BYTES: Final = 1 << 20
PARTS: Final = ("key", "value")


class ShownContent(NamedTuple):
    """A key or a value on the page; `shown` is None for null."""

    part: str
    size_bytes: int | None
    shown: Shown | None
    is_cut: bool
    can_be_json: bool = False

    @property
    def tokens(self) -> list[tuple[str, str]]:
        """The shown text in pieces with the kind of each, for colours; one piece for what is no JSON."""
        assert self.shown is not None
        if self.shown.form not in {JSON, SCHEMA}:
            return [("", self.shown.text)]
        return json_tokens(self.shown.text)


def record(visit: Visit) -> PageAnswer:
    forms = forms_of(visit)
    topic, kept, log_end = _read(visit, SHOWN_BYTES)
    found = kept.record
    contents = (
        _content("key", found.key, kept.key_bytes, forms.key, forms.key_schema),
        _content("value", found.value, kept.value_bytes, forms.value, forms.value_schema),
    )
    headers = [
        (name, _content(name, value, None if value is None else len(value), AUTO, None))
        for name, value in found.headers
    ]
    return View(
        "record.html",
        {
            "topic": topic,
            "record": found,
            "transactional_id": _transactional_id(visit, found),
            "contents": contents,
            "headers": headers,
            "forms": forms,
            "kept": kept_fields(visit, *FORM_FIELDS),
            "path": records_path(topic.name),
            "log_end": log_end,
        },
    )


def _transactional_id(visit: Visit, found: ReadRecord) -> str | None:
    """Return the transactional id of a record's producer; None where no coordinator tells it."""
    if not found.is_transactional:
        return None
    try:
        with visit.cluster() as cluster:
            rows = listed(cluster, TransactionFilter(producer_id=found.producer_id))
    except ControlError:
        return None
    return rows[0].transactional_id if rows else None


def _content(
    part: str, content: bytes | None, size: int | None, form: str, schema: Schema | None
) -> ShownContent:
    """Return a content for the page. A long one in hexadecimal is cut once more."""
    if content is None:
        return ShownContent(part, None, None, is_cut=False)
    is_cut = len(content) != size
    found = show(content, form, schema, is_cut=is_cut)
    if found.form == HEX and len(content) > HEX_BYTES:
        error = found.error
        found, is_cut = show(content[:HEX_BYTES], HEX, None, is_cut=True)._replace(error=error), True
    can_be_json = not is_cut and is_json(content)
    return ShownContent(part, size, found, is_cut, can_be_json)


def _read(visit: Visit, longest: int) -> tuple[TopicPlaces, Kept, int]:
    """Return the topic, the record of an address, and the partition's log end. Raises ControlError."""
    name = visit.text("topic")
    partition = visit.number("partition", 0, 0, (1 << 31) - 1)
    offset = visit.number("offset", 0)
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        starts, ends = known_offsets(cluster, name, [partition] if partition in topic.led else [])
        if partition not in ends:
            raise ControlError(f"topic {name} has no partition {partition} with a leader")
        kept = None
        if starts[partition] <= offset < ends[partition]:
            kept = _record_at(cluster, topic, partition, offset, longest)
    if kept is None:
        raise ControlError(
            f"offset {offset:,} of partition {partition} holds no record: the partition has offsets "
            f"{starts[partition]:,} to {ends[partition] - 1:,}, and compaction may have removed some"
        )
    return topic, kept, ends[partition]


def _record_at(
    cluster: Cluster, topic: TopicPlaces, partition: int, offset: int, longest: int
) -> Kept | None:
    search = Search(
        topic, {partition: range(offset, offset + 1)}, RecordFilter(markers=True), 1, longest_kept=longest
    )
    found = search.run(cluster)
    if found.problems and not found.records:
        raise ControlError("; ".join(found.problems))
    return found.records[0] if found.records else None


def download(visit: Visit) -> PageAnswer:
    """Return a key or a value as a file, with all its bytes."""
    part = visit.text("part")
    if part not in PARTS:
        raise ControlError(f"a record has a key and a value, but no {part[:40]}")
    topic, kept, _ = _read(visit, WHOLE)
    content = kept.record.key if part == "key" else kept.record.value
    if content is None:
        raise ControlError(f"the {part} of this record is null")
    name = f"{topic.name}-{kept.record.partition}-{kept.record.offset}-{part}.bin"
    return Download(_chunks(content), name)


def _chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, max(1, len(content)), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


# Producing one record.

NULL: Final = "null"
TEXT: Final = "text"
BASE64: Final = "base64"
_FORMS: Final = (TEXT, BASE64, NULL)
_FIELDS: Final = ("key", "key_is", "value", "value_is", "headers", "partition")
_SHOWN: Final = 200


def form_record_produce(visit: Visit, error: str | None = None) -> View:
    given = {name: visit.text(name) for name in _FIELDS}
    given["key_is"] = given["key_is"] or NULL
    given["value_is"] = given["value_is"] or TEXT
    values = {"topic": visit.text("topic"), "given": given, "error": error}
    return View("record_produce.html", values, 200 if error is None else 400)


@above_form(form_record_produce)
def produce(visit: Visit) -> PageAnswer:
    """Store the record, after a question."""
    topic, record = visit.text("topic"), _record(visit)
    if not visit.is_confirmed:
        return _question(topic, record)
    with visit.cluster() as cluster:
        report = send(cluster, topic, [record], compression=None, at_once=True)
    (stored,) = report.partitions
    return Redirect(
        f"{records_path(topic)}/{stored.partition}/{stored.first_offset}",
        f"The record is stored in partition {stored.partition} at offset {stored.first_offset:,}.",
    )


def _record(visit: Visit) -> ProducedRecord:
    return ProducedRecord(
        value=_content_record_produce("value", visit.text("value"), visit.text("value_is", TEXT)),
        key=_content_record_produce("key", visit.text("key"), visit.text("key_is", NULL)),
        headers=_headers(visit.text("headers")),
        partition=visit.optional_number("partition", 0, (1 << 31) - 1),
    )


def _content_record_produce(part: str, text: str, form: str) -> bytes | None:
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
    for header in filter(None, text.split("\n")):
        name, colon, value = header.partition(":")
        if not colon:
            raise ControlError(f"each line of the headers must be NAME: VALUE, not {header[:80]!r}")
        found.append((name.strip(), value.strip().encode()))
    return found


def _question(topic: str, record: ProducedRecord) -> Confirmation:
    partition = "by the key, or any" if record.partition is None else str(record.partition)
    return Confirmation(
        title=f"Produce this record to topic {topic}?",
        action="Produce the record",
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


# A search that shows its hits as they come: each answer is a short page, and says where the next one begins.


def search(visit: Visit) -> PageAnswer:
    forms, wanted = forms_of(visit), filter_of(visit)
    with visit.cluster() as cluster:
        topic = topic_places(cluster, visit.text("topic"))
        wish = replace(_wish(visit, visit.text("from") or "newest"), is_step=True)
        page = record_page(cluster, topic, wish, wanted)
    following = page.following
    return Data(
        {
            "rows": [as_json(row_of(kept, forms)) for kept in page.records],
            "from": From.BEFORE if page.is_newest_first else From.AFTER,
            "at": None if following is None else written_positions(following),
            "searched": page.found.searched,
            "left": page.left,
            "left_out": page.left_out,
            "problems": page.found.problems[:5],
        }
    )


# The records as a file: those of a page, or all that a search finds.

MOST_DOWNLOADED: Final = 10_000
"""Records of one file; a search that finds more ends there."""
MOST_DOWNLOADED_BYTES: Final = 256 << 20


def export(visit: Visit) -> PageAnswer:
    """Return the records of the page, or all that the filter finds, as JSON, CSV or Parquet."""
    kind = visit.text("format")
    if kind not in FILES:
        raise ControlError(f"format must be one of {', '.join(FILES)}, not {kind[:40]}")
    start = visit.text("from") or "newest"
    wish = replace(_wish(visit, "newest" if start == LIVE else start), longest_kept=WHOLE)
    wanted = filter_of(visit)
    pages = _pages(visit, wish, wanted)
    first = next(pages)
    written = write_file(kind, chain([first], pages))
    return Download(written, f"{visit.text('topic')}.{kind}", FILES[kind])


def _pages(visit: Visit, wish: Wish, wanted: RecordFilter) -> Iterator[list[ReadRecord]]:
    """Yield the records of the page; of a search those of the following pages too. Raises ControlError where
    a search can't read all, which breaks a download off that has begun.
    """
    number = size_bytes = 0
    while True:
        with visit.cluster() as cluster:
            page = record_page(cluster, topic_places(cluster, visit.text("topic")), wish, wanted)
        is_search = wanted.matches is not None
        lacking = list(page.found.problems[:5])
        if page.left_out:
            lacking.append(f"{counted(page.left_out, 'partition')} left out; choose one partition")
        if is_search and lacking:
            raise ControlError(f"the file would lack records: {'; '.join(lacking)}")
        room = MOST_DOWNLOADED - number
        yield [kept.record for kept in page.records[:room]]
        number += len(page.records)
        size_bytes += sum((kept.key_bytes or 0) + (kept.value_bytes or 0) for kept in page.records)
        following = page.following
        if not is_search or following is None or number >= MOST_DOWNLOADED:
            return
        if size_bytes >= MOST_DOWNLOADED_BYTES or following == wish.positions:
            return  # a search of committed records stands still before an open transaction
        towards = From.BEFORE if page.is_newest_first else From.AFTER
        wish = replace(wish, start=towards, positions=following, rows=RECORDS_MOST_ROWS)


# The records that arrive while a person looks.

RECORD_TAIL_MOST_ROWS: Final = 200
"""Rows of one answer; of more only the newest are sent."""
_LIMITS: Final = FetchLimits(answer_bytes=2 << 20, partition_bytes=1 << 20, wait_ms=500)


def tail(visit: Visit) -> PageAnswer:
    """Return the records after positions, and the next positions; without positions the log ends."""
    name = visit.text("topic")
    forms, wanted = forms_of(visit), filter_of(visit)
    positions = read_positions(visit.text("at"))
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        if not positions:
            return Data(_answer([], _log_ends(cluster, topic, visit), 0, []))
        stretches = fetch(cluster, topic, positions, _LIMITS, committed=visit.text("committed") == "yes")
    rows: list[dict[str, Any]] = []
    skipped = 0
    problems: list[str] = []
    for partition, stretch in stretches.items():
        found = [
            as_json(row_of(Kept(record, LONGEST_KEPT), forms))
            for record in stretch.records()
            if wanted.accepts(record)
        ]
        rows += found[-RECORD_TAIL_MOST_ROWS:]
        skipped += max(0, len(found) - RECORD_TAIL_MOST_ROWS)
        positions[partition] = stretch.next_offset
        problems += stretch.problems
    problems += without_leader([partition for partition in positions if partition not in stretches])
    return Data(_answer(rows, positions, skipped, problems))


def _log_ends(cluster: Any, topic: TopicPlaces, visit: Visit) -> dict[int, int]:
    only = visit.optional_number("partition", 0, (1 << 31) - 1)
    chosen, _ = partitions_to_read(topic, only)
    return known_offsets(cluster, topic.name, chosen)[1]


def _answer(
    rows: list[dict[str, Any]], positions: dict[int, int], skipped: int, problems: list[str]
) -> dict[str, Any]:
    rows.sort(key=lambda row: (row["time_ms"], row["partition"], int(row["offset"])))
    return {
        "rows": rows[-RECORD_TAIL_MOST_ROWS:],
        "at": written_positions(positions),
        "skipped": skipped + max(0, len(rows) - RECORD_TAIL_MOST_ROWS),
        "problems": problems,
    }


# How records look: the forms that a person has chosen, and a row of a table.

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
    return {name: visit.text(name) for name in names if visit.text(name)}


MOST_NAMES: Final = 10
"""Headers of a record whose names a row shows; the record itself shows all."""
LONGEST_NAME: Final = 60


class RecordRow(NamedTuple):
    """A record as a row. `key` and `value` are None for null, `headers` are names."""

    partition: int
    offset: int
    time_ms: int
    key: str | None
    value: str | None
    key_bytes: int | None
    value_bytes: int | None
    headers: tuple[str, ...]
    producer_id: int
    is_transactional: bool
    marker: str | None


def row_of(kept: Kept, forms: Forms) -> RecordRow:
    record = kept.record
    return RecordRow(
        partition=record.partition,
        offset=record.offset,
        time_ms=record.time_ms,
        key=line(record.key, forms.key, forms.key_schema, is_cut=kept.is_key_cut),
        value=line(record.value, forms.value, forms.value_schema, is_cut=kept.is_value_cut),
        key_bytes=kept.key_bytes,
        value_bytes=kept.value_bytes,
        headers=tuple(shown(name, LONGEST_NAME) for name, _ in record.headers[:MOST_NAMES]),
        producer_id=record.producer_id,
        is_transactional=record.is_transactional,
        marker=record.marker,
    )


def as_json(row: RecordRow) -> dict[str, Any]:
    """Return a row for an island; numbers of 64 bits as text, because JavaScript rounds them."""
    return {**row._asdict(), "offset": str(row.offset), "producer_id": str(row.producer_id)}


# The form in which a person gives a schema for the keys or values of a topic.

_KEPT: Final = ("partition", "from", "offset", "time", "at", "rows", *FILTER_FIELDS, *FORM_FIELDS)


def form_record_schemas(visit: Visit, error: str | None = None) -> View:
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


def give(visit: Visit) -> PageAnswer:
    """Keep the schema, and show the records with it."""
    part, kind = visit.text("part", "value"), visit.text("kind", AVRO)
    if part not in {"key", "value"} or kind not in {AVRO, PROTOBUF}:
        raise ControlError("choose key or value, and Avro or Protobuf")
    content = visit.uploads.get("file") or visit.text("text").encode()
    if not content.strip():
        return form_record_schemas(visit, "Paste a schema, or choose a file.")
    try:
        schema_id = visit.console.schemas.add(kind, content, visit.text("message").strip())
    except ContentError as error:
        return form_record_schemas(visit, str(error))
    chosen = {f"{part}_form": SCHEMA, f"{part}_schema": schema_id}
    return Redirect(address(records_path(visit.text("topic")), **{**kept_fields(visit, *_KEPT), **chosen}))


PAGE: Final = Page(
    "Records",
    PageGroup.DATA,
    "r",
    Get("/records", choice, waits_for="the list of topics"),
    Get("/records/{topic}", records, waits_for="the records"),
    Feed("/api/records/{topic}/tail", tail),
    Feed("/api/records/{topic}/search", search),
    Feed("/api/records/{topic}/download", export),
    Get("/records/{topic}/produce", form_record_produce),
    Post("/records/{topic}/produce", produce),
    Get("/records/{topic}/schema", form_record_schemas),
    Post("/records/{topic}/schema", give),
    Get("/records/{topic}/{partition}/{offset}", record, waits_for="the record"),
    Feed("/records/{topic}/{partition}/{offset}/{part}", download),
)
