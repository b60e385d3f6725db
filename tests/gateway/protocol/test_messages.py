"""Requests that kio refuses and Kafka answers are read; those nobody can read are refused."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from gateway.handlers import APIS
from gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from gateway.protocol.messages import read_request, request_schema
from gateway.protocol.tolerant_reader import read_tolerantly

EVERY_VERSION = [
    (api.key, version) for api in APIS for version in range(api.min_version, api.max_version + 1)
]


def metadata_request(body: bytes, version: int = 4) -> Any:
    return read_request(request_schema(3, version), memoryview(body), 0)


def test_an_array_count_below_minus_one_counts_as_null() -> None:
    assert metadata_request(b"\xff\xff\xff\xfe\0").topics is None


def test_invalid_utf8_is_replaced() -> None:
    request = metadata_request(b"\0\0\0\1\0\2\xff\xfe\1")
    assert request.topics[0].name == "��"
    assert request.allow_auto_topic_creation is True


def test_bytes_after_the_body_are_ignored() -> None:
    assert metadata_request(b"\0\0\0\0\0junk").topics == ()


def test_unknown_and_repeated_tags_are_passed_over() -> None:
    plain = metadata_request(b"\1\0\0\0", version=9)
    tagged = metadata_request(b"\1\0\0\0\2\x63\2ab\x63\0", version=9)
    assert plain == tagged


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\x7f\xff\xff\xff\0", b"\0\0\0\1\0\x09abc"])
def test_bytes_that_end_too_early_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        metadata_request(body)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
@given(body=st.binary(max_size=120))
def test_no_bytes_raise_anything_else(key: int, version: int, body: bytes) -> None:
    schema = request_schema(key, version)
    try:
        request = read_request(schema, memoryview(body), 0)
    except MalformedRequest:
        return
    assert isinstance(request, schema.entity_type)


@given(
    session_id=st.integers(0, 2**31 - 1), offset=st.integers(-(2**63), 2**63 - 1), rack=st.text(max_size=20)
)
def test_both_readers_agree(session_id: int, offset: int, rack: str) -> None:
    schema = request_schema(1, 12)
    module = __import__("kio.schema.fetch.v12.request", fromlist=["x"])
    partition = module.FetchPartition(
        partition=3, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=7, last_fetched_epoch=2
    )
    request = module.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        session_id=session_id,
        topics=(module.FetchTopic(topic="t", partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id=rack,
        cluster_id="c",
    )
    buffer = io.BytesIO()
    entity_writer(module.FetchRequest)(buffer, request)
    view = memoryview(buffer.getvalue())
    assert read_request(schema, view, 0) == request
    assert read_tolerantly(schema.entity_type, view, 0) == request


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
    def test_header_bytes_raise_only_malformed(self, frame: bytes) -> None:
        try:
            header = parse_request_header(memoryview(frame))
            skip_tagged_fields(memoryview(frame), header.body_position)
        except MalformedRequest:
            pass
