"""Writes records as a file: JSON, CSV or Parquet. Streamed: a page of records at a time. Pure.

A key or a value that is no UTF-8 is in base64 in JSON and CSV, and its column `..._encoding` says so. Parquet
has the bytes themselves.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.records import ReadRecord

JSON: Final = "json"
CSV: Final = "csv"
PARQUET: Final = "parquet"
FILES: Final = {
    JSON: "application/json",
    CSV: "text/csv; charset=utf-8",
    PARQUET: "application/vnd.apache.parquet",
}
"""The kinds of files, and the content type of each."""
COLUMNS: Final = (
    "partition",
    "offset",
    "timestamp_ms",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
    "producer_id",
    "producer_epoch",
    "sequence",
    "transactional",
    "marker",
)


def write_file(kind: str, pages: Iterable[Sequence[ReadRecord]]) -> Iterator[bytes]:
    """Return the bytes of a file with the records of all pages. Raises ControlError without pyarrow."""
    if kind == JSON:
        return _json(pages)
    return _csv(pages) if kind == CSV else _parquet(pages)


def _text(content: bytes | None) -> tuple[str | None, str | None]:
    """Return a content as text, and the encoding of the text; None for null."""
    if content is None:
        return None, None
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def _row(record: ReadRecord) -> dict[str, Any]:
    headers = [{"name": name, "value": _text(value)[0]} for name, value in record.headers]
    values = (
        record.partition,
        record.offset,
        record.time_ms,
        *_text(record.key),
        *_text(record.value),
        headers,
        record.producer_id,
        record.producer_epoch,
        record.sequence,
        record.is_transactional,
        record.marker,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _json(pages: Iterable[Sequence[ReadRecord]]) -> Iterator[bytes]:
    separator = b"[\n"
    for page in pages:
        for record in page:
            yield separator + msgspec.json.encode(_row(record))
            separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def _csv(pages: Iterable[Sequence[ReadRecord]]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    for page in pages:
        for record in page:
            row = _row(record)
            writer.writerow({**row, "headers": msgspec.json.encode(row["headers"]).decode()})
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _parquet(pages: Iterable[Sequence[ReadRecord]]) -> Iterator[bytes]:
    """Return a file with a row group for each page. pyarrow is no dependency: it is larger than Seqgate."""
    try:
        pyarrow = import_module("pyarrow")
        import_module("pyarrow.parquet")
    except ImportError:
        raise ControlError(
            "Parquet needs pyarrow, which is not installed where the console runs; install it with "
            "pip install pyarrow, or choose JSON or CSV"
        ) from None
    return _row_groups(pyarrow, pages)


def _row_groups(pyarrow: Any, pages: Iterable[Sequence[ReadRecord]]) -> Iterator[bytes]:
    header = pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("ms", "UTC")),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
            ("producer_id", pyarrow.int64()),
            ("producer_epoch", pyarrow.int16()),
            ("sequence", pyarrow.int32()),
            ("transactional", pyarrow.bool_()),
            ("marker", pyarrow.string()),
        ]
    )
    sink = _Sink()
    with pyarrow.parquet.ParquetWriter(sink, schema) as writer:
        for page in pages:
            writer.write_table(pyarrow.Table.from_pylist(list(map(_parquet_row, page)), schema))
            yield sink.taken()
    yield sink.taken()


def _parquet_row(record: ReadRecord) -> dict[str, Any]:
    """Return the fields of a record, of which the schema takes its own."""
    return {
        **record._asdict(),
        "timestamp": record.time_ms,
        "headers": [{"name": name, "value": value} for name, value in record.headers],
        "transactional": record.is_transactional,
    }


class _Sink(io.RawIOBase):
    """A file of which a reader takes what was written since the last time."""

    def __init__(self) -> None:
        self._written = bytearray()
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._written += content
        self._position += len(content)
        return len(content)

    def tell(self) -> int:
        return self._position

    def taken(self) -> bytes:
        content = bytes(self._written)
        self._written.clear()
        return content
