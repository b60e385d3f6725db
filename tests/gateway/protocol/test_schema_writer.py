"""Every answer is encoded to the same bytes as by kio."""

from __future__ import annotations

import io
import random
import uuid
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_origin

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.serial import entity_writer as kio_entity_writer

from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.messages import encode_response, response_type
from seqgate.gateway.protocol.schema import entity_writer

EVERY_VERSION = [
    (api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)
]
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ERRORS = list(ErrorCode)


def any_of(annotation: Any, kafka_type: str | None, dice: random.Random) -> Any:
    """Return a value for a field of this type. The values together reach every branch of a writer."""
    options = get_args(annotation)
    if type(None) in options:
        inner = next(option for option in options if option is not type(None))
        return None if dice.random() < 0.3 else any_of(inner, kafka_type, dice)
    if get_origin(annotation) is tuple:
        # The length of an array with 130 items takes two bytes. Arrays of structures stay short, because
        # nested items would multiply.
        counts = (0, 1, 2) if is_dataclass(options[0]) else (0, 1, 130)
        return tuple(any_of(options[0], kafka_type, dice) for _ in range(dice.choice(counts)))
    if is_dataclass(annotation):
        return filled(annotation, dice)
    assert kafka_type is not None
    if kafka_type in WIDTHS:
        return dice.getrandbits(WIDTHS[kafka_type]) - (1 << (WIDTHS[kafka_type] - 1))
    if kafka_type.startswith("uint"):
        return dice.getrandbits(int(kafka_type.removeprefix("uint")))
    return {
        "bool": lambda: dice.random() < 0.5,
        "float64": dice.random,
        "error_code": lambda: dice.choice(ERRORS),
        "string": lambda: "é" * dice.choice((0, 3, 200)),
        "bytes": lambda: bytes(dice.choice((0, 3, 200))),
        "records": lambda: bytes(dice.choice((0, 3, 200))),
        "uuid": lambda: uuid.UUID(int=dice.getrandbits(128)),
        "timedelta_i32": lambda: timedelta(milliseconds=dice.getrandbits(20)),
        "timedelta_i64": lambda: timedelta(milliseconds=dice.getrandbits(40)),
        "datetime_i64": lambda: datetime.fromtimestamp(dice.getrandbits(30), UTC),
    }[kafka_type]()


def filled(entity_type: Any, dice: random.Random) -> Any:
    values = {}
    for field in fields(entity_type):
        if "tag" in field.metadata and dice.random() < 0.5:
            continue  # The writer leaves default values out.
        values[field.name] = any_of(field.type, field.metadata.get("kafka_type"), dice)
    return entity_type(**values)


def written(entity: Any) -> bytes:
    pieces: list[bytes] = []
    entity_writer(type(entity))(pieces.append, entity)
    return b"".join(pieces)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_answers_equal_those_of_kio(key: int, version: int) -> None:
    entity_type: Any = response_type(key, version)
    for seed in range(12):
        entity = filled(entity_type, random.Random(seed))
        buffer = io.BytesIO()
        kio_entity_writer(entity_type)(buffer, entity)
        assert written(entity) == buffer.getvalue(), seed


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_the_frame_has_its_size_and_header(key: int, version: int) -> None:
    entity_type: Any = response_type(key, version)
    entity = filled(entity_type, random.Random(1))
    frame = encode_response(key, 0x01020304, entity)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, body = frame[4:8], frame[8:]
    assert header == b"\1\2\3\4"
    if entity_type.__flexible__ and key != 18:
        assert body[:1] == b"\0"
        body = body[1:]
    read, size = entity_reader(entity_type)(body, 0)
    assert size == len(body)
    assert written(read) == body


def test_a_null_in_a_field_that_can_not_be_null_is_refused() -> None:
    entity_type: Any = response_type(10, 2)  # for FindCoordinator
    entity = filled(entity_type, random.Random(1))
    with pytest.raises(TypeError):
        written(entity_type(**{**{f.name: getattr(entity, f.name) for f in fields(entity)}, "host": None}))
