"""kio decodes the hand-written Produce answer to the encoded rows, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.serial import entity_reader

from seqgate.gateway.protocol.frames import NodeEndpoint
from seqgate.gateway.protocol.produce_codec import ProduceRow, encode_produce_response

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
endpoints = st.lists(
    st.builds(
        NodeEndpoint,
        node_id=int32,
        host=st.text(max_size=20),
        port=int32,
        rack=st.none() | st.text(max_size=9),
    ),
    max_size=3,
)
rows = st.lists(
    st.builds(
        ProduceRow,
        partition=st.integers(0, 2**31 - 1),
        error_code=st.sampled_from([0, 2, 3, 45, 87]),
        base_offset=int64,
        log_append_time_ms=st.integers(-1, 2**40),
        log_start_offset=int64,
        error_message=st.none() | st.text(max_size=200),
        record_errors=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=20)), max_size=3).map(
            tuple
        ),
        current_leader=st.none() | st.tuples(int32, int32),
    ),
    max_size=4,
)


def read_back(version: int, frame: bytes) -> tuple[int, Any]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    schema: Any = load_response_schema(0, version)
    position = 9 if schema.__flexible__ else 8
    entity, size = entity_reader(schema)(frame, position)
    assert position + size == len(frame)
    return int.from_bytes(frame[4:8], "big", signed=True), entity


@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=30)
@given(
    topics=st.lists(rows, max_size=3),
    names=st.lists(st.text(min_size=1, max_size=20), min_size=3, max_size=3),
    node_endpoints=endpoints,
)
def test_kio_decodes_the_encoded_rows(
    version: int, topics: list[list[ProduceRow]], names: list[str], node_endpoints: list[NodeEndpoint]
) -> None:
    if version < 10:
        node_endpoints = []
        topics = [[row._replace(current_leader=None) for row in rows] for rows in topics]
    ids = [uuid.uuid5(uuid.NAMESPACE_OID, name) for name in names]
    keys: list[str | bytes] = [i.bytes for i in ids] if version == 13 else list(names)
    correlation_id, response = read_back(
        version, encode_produce_response(version, -77, list(zip(keys, topics, strict=False)), node_endpoints)
    )
    if version >= 10:
        told = [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
        assert told == node_endpoints
    assert correlation_id == -77
    assert len(response.responses) == len(topics)
    for position, (answer, expected) in enumerate(zip(response.responses, topics, strict=True)):
        if version == 13:
            assert answer.topic_id == ids[position]
        else:
            assert answer.name == names[position]
        assert len(answer.partition_responses) == len(expected)
        for got, row in zip(answer.partition_responses, expected, strict=True):
            assert (got.index, got.error_code, got.base_offset) == row[:3]
            if version >= 5:
                assert got.log_start_offset == row.log_start_offset
            if version >= 8:
                assert got.error_message == row.error_message
                told = [(entry.batch_index, entry.batch_index_error_message) for entry in got.record_errors]
                assert told == list(row.record_errors)
            if version >= 10:
                leader = got.current_leader
                assert (leader.leader_id, leader.leader_epoch) == (row.current_leader or (-1, -1))
