"""Answers that refuse a whole request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.protocol.error_answers import NOT_MADE, error_answer, has_messages
from seqgate.gateway.protocol.messages import request_schema
from tests.support.full_requests import full_request
from tests.support.wire import API_KEYS, Plain, decode, encode_body, versions_of

ILLEGAL = ErrorCode.illegal_sasl_state
WITHOUT_ERRORS = {("describe_log_dirs", version) for version in (1, 2)}
MADE = [api for api in API_KEYS if api not in NOT_MADE]


def refused(api: str, version: int, request: Plain) -> Plain:
    body = memoryview(encode_body(api, version, request))
    decoded = request_schema(API_KEYS[api], version).read(body, 0)[0]
    frame = error_answer(API_KEYS[api], version, 7, decoded, ILLEGAL, "not now", most_rows=8)
    answer = decode(api, version, frame[4:], correlation_id=7)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert not answer.trailing
    return answer.fields


def errors(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in {"error_code", "partition_error_code"}:
                yield inner
            else:
                yield from errors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from errors(inner)


@pytest.mark.parametrize("api", MADE)
def test_every_error_of_an_answer_is_the_same(api: str) -> None:
    for version in versions_of(api):
        for request in ({"acks": 1} if api == "produce" else {}, full_request(api, version)):
            assert set(errors(refused(api, version, request))) <= {ILLEGAL}, version


@pytest.mark.parametrize("api", MADE)
def test_an_answer_to_a_request_with_rows_has_an_error(api: str) -> None:
    for version in versions_of(api):
        if (api, version) not in WITHOUT_ERRORS:
            assert set(errors(refused(api, version, full_request(api, version)))) == {ILLEGAL}, version


def test_rows_repeat_those_of_the_request() -> None:
    topics = [{"name": "a", "partitions": [{"partition_index": 4}, {"partition_index": 5}]}, {"name": "b"}]
    answer = refused("list_offsets", 1, {"topics": topics})["topics"]
    assert [(topic["name"], [row["partition_index"] for row in topic["partitions"]]) for topic in answer] == [
        ("a", [4, 5]),
        ("b", []),
    ]
    assert {(row["timestamp"], row["offset"]) for row in answer[0]["partitions"]} == {(-1, -1)}


def test_rows_of_plain_values() -> None:
    answer = refused("delete_groups", 2, {"groups_names": ["a", "b"]})
    assert [row["group_id"] for row in answer["results"]] == ["a", "b"]


def test_an_answer_with_too_many_rows_is_not_made() -> None:
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in "ab"]
    decoded = request_schema(2, 1).read(memoryview(encode_body("list_offsets", 1, {"topics": topics})), 0)[0]
    assert error_answer(2, 1, 7, decoded, ILLEGAL, "", most_rows=4)
    assert error_answer(2, 1, 7, decoded, ILLEGAL, "", most_rows=3) == b""


def test_users_are_named_once_in_order() -> None:
    request = {"deletions": [{"name": "b"}, {"name": "a"}], "upsertions": [{"name": "b"}, {"name": "c"}]}
    answer = refused("alter_user_scram_credentials", 0, request)
    assert [row["user"] for row in answer["results"]] == ["a", "b", "c"]


def test_a_topic_without_a_name_has_an_empty_one() -> None:
    topic_id = "00000000-0000-0000-0000-00000000000a"
    answer = refused("metadata", 12, {"topics": [{"name": None, "topic_id": topic_id}]})
    assert [(row["name"], row["topic_id"]) for row in answer["topics"]] == [("", topic_id)]


@pytest.mark.parametrize("version", [7, 18])
def test_a_fetch_session_is_named(version: int) -> None:
    assert refused("fetch", version, {"session_id": 5, "replica_id": -1})["session_id"] == 5


def test_a_produce_that_wants_no_answer_gets_none() -> None:
    decoded = request_schema(0, 9).read(memoryview(encode_body("produce", 9, {"acks": 0})), 0)[0]
    assert error_answer(0, 9, 1, decoded, ILLEGAL, "", most_rows=3) == b""


def test_what_has_no_messages() -> None:
    assert has_messages(18, 5)
    assert not has_messages(18, 6)
    assert not has_messages(-1, 0)
    assert not any(has_messages(API_KEYS[api], 0) for api in NOT_MADE)
