"""Repeated Produce requests: the fast path gives the full decoder's result, or does not recognize a request
as a repeat.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from seqgate.gateway.handlers.records.produce import FIRST_REPEATED_VERSION, RepeatedAnswer
from seqgate.gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.produce_codec import (
    ProduceRequest,
    ProduceRow,
    encode_produce_response,
    produce_reader,
)
from tests.support.core_modules import both_ways
from tests.support.wire import encode

INTERPRETED, *COMPILED = both_ways("seqgate.gateway.protocol.produce_prefix")
TOPIC_ID = uuid.UUID("5f0c3f0e-32f9-4bb1-9c5c-6f8b74b2f1aa")
versions = pytest.mark.parametrize("version", range(FIRST_REPEATED_VERSION, 14))
client_ids = st.none() | st.text("ab-ü", max_size=12)
names = st.text("abc._-", min_size=1, max_size=140)
contents = st.sampled_from([0, 1, 61, 126, 127, 128, 16_382, 16_383, 70_000]).map(lambda size: b"r" * size)


def request(
    version: int, name: str, *partitions: tuple[int, bytes | None], acks: int = -1, topics: int = 1
) -> bytes:
    topic: dict[str, Any] = {"topic_id": str(TOPIC_ID)} if version == 13 else {"name": name}
    topic["partition_data"] = [{"index": index, "records": records} for index, records in partitions]
    return encode("produce", version, {"acks": acks, "timeout": 30_000, "topic_data": [topic] * topics})


def with_client_id(frame: bytes, client_id: str | None) -> bytes:
    size = int.from_bytes(frame[8:10], "big", signed=True)
    raw = None if client_id is None else client_id.encode()
    head = struct.pack(">h", -1) if raw is None else struct.pack(">h", len(raw)) + raw
    return frame[:8] + head + frame[10 + max(size, 0) :]


def read_whole(frame: bytes, version: int) -> ProduceRequest:
    view = memoryview(frame)
    position = parse_request_header(view).body_position
    if version >= 9:
        position = skip_tagged_fields(view, position)
    read: ProduceRequest = produce_reader(version)(view, position)[0]
    return read


def client_id_bytes(frame: bytes) -> int:
    return int.from_bytes(frame[8:10], "big", signed=True)


def is_for_one_partition(frame: bytes, version: int) -> bool:
    (answer,) = {
        bool(module.is_for_one_partition(memoryview(frame), version, client_id_bytes(frame)))
        for module in (INTERPRETED, *COMPILED)
    }
    return answer


def split_request(frame: bytes, version: int) -> tuple[bytes, memoryview] | None:
    """Return what both ways find."""
    found: tuple[bytes, memoryview] | None
    found, *others = (
        module.split_request(memoryview(frame), version, client_id_bytes(frame))
        for module in (INTERPRETED, *COMPILED)
    )
    assert others == [found] * len(others)
    return found


def read_as_repeat(frame: bytes, version: int) -> memoryview | None:
    split = split_request(frame, version)
    return None if split is None else split[1]


@versions
@settings(max_examples=40)
@given(client_id=client_ids, name=names, index=st.integers(0, 2**31 - 1), records=contents)
def test_finds_the_records_of_one_partition(
    version: int, client_id: str | None, name: str, index: int, records: bytes
) -> None:
    frame = with_client_id(request(version, name, (index, records)), client_id)
    if version < 13 and version >= 9 and len(name) > 126:
        assert not is_for_one_partition(frame, version)
        return
    assert is_for_one_partition(frame, version)
    split = split_request(frame, version)
    assert split is not None
    prefix, found = split
    assert found == records
    assert frame.startswith(prefix, 8)
    assert prefix.endswith(index.to_bytes(4, "big"))


@versions
def test_other_requests_are_not_for_one_partition(version: int) -> None:
    assert not is_for_one_partition(request(version, "t", (0, b"r" * 80), (1, b"r" * 80)), version)
    assert not is_for_one_partition(request(version, "t", (0, b"r" * 80), topics=2), version)


@versions
def test_null_records_are_not_taken_for_a_repeat(version: int) -> None:
    assert read_as_repeat(request(version, "t", (0, None)), version) is None


@pytest.mark.tier("all")
@versions
@settings(max_examples=200)
@given(data=st.data(), name=st.text("abc", min_size=1, max_size=4))
def test_damaged_bytes_are_no_repeat_or_decode_the_same(version: int, data: st.DataObject, name: str) -> None:
    """If damaged bytes are recognized as a repeat, the full decoder must give the same result."""
    original = request(version, name, (3, b"r" * 70))
    prefix, _ = split_request(original, version) or (b"", b"")
    end = 8 + len(prefix)
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(
            st.integers(8, min(len(damaged) - 1, end + 8)) | st.integers(8, len(damaged) - 1)
        )
        damaged[position] = data.draw(st.integers(0, 255))
    frame = bytes(damaged[: data.draw(st.integers(end, len(damaged)) | st.just(len(damaged)))])
    split = split_request(frame, version)
    if split is not None and split[0] == prefix:
        records = split[1]
        whole = read_whole(frame, version)
        assert whole._replace(topics=[]) == read_whole(original, version)._replace(topics=[])
        ((key, ((partition, found),)),) = whole.topics
        assert (partition, found) == (3, records)
        assert key == (TOPIC_ID.bytes if version == 13 else name)


@versions
@settings(max_examples=100)
@given(data=st.data())
def test_both_ways_agree_on_requests_for_one_partition(version: int, data: st.DataObject) -> None:
    """If the full decoder accepts bytes in the plain layout, both decoders find the same records."""
    damaged = bytearray(request(version, "abc", (3, b"r" * 70)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(8, 48))] = data.draw(st.integers(0, 255))
    frame = bytes(damaged)
    try:
        whole = read_whole(frame, version)
    except MalformedRequest:
        return
    if len(whole.topics) != 1 or len(whole.topics[0].partitions) != 1:
        return
    if is_for_one_partition(frame, version):
        records = read_as_repeat(frame, version)
        assert records is None or records == whole.topics[0].partitions[0].records


@versions
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    name=names,
    partition=st.integers(0, 2**31 - 1),
    base_offset=st.integers(-1, 2**63 - 1),
    log_append_time_ms=st.integers(-1, 2**40),
    log_start_offset=st.integers(-1, 2**63 - 1),
)
def test_the_packed_answer_equals_the_encoded_answer(
    version: int,
    correlation_id: int,
    name: str,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> None:
    key = TOPIC_ID.bytes if version == 13 else name
    numbers = (base_offset, log_append_time_ms, log_start_offset)
    answer = RepeatedAnswer(version, key, partition).encode(correlation_id, *numbers)
    rows = [(key, [ProduceRow(partition, 0, *numbers)])]
    assert answer == encode_produce_response(version, correlation_id, rows)


@versions
def test_agrees_with_kio(version: int) -> None:
    frame = request(version, "topic", (5, b"r" * 90))
    header = parse_request_header(memoryview(frame))
    schema: Any = load_request_schema(0, version)
    entity = entity_reader(schema)(frame, header.body_position + (1 if version >= 9 else 0))[0]
    assert entity.topic_data[0].partition_data[0].records == read_as_repeat(frame, version)
