"""One record: its key, value and headers in full, and what its batch says about the producer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.console.asking.records import Kept, RecordFilter, Search, Span
from gateway.console.asking.topics import TopicPlaces, offsets, topic_places
from gateway.console.contents.schemas import HEX, Schema, Shown, show
from gateway.console.page import Answer, Download, View, Visit, records_path
from gateway.console.pages.record_views import FORM_FIELDS, forms_of, kept_fields

SHOWN_BYTES: Final = 512 << 10
"""Bytes of a content that the page shows; the rest comes as a download."""
HEX_BYTES: Final = 16 << 10
WHOLE: Final = 1 << 31
_CHUNK_BYTES: Final = 1 << 20
PARTS: Final = ("key", "value")


class Content(NamedTuple):
    """A key or a value on the page; `shown` is None for null."""

    part: str
    size_bytes: int | None
    shown: Shown | None
    is_cut: bool


def record(visit: Visit) -> Answer:
    """Show one record."""
    forms = forms_of(visit)
    topic, kept, log_end = _read(visit, SHOWN_BYTES)
    found = kept.record
    contents = (
        _content("key", found.key, kept.key_bytes, forms.key, forms.key_schema),
        _content("value", found.value, kept.value_bytes, forms.value, forms.value_schema),
    )
    headers = [(name, _content(name, value, _size(value), "auto", None)) for name, value in found.headers]
    return View(
        "record.html",
        {
            "topic": topic,
            "record": found,
            "contents": contents,
            "headers": headers,
            "forms": forms,
            "kept": kept_fields(visit, *FORM_FIELDS),
            "path": records_path(topic.name),
            "log_end": log_end,
        },
    )


def _size(content: bytes | None) -> int | None:
    return None if content is None else len(content)


def _content(part: str, content: bytes | None, size: int | None, form: str, schema: Schema | None) -> Content:
    """Return a content for the page. A long one in hexadecimal is cut once more."""
    if content is None:
        return Content(part, None, None, is_cut=False)
    is_cut = len(content) != size
    shown = show(content, form, schema, is_cut=is_cut)
    if shown.form == HEX and len(content) > HEX_BYTES:
        error = shown.error
        shown, is_cut = show(content[:HEX_BYTES], HEX, None, is_cut=True)._replace(error=error), True
    return Content(part, size, shown, is_cut)


def _read(visit: Visit, longest: int) -> tuple[TopicPlaces, Kept, int]:
    """Return the topic, the record of an address, and the partition's log end. Raises ControlError."""
    name = visit.text("topic")
    partition = visit.number("partition", 0, 0, (1 << 31) - 1)
    offset = visit.number("offset", 0)
    with visit.cluster() as cluster:
        topic = topic_places(cluster, name)
        starts, ends = offsets(cluster, name, [partition] if partition in _led(topic) else [])
        if partition not in ends:
            raise ControlError(f"topic {name} has no partition {partition} with a leader")
        kept = None
        if starts[partition] <= offset < ends[partition]:
            kept = _record_at(cluster, topic, partition, offset, longest)
    if kept is None:
        raise ControlError(
            f"offset {offset:,} of partition {partition} holds no record: the partition has offsets {starts[partition]:,} to "
            f"{ends[partition] - 1:,}, and compaction may have removed some"
        )
    return topic, kept, ends[partition]


def _led(topic: TopicPlaces) -> set[int]:
    return {place.partition for place in topic.partitions if place.leader is not None}


def _record_at(
    cluster: Cluster, topic: TopicPlaces, partition: int, offset: int, longest: int
) -> Kept | None:
    search = Search(
        topic, {partition: Span(offset, offset + 1)}, RecordFilter(markers=True), 1, longest_kept=longest
    )
    found = search.run(cluster)
    if found.problems and not found.records:
        raise ControlError("; ".join(found.problems))
    return found.records[0] if found.records else None


def download(visit: Visit) -> Answer:
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
