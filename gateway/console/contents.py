"""Shows contents of records: as text, as JSON, in hexadecimal, or by a schema of Avro or Protobuf. Pure.

Contents come from strangers, so each function is bounded, and raises ContentError for what it can't read.

The schemas that people give are in memory, under the hash of their bytes, so that a link names a schema.
Apache's own package in plain Python reads Avro: a record that is nested deeply enough ends the process of a
quicker reader in C (fastavro 1.13).

Serializers with a schema registry write a header: a zero byte, and the id of the schema. Protobuf has the
place of the message type next: a count and the indexes, or one zero byte for the first message.
Source: Confluent's documentation of the wire format.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec

from seqgate.log import LogError
from seqgate.log.format.records import read_varint

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
MOST_SCHEMAS: Final = 100
"""Schemas that are kept; the one that was used longest ago is dropped when another comes."""
MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that can be read: for Avro its own object, for Protobuf the class of the message."""

    kind: str
    name: str
    parsed: Any


class Schemas:
    """Keeps schemas. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Schema] = OrderedDict()

    def add(self, kind: str, content: bytes, message: str = "") -> str:
        """Keep a schema and return its id. Raises ContentError."""
        if len(content) > MOST_BYTES:
            raise ContentError(f"a schema must be smaller than {MOST_BYTES >> 20} MiB")
        schema = _avro(content) if kind == AVRO else _protobuf(content, message)
        digest = hashlib.sha256(kind.encode() + b"\0" + message.encode() + b"\0" + content).hexdigest()[:32]
        with self._lock:
            self._kept[digest] = schema
            self._kept.move_to_end(digest)
            while len(self._kept) > MOST_SCHEMAS:
                self._kept.popitem(last=False)
        return digest

    def get(self, schema_id: str) -> Schema:
        """Return a schema. Raises ContentError when the console does not have it, such as after a restart."""
        with self._lock:
            schema = self._kept.get(schema_id)
            if schema is None:
                raise ContentError("the console no longer has the schema of this link; give the schema again")
            self._kept.move_to_end(schema_id)
            return schema


def _avro(content: bytes) -> Schema:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ContentError("the schema is no Avro schema: it is not UTF-8") from None
    parsed = parsed_schema(text)
    return Schema(AVRO, str(getattr(parsed, "fullname", parsed.type)), parsed)


def _protobuf(content: bytes, message: str) -> Schema:
    parsed = message_class(content, message)
    return Schema(PROTOBUF, parsed.DESCRIPTOR.full_name, parsed)


_ALWAYS_BYTES: Final = 1


def parsed_schema(text: str) -> Any:
    """Return a schema of Avro's JSON (.avsc). Raises ContentError."""
    from avro import errors, schema  # noqa: PLC0415 - slow to import

    try:
        found = schema.parse(text)
    except (errors.AvroException, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContentError(f"the schema is no Avro schema: {str(error)[:300]}") from None
    _refuse_empty_items(found, set())
    return found


def read_avro(content: bytes, schema: Any) -> Any:
    """Return the value of a content. Raises ContentError, also when bytes are left over."""
    from avro.io import BinaryDecoder, DatumReader  # noqa: PLC0415 - slow to import

    stream = io.BytesIO(content)
    try:
        value = DatumReader(schema).read(BinaryDecoder(stream))
    except RecursionError:
        raise ContentError("the content is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - the package raises what its parts raise on wrong bytes
        reason = str(error)[:300] or type(error).__name__
        raise ContentError(f"the content does not fit the Avro schema: {reason}") from None
    left = len(content) - stream.tell()
    if left:
        raise ContentError(f"the content does not fit the Avro schema: {left:,} bytes are left over")
    return value


def _refuse_empty_items(schema: Any, seen: set[int]) -> None:
    """Raise ContentError for a list of items without bytes: a few bytes could claim any number of them."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if schema.type == "array" and _least_bytes(schema.items, set()) == 0:
        raise ContentError(
            "the schema has an array of items without content, which the console does not read"
        )
    for inner in _parts(schema):
        _refuse_empty_items(inner, seen)


def _parts(schema: Any) -> list[Any]:
    match schema.type:
        case "array":
            return [schema.items]
        case "map":
            return [schema.values]
        case "union" | "error_union":
            return list(schema.schemas)
        case "record" | "error" | "request":
            return [field.type for field in schema.fields]
        case _:
            return []


def _least_bytes(schema: Any, seen: set[int]) -> int:
    """Return 0 for a type whose values may take no bytes, otherwise 1."""
    match schema.type:
        case "null":
            return 0
        case "fixed":
            return min(int(schema.size), _ALWAYS_BYTES)
        case "record" | "error":
            if id(schema) in seen:
                return 0
            inner = {*seen, id(schema)}
            return max((_least_bytes(field.type, inner) for field in schema.fields), default=0)
        case _:
            return _ALWAYS_BYTES


# Shows a key or a value in the form that a person has chosen.

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
    """A content in words, shown as `form`; `error` says why not in the form that was chosen."""

    text: str
    form: str
    schema_id: int | None = None
    error: str | None = None


def show(content: bytes, form: str, schema: Schema | None, *, is_cut: bool) -> Shown:
    """Return a content in a form, or as text or hex with the reason. `is_cut`: it is only the beginning."""
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
        return json_text(read_avro(framed.content, schema.parsed))
    content: bytes | None = framed.content
    if framed.schema_id is not None:
        content = without_indexes(framed.content)
    if content is None:
        raise ContentError("the content has no message indexes after the schema id")
    return read_protobuf(content, schema.parsed)


def line(content: bytes | None, form: str, schema: Schema | None, *, is_cut: bool) -> str | None:
    """Return a content as one short line for a table; None for null."""
    if content is None:
        return None
    shown = show(content, form, schema, is_cut=is_cut)
    if shown.form == HEX:
        found = content[:_HEX_IN_A_LINE].hex(" ")
    elif shown.form in {JSON, SCHEMA}:
        found = formatted_json(shown.text, indent=-1)
    else:
        found = " ".join(shown.text.split())
    return found if len(found) <= LONGEST_LINE and not is_cut else f"{found[:LONGEST_LINE]}…"


_HEADER: Final = struct.Struct(">bI")
_MAGIC: Final = 0
_MOST_INDEXES: Final = 32


class Framed(NamedTuple):
    """A content without its header. `schema_id` is None for a content that has none."""

    schema_id: int | None
    content: bytes


def without_header(content: bytes) -> Framed | None:
    """Return what follows the header; None for a content that can't have one."""
    if len(content) < _HEADER.size or content[0] != _MAGIC:
        return None
    return Framed(_HEADER.unpack_from(content)[1], content[_HEADER.size :])


def without_indexes(content: bytes) -> bytes | None:
    """Return a Protobuf content without the place of its message type; None where there is no such place."""
    try:
        count, position = read_varint(content, 0)
        if not 0 <= count <= _MOST_INDEXES:
            return None
        for _ in range(count):
            _, position = read_varint(content, position)
    except LogError:
        return None
    return content[position:]


# Reads Protobuf with a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it.

_WELL_KNOWN: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
}
"""The files of protobuf's own, and their modules."""


def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of a message; no name: the only one of the last file. Raises ContentError."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - slow

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        given = {file.name for file in files.file}
        for file in files.file:
            for needed in file.dependency:
                _add_well_known(pool, needed, given)
            pool.Add(file)
        wanted = name or _only_message(files)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(wanted))
    except ContentError:
        raise
    except KeyError:
        raise ContentError(
            f"the descriptors have no message {wanted}; they have {_shown_names(files)}"
        ) from None
    except Exception as error:  # noqa: BLE001 - the package raises errors of several kinds on wrong bytes
        raise ContentError(
            f"the file is no FileDescriptorSet with all imports: {str(error)[:300]}; make it with protoc "
            "--include_imports --descriptor_set_out=FILE"
        ) from None


def _add_well_known(pool: Any, needed: str, given: set[str]) -> None:
    """Add a file of protobuf's own, such as google/protobuf/timestamp.proto, which people leave out."""
    if needed in given or needed not in _WELL_KNOWN:
        return
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - slow

    file = descriptor_pb2.FileDescriptorProto()
    import_module(_WELL_KNOWN[needed]).DESCRIPTOR.CopyToProto(file)
    pool.Add(file)
    given.add(needed)


def _only_message(files: Any) -> str:
    messages = _names(files.file[-1:])
    if len(messages) != 1:
        raise ContentError(f"name the message type; the descriptors have {_shown_names(files)}")
    return messages[0]


def _shown_names(files: Any) -> str:
    return ", ".join(_names(files.file)[:20]) or "none"


def _names(files: Any) -> list[str]:
    return [
        f"{file.package}.{message.name}" if file.package else str(message.name)
        for file in files
        for message in file.message_type
    ]


def read_protobuf(content: bytes, kind: Any) -> str:
    """Return a content as JSON. Raises ContentError."""
    from google.protobuf import json_format  # noqa: PLC0415 - slow to import
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    message = kind()
    try:
        message.ParseFromString(content)
        value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    except DecodeError as error:
        raise ContentError(f"the content is no {kind.DESCRIPTOR.full_name}: {str(error)[:300]}") from None
    except (TypeError, ValueError, RecursionError, json_format.Error) as error:
        raise ContentError(f"the content can't be shown as JSON: {str(error)[:300]}") from None
    return json_text(value)


# The error of this package.


class ContentError(Exception):
    """A content or a schema can't be read; the message is one sentence."""


# Contents as text, as JSON, and as bytes in hexadecimal.

_IN_A_LINE: Final = 16
_LEAST_PRINTABLE: Final = 0x20
_MOST_PRINTABLE: Final = 0x7E
_LAYOUT: Final = frozenset("\t\n\r")
_LONGEST_CHARACTER: Final = 4


def text(content: bytes, *, is_cut: bool = False) -> str:
    """Return a content as UTF-8. A content that `is_cut` may end inside a character. Raises ContentError."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(content) - _LONGEST_CHARACTER:
            return content[: error.start].decode()
        raise ContentError(f"the content is no UTF-8 at byte {error.start:,}") from None


def is_readable(found: str) -> bool:
    """Return whether people can read a text: it has no control characters but tabs and the ends of lines."""
    return all(letter.isprintable() or letter in _LAYOUT for letter in found)


def formatted_json(content: bytes | str, *, indent: int = 2) -> str:
    """Return JSON with indents, or in one line for -1; numbers keep their digits. Raises ContentError."""
    try:
        formatted = msgspec.json.format(content, indent=indent)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ContentError(f"the content is no JSON: {error}") from None
    return formatted if isinstance(formatted, str) else text(formatted)


def is_json(content: bytes) -> bool:
    """Return whether a content is JSON that is more than one word or number."""
    if content.lstrip()[:1] not in _STARTS_JSON:
        return False
    try:
        formatted_json(content)
    except ContentError:
        return False
    return True


MOST_COLOURED: Final = 64 << 10
"""Letters of a text whose pieces have colours; a longer one has none, because a page has room for so many."""
_TOKEN: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)"
)


def json_tokens(found: str) -> list[tuple[str, str]]:
    """Return formatted JSON in pieces, each with its kind: name, text, number, word, or none of them."""
    if len(found) > MOST_COLOURED:
        return [("", found)]
    tokens, end = [], 0
    for match in _TOKEN.finditer(found):
        tokens += [("", found[end : match.start()]), (match.lastgroup or "", match[0])]
        end = match.end()
    return [token for token in (*tokens, ("", found[end:])) if token[1]]


def json_text(value: Any) -> str:
    """Return a value as JSON with indents. Raises ContentError."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    except (RecursionError, ValueError) as error:
        raise ContentError(f"the content can't be shown as JSON: {error}") from None


def _plain(value: Any) -> Any:
    return f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)


def hexadecimal(content: bytes) -> str:
    """Return lines with the place, sixteen bytes, and the letters that they are."""
    return "\n".join(
        _hex_line(start, content[start : start + _IN_A_LINE]) for start in range(0, len(content), _IN_A_LINE)
    )


def _hex_line(start: int, part: bytes) -> str:
    letters = "".join(chr(byte) if _LEAST_PRINTABLE <= byte <= _MOST_PRINTABLE else "." for byte in part)
    return f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {letters}"
