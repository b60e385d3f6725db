"""The schemas that people have given, in memory, under the hash of their bytes, so that a link names a schema."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from gateway.console.contents import avro, protobuf
from gateway.console.contents.errors import ContentError

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
        """Begin without schemas."""
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
    parsed = avro.parsed_schema(text)
    return Schema(AVRO, str(getattr(parsed, "fullname", parsed.type)), parsed)


def _protobuf(content: bytes, message: str) -> Schema:
    parsed = protobuf.message_class(content, message)
    return Schema(PROTOBUF, parsed.DESCRIPTOR.full_name, parsed)
