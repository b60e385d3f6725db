"""The messages of Kafka 4.4 that kio lacks: their bytes, and that everything else treats them as kio's."""

from __future__ import annotations

import uuid
from dataclasses import is_dataclass

import pytest
from kio.index import KioIndexError, load_payload_module, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from seqgate.gateway.protocol.kafka_4_4 import (
    API_NAMES,
    CLIENT_TAG,
    QUESTION_API,
    QUESTION_TAG,
    api_name,
    has_version,
    payload_module,
    payload_type,
)
from seqgate.gateway.protocol.messages import request_schema, response_type, written
from seqgate.gateway.protocol.schema import entity_reader, unsigned_varint
from tests.support.wire import Plain, build, encode_body, plain

NEW = ((18, 5), (28, 6), (42, 3), (88, 1), (89, 1), (93, 0), (94, 0))
TOPIC_ID = "0000000a-0000-0000-0000-00000000000b"
RAW_ID = uuid.UUID(TOPIC_ID).bytes

REQUESTS: tuple[tuple[str, int, Plain, bytes], ...] = (
    ("api_versions", 5, {"client_software_name": "a"}, b"\x02a\x01\x00\xff\xff\xff\xff\x00"),
    (
        "api_versions",
        5,
        {"client_software_name": "a", "cluster_id": "c", "node_id": 7},
        b"\x02a\x01\x02c\x00\x00\x00\x07\x00",
    ),
    (
        "txn_offset_commit",
        6,
        {"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 3, "committed_offset": 9}]}]},
        b"\x01\x01" + bytes(10) + b"\xff\xff\xff\xff\x01\x00\x02" + RAW_ID + b"\x02\0\0\0\x03"
        b"\0\0\0\0\0\0\0\x09\xff\xff\xff\xff\x00\x00\x00\x00",
    ),
    ("delete_groups", 3, {"groups_names": ["g"]}, b"\x02\x02g\x00"),
    (
        "streams_group_describe",
        1,
        {"group_ids": ["g"], "include_topology_description": True},
        b"\x02\x02g\x00\x01\x00",
    ),
    (
        "streams_group_topology_description_update",
        0,
        {
            "group_id": "g",
            "member_id": "m",
            "topology_epoch": 2,
            "topology_description": {
                "subtopologies": [{"subtopology_id": "0", "nodes": [{"name": "n", "node_type": 3}]}]
            },
        },
        b"\x02g\x02m\x00\x00\x00\x02\x02\x020\x02\x02n\x03\x01\x00\x01\x01\x00\x00\x01\x00\x00",
    ),
    ("unregister_controller", 0, {"controller_id": 4}, b"\x00\x00\x00\x04\x00"),
)


@pytest.mark.parametrize(("api", "version", "request_fields", "body"), REQUESTS)
def test_a_request_has_kafkas_bytes_and_is_read_back(
    api: str, version: int, request_fields: Plain, body: bytes
) -> None:
    assert encode_body(api, version, request_fields) == body
    key = next(key for key, name in API_NAMES.items() if name == api)
    read, end = request_schema(key, version).read(memoryview(body), 0)
    assert end == len(body)
    assert written(read) == body
    assert plain(read).keys() >= request_fields.keys()


RESPONSES: tuple[tuple[int, int, Plain, bytes], ...] = (
    (
        28,
        6,
        {"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 1, "error_code": 100}]}]},
        b"\0\0\0\0\x02" + RAW_ID + b"\x02\0\0\0\x01\0\x64\0\0\0",
    ),
    (
        42,
        3,
        {"results": [{"group_id": "g", "error_code": 134, "error_message": "no"}]},
        b"\0\0\0\0\x02\x02g\x00\x86\x03no\x00\x00",
    ),
    (
        88,
        1,
        {"member_id": "m", "acceptable_recovery_lag": 1, "topology_description_required": True},
        b"\0\0\0\0\0\0\0\x02m\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\x01\0\0\0\0\0\0",
    ),
    (
        89,
        1,
        {"groups": [{"group_id": "g", "topology_description": {}, "assignor_name": "s"}]},
        b"\0\0\0\0\x02\0\0\0\x02g\x01\0\0\0\0\0\0\0\0\xff\x01\x80\0\0\0\x01\x01\x01\0\0\x02s\0\0",
    ),
    (93, 0, {"error_code": 135}, b"\0\0\0\0\0\x87\0\0"),
    (94, 0, {"error_code": 136, "error_message": "no"}, b"\0\0\0\0\0\x88\x03no\0"),
)


@pytest.mark.parametrize(("api_key", "version", "response_fields", "body"), RESPONSES)
def test_an_answer_has_kafkas_bytes(api_key: int, version: int, response_fields: Plain, body: bytes) -> None:
    assert written(build(response_type(api_key, version), response_fields)) == body


@pytest.mark.parametrize(("api_key", "version"), NEW)
def test_each_new_version_is_known_with_both_messages(api_key: int, version: int) -> None:
    assert has_version(api_key, version)
    assert not has_version(api_key, version + 1)
    for kind in (EntityType.request, EntityType.response):
        found = payload_type(api_key, version, kind)
        module = payload_module(api_key, version, kind)
        assert getattr(module, found.__name__) is found
        assert (found.__api_key__, found.__version__, found.__flexible__) == (api_key, version, True)
        nested = [each.__type__ for each in vars(module).values() if is_dataclass(each) and each is not found]
        assert set(nested) <= {EntityType.nested}


@pytest.mark.parametrize(
    ("api_key", "name", "row_fields"),
    [
        (61, "ProducerState", {"producer_id": 1, "producer_epoch": 2, "coordinator_epoch": 3}),
        (65, "TransactionState", {"transactional_id": "t", "producer_id": 1, "producer_epoch": 2}),
    ],
)
def test_a_client_is_a_tagged_field_that_others_skip(api_key: int, name: str, row_fields: Plain) -> None:
    named = getattr(payload_module(api_key, 0, EntityType.response), name)
    body = written(build(named, {**row_fields, "client": "{}"}))
    without = written(build(named, row_fields))
    tag = unsigned_varint(CLIENT_TAG)
    assert body == without[:-1] + b"\x01" + tag + b"\x03" + b"\x03{}"
    kios = getattr(load_payload_module(api_key, 0, EntityType.response), name)
    assert written(build(kios, row_fields)) == without
    read, end = entity_reader(kios)(memoryview(body), 0)
    assert end == len(body)
    assert plain(read) == plain(build(kios, row_fields))
    assert payload_type(api_key, 0, EntityType.request) is load_request_schema(api_key, 0)


@pytest.mark.parametrize("kind", [EntityType.request, EntityType.response])
def test_a_question_and_its_answer_are_tagged_fields_that_others_skip(kind: EntityType) -> None:
    field = "question" if kind is EntityType.request else "answer"
    ours = payload_type(*QUESTION_API, kind)  # type: ignore[arg-type]
    kios = {EntityType.request: load_request_schema, EntityType.response: load_response_schema}[kind]
    asked = written(build(ours, {field: "{}"}))
    without = written(build(ours, {}))
    assert asked == without[:-1] + b"\x01" + unsigned_varint(QUESTION_TAG) + b"\x03\x03{}"
    read, end = entity_reader(kios(*QUESTION_API))(memoryview(asked), 0)
    assert end == len(asked)
    assert written(read) == without


def test_versions_that_kio_has_are_kios() -> None:
    assert payload_type(42, 2, EntityType.response) is load_response_schema(42, 2)
    assert api_name(93) == "StreamsGroupTopologyDescriptionUpdate"
    with pytest.raises(KioIndexError):
        payload_type(42, 4, EntityType.response)
    with pytest.raises(KioIndexError):
        payload_type(95, 0, EntityType.response)
