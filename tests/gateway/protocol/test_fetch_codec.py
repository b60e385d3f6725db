"""kio decodes the hand-written Fetch answer to the encoded rows, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.serial import entity_reader

from seqgate.gateway.protocol.fetch_codec import FetchRow, encode_fetch_response
from seqgate.gateway.protocol.frames import NodeEndpoint
from tests.gateway.protocol.test_produce_codec import endpoints

int64 = st.integers(-1, 2**63 - 1)
pairs = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
rows = st.lists(
    st.builds(
        FetchRow,
        partition=st.integers(0, 2**31 - 1),
        error_code=st.sampled_from([0, 1, 3, 74]),
        high_watermark=int64,
        last_stable_offset=int64,
        log_start_offset=int64,
        aborted_transactions=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
        records=st.binary(max_size=300),
        diverging_epoch=st.none() | pairs,
        current_leader=st.none() | pairs,
        preferred_read_replica=st.integers(-1, 2**31 - 1),
    ),
    max_size=4,
)


@pytest.mark.parametrize("version", range(4, 19))
@settings(max_examples=30)
@given(topics=st.lists(rows, max_size=3), node_endpoints=endpoints)
def test_kio_decodes_the_encoded_rows(
    version: int, topics: list[list[FetchRow]], node_endpoints: list[NodeEndpoint]
) -> None:
    if version < 16:
        node_endpoints = []
    names = [f"topic-{number}" for number in range(len(topics))]
    ids = [uuid.uuid5(uuid.NAMESPACE_OID, name) for name in names]
    keys: list[str | bytes] = [i.bytes for i in ids] if version >= 13 else list(names)
    pieces = encode_fetch_response(version, 9, 70, 123, list(zip(keys, topics, strict=True)), node_endpoints)
    frame = b"".join(pieces)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 9
    schema: Any = load_response_schema(1, version)
    position = 9 if schema.__flexible__ else 8
    response, size = entity_reader(schema)(frame, position)
    assert position + size == len(frame)
    if version >= 7:
        assert (response.error_code, response.session_id) == (70, 123)
    if version >= 16:
        told = [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]
        assert told == node_endpoints
    assert len(response.responses) == len(topics)
    for number, (answer, expected) in enumerate(zip(response.responses, topics, strict=True)):
        if version >= 13:
            assert answer.topic_id == ids[number]
        else:
            assert answer.topic == names[number]
        for got, row in zip(answer.partitions, expected, strict=True):
            _same_row(version, got, row)


def _same_row(version: int, got: Any, row: FetchRow) -> None:
    assert (got.partition_index, got.error_code) == row[:2]
    assert (got.high_watermark, got.last_stable_offset) == row[2:4]
    assert bytes(got.records) == row.records
    aborted = got.aborted_transactions
    assert (aborted is None) == (row.aborted_transactions is None)
    if aborted is not None:
        assert [(item.producer_id, item.first_offset) for item in aborted] == row.aborted_transactions
    if version >= 5:
        assert got.log_start_offset == row.log_start_offset
    if version >= 11:
        assert got.preferred_read_replica == row.preferred_read_replica
    if version >= 12:
        expected_epoch = row.diverging_epoch or (-1, -1)
        assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == expected_epoch
        expected_leader = row.current_leader or (-1, -1)
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == expected_leader
