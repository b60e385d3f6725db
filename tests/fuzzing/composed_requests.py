"""Random requests of any API and version, built from kio's schemas: mostly well-formed, with names that exist
and some extreme values.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any

from kio.serial import entity_writer

from seqgate.gateway.config.groups import BY_GROUP_NAME
from seqgate.gateway.config.table import SETTINGS
from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.messages import request_type
from tests.fuzzing import record_batches
from tests.fuzzing.changes import extreme
from tests.support.wire import API_KEYS, EPOCH, Plain, encode_body, encode_header, field_shape

LETTERS = "letters"
"""The topic of dead letters."""
TOPICS = ("plain", "compacted", "delayed", LETTERS)
GROUPS = ("classic", "consumer", "shared", "streams")
TRANSACTION = "transaction"
CLIENT_ID = "fuzzed"
TOPIC_IDS = tuple(uuid.UUID(bytes=b"topic id number" + bytes([number])) for number in range(len(TOPICS)))
"""Placeholders for the ids that the topics have in the gateway under test."""
MEMBER_ID = f"{CLIENT_ID}-{uuid.UUID(int=0)}"
"""Placeholder for the id of the only member of the group `classic`."""
VERSIONS = tuple(
    (api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)
)

_NAMES = (
    *TOPICS,
    "__consumer_offsets",
    "__cluster_metadata",
    "new",
    "",
    "..",
    "a/b",
    "\0",
    "ü" * 300,
    "n" * 249,
)
_SETTINGS = tuple(sorted({*BY_GROUP_NAME, *(setting.topic_name or setting.name for setting in SETTINGS)}))
_VALUES = (
    "",
    "0",
    "1",
    "-1",
    "true",
    "compact",
    "compact,delete",
    "deliver-at-ms",
    LETTERS,
    "0,1,5",
    str(2**31),
    str(2**63),
    "1e9",
    "\0",
    "é",
)
_PATTERNS = (".*", "plain|new", "(", "(a*)*b", "\\p{Greek}" * 50, "(?P<n>x)", "x{1000}" * 3, "")
_TEXTS: dict[str, tuple[str, ...]] = {
    "transactional_id": (TRANSACTION, TRANSACTION, "other", ""),
    "group_instance_id": ("static", "", "x" * 300),
    "instance_id": ("static", ""),
    "member_id": (MEMBER_ID, "", "m"),
    "protocol_type": ("consumer", "connect", ""),
    "protocol_name": ("range", ""),
    "subscribed_topic_regex": _PATTERNS,
    "transactional_id_pattern": _PATTERNS,
    "server_assignor": ("uniform", "range", "simple", "none"),
    "subtopology_id": ("0", "0", "1", ""),
    "value": _VALUES,
    "client_software_name": ("fuzz", "-", ""),
    "client_software_version": ("1", "", "\n"),
}
_GROUP_FIELDS = ("group", "coordinator_key", "key")


def request(chance: random.Random, chosen: tuple[int, int] | None = None) -> bytes:
    """Return a complete request with its length in front, of the chosen API and version or of any."""
    api_key, version = chosen or chance.choice(VERSIONS)
    kind = request_type(api_key, version)
    while True:
        buffer = io.BytesIO()
        try:
            entity_writer(kind)(buffer, _entity(kind, chance))
        except (ValueError, TypeError, OverflowError, struct.error):
            continue  # kio can't write a value that is too long for its field, or null in an entity
        return _framed(api_key, version, buffer.getvalue())


def asked(api: str, version: int, **fields: Any) -> bytes:
    """Return a complete request with these fields; the others are empty."""
    request: Plain = fields
    return _framed(API_KEYS[api], version, encode_body(api, version, request))


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    flexible = request_type(api_key, version).__flexible__
    frame = encode_header(api_key, version, 7, flexible=flexible, client_id=CLIENT_ID) + body
    return len(frame).to_bytes(4, "big") + frame


def _entity(entity_type: Any, chance: random.Random) -> Any:
    return entity_type(**{name: make(chance) for name, make in _makers(entity_type)})


@cache
def _makers(entity_type: Any) -> tuple[tuple[str, Callable[[random.Random], Any]], ...]:
    return tuple((field.name, _maker(field)) for field in fields(entity_type))


def _maker(field: Field[Any]) -> Callable[[random.Random], Any]:
    inner, is_array, nullable = field_shape(field.type)
    kind = str(field.metadata.get("kafka_type"))

    def one(chance: random.Random) -> Any:
        return _entity(inner, chance) if is_dataclass(inner) else _primitive(kind, field.name, chance)

    def make(chance: random.Random) -> Any:
        if nullable and chance.random() < 0.2:
            return None
        if is_array:
            return tuple(one(chance) for _ in range(chance.choice((0, 1, 1, 1, 2, 3))))
        return one(chance)

    return make


def _primitive(kind: str, name: str, chance: random.Random) -> Any:
    match kind:
        case "string":
            return _text(name, chance)
        case "bool":
            return chance.random() < 0.5
        case "uuid":
            return chance.choice((*TOPIC_IDS, *TOPIC_IDS, uuid.UUID(int=7), None))
        case "bytes":
            return chance.choice((_SUBSCRIPTION, _SUBSCRIPTION, _ASSIGNMENT, b"", chance.randbytes(20)))
        case "records":
            return _records(chance)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=chance.choice((0, 1, 100, 30_000, 300_000, 2**31 - 1, -1)))
        case "datetime_i64":
            return EPOCH
    bits = int(kind.removeprefix("u").removeprefix("int"))
    if chance.random() < 0.15:
        return extreme(chance, bits)
    return chance.choice(_usual_numbers(name))


def _usual_numbers(name: str) -> tuple[int, ...]:
    match name:
        case "acks":
            return (-1, -1, 1, 0)
        case "max_bytes" | "partition_max_bytes" | "max_records":
            return (1 << 20, 1, 0)
        case "replication_factor" | "replica_id":
            return (-1, 1)
        case "resource_type":
            return (2, 4, 32)
        case "num_partitions" | "count":
            return (1, 2, 3, -1)
        case "acknowledge_types":
            return (1, 2, 3, 4, 0)
        case "node_type":
            return (1, 2, 3, 0)
        case "member_epoch":
            return (0, 0, 1, 2, -1, -2)
        case "session_epoch" | "share_session_epoch":
            return (0, 0, -1, 1)
        case "config_operation" | "isolation_level":
            return (0, 1, 2, 3)
    return (0, 0, 1, 2, -1)


def _text(name: str, chance: random.Random) -> str:
    texts = _TEXTS.get(name.removeprefix("v3_and_below_"))
    if texts is None and name.startswith(_GROUP_FIELDS):
        texts = (*GROUPS, "new", "", "g" * 300, TRANSACTION)
    if texts is None and name in {"name", "configuration_keys"} and chance.random() < 0.4:
        texts = (*_SETTINGS, "range")
    return chance.choice(texts or _NAMES)


def _records(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return chance.choice(_BATCHES)
    return record_batches.mutated(chance.choice(_BATCHES), chance)


_BATCHES = tuple(record_batches.seeds())
_SUBSCRIPTION = b"\0\3\0\0\0\1\0\5plain\xff\xff\xff\xff\0\0\0\1\0\5plain\0\0\0\1\0\0\0\0\0\0\0\1\xff\xff"
_ASSIGNMENT = b"\0\0\0\0\0\1\0\5plain\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
