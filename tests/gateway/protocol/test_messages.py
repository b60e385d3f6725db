"""Requests are decoded as Kafka decodes them, in every version. Malformed bytes raise MalformedRequest and
nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader as kio_entity_reader
from kio.serial import entity_writer

from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.fetch_codec import FetchPosition
from seqgate.gateway.protocol.frames import (
    LONGEST_TEXT_BYTES,
    MAX_ITEMS,
    MalformedRequest,
    TooManyItems,
    parse_request_header,
    skip_tagged_fields,
    unsigned_varint,
)
from seqgate.gateway.protocol.messages import request_schema
from seqgate.gateway.protocol.schema import Read

EVERY_VERSION = [
    (api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)
]


def reader_of(key: int, version: int) -> Read:
    api = next(api for api in APIS if api.key == key)
    return request_schema(key, version).read if api.reader is None else api.reader(version)


def metadata_request(body: bytes, version: int = 4) -> Any:
    return reader_of(3, version)(memoryview(body), 0)[0]


def test_an_array_count_below_minus_one_counts_as_null() -> None:
    assert metadata_request(b"\xff\xff\xff\xfe\0").topics is None


def test_invalid_utf8_is_replaced() -> None:
    request = metadata_request(b"\0\0\0\1\0\2\xff\xfe\1")
    assert request.topics[0].name == "��"
    assert request.allow_auto_topic_creation is True


def flexible_metadata_request(name: bytes) -> Any:
    size = len(name) + 1
    length = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    return metadata_request(b"\2" + length + name + b"\0" * 5, version=9)


def test_no_text_is_longer_than_every_answer_can_hold() -> None:
    longest = b"a" * LONGEST_TEXT_BYTES
    assert flexible_metadata_request(longest).topics[0].name == longest.decode()
    with pytest.raises(MalformedRequest, match="a text has 32768 bytes"):
        flexible_metadata_request(longest + b"a")


def test_invalid_bytes_count_as_long_as_what_replaces_them() -> None:
    with pytest.raises(MalformedRequest, match="a text has 60000 bytes"):
        flexible_metadata_request(b"\xff" * 20_000)
    with pytest.raises(MalformedRequest, match="a text has 60000 bytes"):
        parse_request_header(memoryview(b"\0\3\0\1\0\0\0\0" + (20_000).to_bytes(2, "big") + b"\xff" * 20_000))


def test_periods_have_sixty_four_bits() -> None:
    period = reader_of(39, 1)(memoryview(b"\0\0\0\0" + (2**40).to_bytes(8, "big")), 0)[0].renew_period
    assert period == timedelta(milliseconds=2**40)
    for extreme in (2**63 - 1, -(2**63)):
        body = b"\0\0\0\0" + extreme.to_bytes(8, "big", signed=True)
        period = reader_of(39, 1)(memoryview(body), 0)[0].renew_period
        assert abs(period) == timedelta(milliseconds=10**15)


def test_bytes_after_the_body_are_ignored() -> None:
    assert metadata_request(b"\0\0\0\0\0junk").topics == ()


def test_unknown_and_repeated_tags_are_ignored() -> None:
    plain = metadata_request(b"\1\0\0\0\0", version=9)
    tagged = metadata_request(b"\1\0\0\0\2\x63\2ab\x63\0", version=9)
    assert plain == tagged


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\x7f\xff\xff\xff\0", b"\0\0\0\1\0\x09abc"])
def test_cut_bytes_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        metadata_request(body)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
@settings(max_examples=30)
@given(body=st.binary(max_size=120))
def test_bytes_raise_nothing_but_malformed_request(key: int, version: int, body: bytes) -> None:
    with contextlib.suppress(MalformedRequest):
        _, end = reader_of(key, version)(memoryview(body), 0)
        assert end <= len(body)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
@pytest.mark.parametrize("fill", [b"\xff", b"\x7f", b"\xfe\xff\xff\xff\x0f"])
def test_counts_of_billions_take_no_memory(key: int, version: int, fill: bytes) -> None:
    for zeros in range(24):
        with contextlib.suppress(MalformedRequest):
            reader_of(key, version)(memoryview(bytes(zeros) + fill * 12), 0)


class TestTooManyItems:
    """Decoding one request must not block all other clients."""

    def test_topics_of_a_produce_request(self) -> None:
        body = b"\xff\xff\0\1\0\0\0\1" + (MAX_ITEMS + 1).to_bytes(4, "big") + bytes(6 * (MAX_ITEMS + 1))
        with pytest.raises(MalformedRequest, match="names 200001 items"):
            reader_of(0, 7)(memoryview(body), 0)

    def test_partitions_of_all_topics_together(self) -> None:
        half = MAX_ITEMS // 2
        topic = b"\0\1t" + half.to_bytes(4, "big") + b"\0\0\0\0\xff\xff\xff\xff" * half
        body = b"\xff\xff\0\1\0\0\0\1" + (2).to_bytes(4, "big") + topic * 2
        with pytest.raises(MalformedRequest, match="names 200002 items"):
            reader_of(0, 7)(memoryview(body), 0)

    def test_partitions_of_a_fetch_request(self) -> None:
        head = bytes(4 * 4 + 1) + (1).to_bytes(4, "big") + b"\0\1t"
        body = head + (MAX_ITEMS + 1).to_bytes(4, "big") + bytes(16 * (MAX_ITEMS + 1))
        with pytest.raises(MalformedRequest, match="names 200002 items"):
            reader_of(1, 4)(memoryview(body), 0)

    def test_topics_of_a_metadata_request(self) -> None:
        body = (MAX_ITEMS + 1).to_bytes(4, "big") + b"\0\1t" * (MAX_ITEMS + 1)
        with pytest.raises(MalformedRequest, match="names 200001 items"):
            metadata_request(body)

    def test_nested_arrays_of_a_large_request_together(self) -> None:
        """Each of two groups with 100,000 topics is within the limit alone."""
        half = MAX_ITEMS // 2
        group = b"\2a" + unsigned_varint(half + 1) + b"\1\1\0" * half + b"\0"
        schema = request_schema(9, 8)
        one = memoryview(unsigned_varint(2) + group + b"\0\0")
        for _ in range(3):  # each request is counted anew
            assert len(schema.read_large(one, 0)[0].groups[0].topics) == half
        two = memoryview(unsigned_varint(3) + group * 2 + b"\0\0")
        with pytest.raises(TooManyItems, match="names 200002 items"):
            schema.read_large(two, 0)


TAGS = {
    "of a header": lambda tags: skip_tagged_fields(memoryview(tags), 0),
    "of a body": lambda tags: reader_of(3, 9)(memoryview(b"\1\0\0\0" + tags), 0),
    "of a Fetch request": lambda tags: reader_of(1, 15)(
        memoryview(bytes(3 * 4 + 1) + b"\0\0\0\0\xff\xff\xff\xff\1\1\1" + tags), 0
    ),
}


@pytest.mark.parametrize("where", TAGS)
def test_ten_thousand_tagged_fields_are_read_and_more_refused(where: str) -> None:
    TAGS[where](b"\x90\x4e" + b"\x7f\0" * 10_000)
    with pytest.raises(MalformedRequest, match="has 10001 tagged fields; at most 10000"):
        TAGS[where](b"\x91\x4e" + b"\x7f\0" * 10_001)


def encoded(entity: Any) -> memoryview:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


def request_module(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def made(entity_type: Any, **values: Any) -> Any:
    """Return an entity with those of the values whose fields exist in its version."""
    return entity_type(
        **{key: value for key, value in values.items() if key in entity_type.__dataclass_fields__}
    )


TOPIC_ID = uuid.UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize("version", range(4, 19))
@settings(max_examples=30)
@given(
    session_id=st.integers(0, 2**31 - 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    rack=st.text(max_size=20),
    indexes=st.lists(st.integers(0, 2**31 - 1), max_size=3, unique=True),
)
def test_fetch_requests_decode_to_what_kio_encoded(
    version: int, session_id: int, offset: int, rack: str, indexes: list[int]
) -> None:
    module = request_module("fetch", version)
    partitions = tuple(
        made(
            module.FetchPartition,
            partition=index,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=7,
            current_leader_epoch=4,
            last_fetched_epoch=2,
        )
        for index in indexes
    )
    entity = made(
        module.FetchRequest,
        replica_id=-1,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=99,
        isolation_level=1,
        session_id=session_id,
        session_epoch=3,
        topics=(made(module.FetchTopic, topic="t", topic_id=TOPIC_ID, partitions=partitions),),
        forgotten_topics_data=(
            (made(module.ForgottenTopic, topic="u", topic_id=TOPIC_ID, partitions=tuple(indexes)),)
            if version >= 7
            else ()
        ),
        rack_id=rack,
        cluster_id="c",
    )
    frame = encoded(entity)
    request, end = reader_of(1, version)(frame, 0)
    assert end == len(frame)
    assert request[:4] == (500, 1, 99, 1)
    key: str | bytes = TOPIC_ID.bytes if version >= 13 else "t"
    position = FetchPosition(offset, 7, 4 if version >= 9 else -1, 2 if version >= 12 else -1)
    assert request.positions == {(key, index): position for index in indexes}
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (session_id, 3)
        forgotten_key: str | bytes = TOPIC_ID.bytes if version >= 13 else "u"
        assert request.forgotten == [(forgotten_key, index) for index in indexes]


@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=30)
@given(
    transactional_id=st.none() | st.text(max_size=20),
    batches=st.lists(st.none() | st.binary(max_size=300), max_size=3),
)
def test_produce_requests_decode_to_what_kio_encoded(
    version: int, transactional_id: str | None, batches: list[bytes | None]
) -> None:
    module = request_module("produce", version)
    entries = tuple(
        module.PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
    )
    entity = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=timedelta(milliseconds=1234),
        topic_data=(made(module.TopicProduceData, name="t", topic_id=TOPIC_ID, partition_data=entries),),
    )
    frame = encoded(entity)
    request, end = reader_of(0, version)(frame, 0)
    assert end == len(frame)
    assert request[:3] == (transactional_id, -1, 1234)
    ((key, partitions),) = request.topics
    assert key == (TOPIC_ID.bytes if version >= 13 else "t")
    assert [(entry.partition, entry.records) for entry in partitions] == list(enumerate(batches))


@given(names=st.lists(st.text(max_size=10), max_size=4), flag=st.booleans())
def test_other_requests_decode_as_with_kio(names: list[str], flag: bool) -> None:
    module = request_module("metadata", 12)
    entity = module.MetadataRequest(
        topics=tuple(module.MetadataRequestTopic(topic_id=TOPIC_ID, name=name) for name in names),
        allow_auto_topic_creation=flag,
        include_topic_authorized_operations=not flag,
    )
    frame = encoded(entity)
    assert reader_of(3, 12)(frame, 0) == (entity, len(frame))
    assert kio_entity_reader(module.MetadataRequest)(bytes(frame), 0) == (entity, len(frame))


class TestRequestHeader:
    def test_reads_key_version_correlation_and_client_id(self) -> None:
        frame = memoryview(b"\0\3\0\x0c\0\0\0\7\0\2me\0rest")
        assert parse_request_header(frame)[:4] == (3, 12, 7, "me")
        assert skip_tagged_fields(frame, parse_request_header(frame).body_position) == len(frame) - 4

    def test_a_null_client_id_is_empty(self) -> None:
        assert parse_request_header(memoryview(b"\0\3\0\1\0\0\0\7\xff\xff")).client_id == ""

    @pytest.mark.parametrize("frame", [b"", b"\0\3\0\1\0\0\0\7", b"\0\3\0\1\0\0\0\7\0\x09abc"])
    def test_a_cut_header_is_malformed(self, frame: bytes) -> None:
        with pytest.raises(MalformedRequest):
            parse_request_header(memoryview(frame))

    def test_unknown_header_tags_are_skipped(self) -> None:
        assert skip_tagged_fields(memoryview(b"\1\5\2ab!"), 0) == 5

    @given(st.binary(max_size=30))
    def test_header_bytes_raise_nothing_but_malformed_request(self, frame: bytes) -> None:
        try:
            header = parse_request_header(memoryview(frame))
            skip_tagged_fields(memoryview(frame), header.body_position)
        except MalformedRequest:
            pass
