"""Records as text and as JSON, for `seqgate produce` and `seqgate consume`. Raises ValueError, a sentence."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The fields that `seqgate consume --show` prints, by name."""


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """A record to send; `partition` None: by the key, or any; `timestamp` None: now."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The meaning of a line of plain text: its key ends at `key_separator`; None: the whole line is the
    value.

    `key`, `headers` and `partition` are those of every line. A value that equals `null` is sent as null.
    `keeps_partitions`: a line of JSON names its partition.
    """

    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    null: bytes | None = None
    keeps_partitions: bool = False

    def parse(self, line: bytes) -> ProducedRecord:
        """Return the record of one line."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode()!r} in the line")
        sent = None if self.null is not None and value == self.null else value
        return ProducedRecord(sent, key, list(self.headers), self.partition)


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record in JSON."""

    name: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record in JSON, as `seqgate consume --json` prints it; topic and offset are ignored."""

    value: Any = None
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: list[JsonHeader] | dict[str, str | None] = msgspec.field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None
    offset: int | None = None


_decoder: Final = msgspec.json.Decoder(JsonRecord)


def parse_json(line: bytes, defaults: LineFormat) -> ProducedRecord:
    """Return the record of one line of JSON; `defaults` has the values of fields that the line lacks."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the line is not a record in JSON: {error}") from None
    key = _bytes(found.key, found.key_base64, "key")
    headers = found.headers
    if isinstance(headers, dict):
        headers = [JsonHeader(name, value) for name, value in headers.items()]
    return ProducedRecord(
        _bytes(_text(found.value), found.value_base64, "value"),
        defaults.key if key is None else key,
        [*(_header(header) for header in headers), *defaults.headers],
        found.partition if defaults.keeps_partitions and found.partition is not None else defaults.partition,
        found.timestamp,
    )


def _header(header: JsonHeader) -> tuple[str, bytes]:
    value = _bytes(header.value, header.value_base64, "value")
    if value is None:
        raise ValueError(f"the header {header.name} is null, which this command can't send")
    return header.name, value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _bytes(text: str | None, in_base64: str | None, name: str) -> bytes | None:
    if in_base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise ValueError(f"{name} and {name}_base64 exclude each other")
    try:
        return base64.b64decode(in_base64, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name}_base64 is not base64: {error}") from None


def json_line(record: Any, topic: str) -> bytes:
    """Return a consumed record as one line of JSON."""
    headers = [_pair("value", value, {"name": name}) for name, value in record.headers]
    document: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _pair("key", record.key, document)
    _pair("value", record.value, document)
    document["headers"] = headers
    return msgspec.json.encode(document) + b"\n"


def _pair(name: str, value: bytes | None, document: dict[str, Any]) -> dict[str, Any]:
    """Add bytes to a document under `name` as text, or under `name_base64` where they are no UTF-8."""
    try:
        document[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(value or b"").decode()
    return document


def text_line(record: Any, topic: str, fields: Sequence[str], separator: bytes, null: bytes) -> bytes:
    """Return the fields of a consumed record as one line of text."""
    return separator.join(_cell(record, topic, name, null) for name in fields) + b"\n"


def _cell(record: Any, topic: str, name: str, null: bytes) -> bytes:
    match name:
        case "topic":
            return topic.encode()
        case "key" | "value":
            content: bytes | None = getattr(record, name)
            return null if content is None else content
        case "headers":
            return b",".join(
                header.encode() + b"=" + (null if value is None else value)
                for header, value in record.headers
            )
        case _:
            return str(getattr(record, name)).encode()


def parse_fields(text: str) -> tuple[str, ...]:
    """Return the fields of `--show`, such as `partition,offset,key,value`."""
    fields = tuple(name.strip() for name in text.split(","))
    for name in fields:
        if name not in FIELDS:
            raise ValueError(f"{name!r} is not one of {', '.join(FIELDS)}")
    return fields


# The JSON output of `seqgate produce --json`.


class ProducedPartition(msgspec.Struct, frozen=True):
    """The records that are stored in one partition, and the offsets of the first and the last."""

    partition: int
    first_offset: int
    last_offset: int
    records: int


class ProducedReport(msgspec.Struct, frozen=True):
    """The records that are stored in a topic."""

    topic: str
    records: int
    partitions: list[ProducedPartition]
