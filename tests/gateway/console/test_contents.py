"""Contents of records as people read them, and what hostile contents can't do."""

from __future__ import annotations

import io
import json

import pytest
from avro.io import BinaryEncoder, DatumWriter
from google.protobuf import descriptor_pb2, timestamp_pb2

from seqgate.gateway.console.contents import (
    AUTO,
    AVRO,
    HEX,
    JSON,
    MOST_BYTES,
    PROTOBUF,
    SCHEMA,
    TEXT,
    ContentError,
    Schema,
    Schemas,
    line,
    show,
)

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
NESTED = {"type": "record", "name": "Nested", "fields": [{"name": "next", "type": ["null", "Nested"]}]}


def schema_of(kind: str, content: bytes, message: str = "") -> Schema:
    schemas = Schemas()
    return schemas.get(schemas.add(kind, content, message))


def avro_bytes(value: object) -> bytes:
    stream = io.BytesIO()
    DatumWriter(schema_of(AVRO, json.dumps(ORDER).encode()).parsed).write(value, BinaryEncoder(stream))
    return stream.getvalue()


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize(
    ("content", "form", "text"),
    [
        (b"hello", TEXT, "hello"),
        (b'{"a":9007199254740993.10}', JSON, '{\n  "a": 9007199254740993.10\n}'),
        (b"{not json", TEXT, "{not json"),
        (b"\x00\xff", HEX, "00000000  00 ff"),
        (b"", TEXT, ""),
        ("größe".encode(), TEXT, "größe"),
        (b"bell\x07", HEX, "00000000  62 65 6c 6c 07"),
    ],
)
def test_a_content_is_shown_in_the_form_that_fits(content: bytes, form: str, text: str) -> None:
    shown = show(content, AUTO, None, is_cut=False)
    assert shown.form == form
    assert shown.text.startswith(text)
    assert shown.error is None


def test_the_beginning_of_a_text_may_end_inside_a_character() -> None:
    assert show("größe".encode()[:3], AUTO, None, is_cut=True).text == "gr"


def test_a_form_that_does_not_fit_is_told_beside_what_does() -> None:
    shown = show(b"\xff\xfe", JSON, None, is_cut=False)
    assert shown.form == HEX
    assert "no JSON" in (shown.error or "")
    assert "beginning" in (show(b"{}", JSON, None, is_cut=True).error or "")
    assert "schema" in (show(b"{}", SCHEMA, None, is_cut=False).error or "")


def test_json_after_a_registry_header_is_json() -> None:
    shown = show(b"\x00\x00\x00\x00\x2a" + b'{"a":1}', AUTO, None, is_cut=False)
    assert (shown.form, shown.schema_id) == (JSON, 42)


@pytest.mark.parametrize(("header", "schema_id"), [(b"", None), (b"\x00\x00\x00\x00\x07", 7)])
def test_avro_is_read_with_and_without_a_registry_header(header: bytes, schema_id: int | None) -> None:
    schema = schema_of(AVRO, json.dumps(ORDER).encode())
    content = header + avro_bytes({"id": 5, "note": "<b>"})
    shown = show(content, SCHEMA, schema, is_cut=False)
    assert (json.loads(shown.text), shown.schema_id) == ({"id": 5, "note": "<b>"}, schema_id)
    assert line(content, SCHEMA, schema, is_cut=False) == '{"id":5,"note":"<b>"}'


def test_avro_that_does_not_fit_is_told() -> None:
    schema = schema_of(AVRO, json.dumps(ORDER).encode())
    assert "bytes are left over" in (
        show(avro_bytes({"id": 1, "note": None}) + b"x", SCHEMA, schema, is_cut=False).error or ""
    )
    assert "does not fit" in (show(b"\x02\x0f", SCHEMA, schema, is_cut=False).error or "")


def test_deeply_nested_avro_ends_in_a_sentence() -> None:
    schema = schema_of(AVRO, json.dumps(NESTED).encode())
    assert "nested too deeply" in (
        show(b"\x02" * 200_000 + b"\x00", SCHEMA, schema, is_cut=False).error or ""
    )


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_a_schema_that_lets_few_bytes_claim_many_items_is_refused(items: object) -> None:
    with pytest.raises(ContentError, match="without content"):
        Schemas().add(AVRO, json.dumps({"type": "array", "items": items}).encode())


@pytest.mark.parametrize("header", [b"", b"\x00\x00\x00\x00\x07\x00", b"\x00\x00\x00\x00\x07\x02\x00"])
def test_protobuf_is_read_with_and_without_a_registry_header(header: bytes) -> None:
    schema = schema_of(PROTOBUF, descriptors())
    at = timestamp_pb2.Timestamp(seconds=1).SerializeToString()
    content = header + b"\x08\x05\x12" + bytes([len(at)]) + at
    shown = show(content, SCHEMA, schema, is_cut=False)
    assert json.loads(shown.text) == {"id": "5", "at": "1970-01-01T00:00:01Z"}


def test_a_message_that_the_descriptors_lack_is_told() -> None:
    with pytest.raises(ContentError, match=r"no message shop\.Bill; they have shop\.Order"):
        Schemas().add(PROTOBUF, descriptors(), "shop.Bill")
    with pytest.raises(ContentError, match="no FileDescriptorSet"):
        Schemas().add(PROTOBUF, b"\xff\xff")


def test_a_schema_is_bounded_and_forgotten_schemas_are_told() -> None:
    schemas = Schemas()
    with pytest.raises(ContentError, match="smaller"):
        schemas.add(AVRO, b" " * (MOST_BYTES + 1))
    with pytest.raises(ContentError, match="no longer has"):
        schemas.get("0" * 32)
    with pytest.raises(ContentError, match="no Avro schema"):
        schemas.add(AVRO, b"[" * 100_000)


def test_large_contents_are_shown() -> None:
    show(b"[" * 200_000, AUTO, None, is_cut=False)
    show(b"\xff" * 1_000_000, AUTO, None, is_cut=False)
