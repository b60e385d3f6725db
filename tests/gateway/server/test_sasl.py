"""The refusal of requests that come instead of a token."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import CloseConnection
from seqgate.gateway.protocol.frames import MalformedRequest, parse_request_header
from seqgate.gateway.server.sasl import REFUSED_BYTES, REFUSED_ROWS, illegal_state_answer
from tests.support.wire import Plain, decode, encode

VERSIONS_99 = b"\0\x12\0\x63\0\0\0\1\0\1c\0\1\1\0"


def refused(frame: bytes) -> bytes:
    view = memoryview(frame)
    return illegal_state_answer(parse_request_header(view), view)


def refused_groups(*names: str) -> bytes:
    request: Plain = {"groups_names": list(names)}
    return refused(encode("delete_groups", 2, request))


def test_a_request_is_refused_in_its_form() -> None:
    answer = decode("delete_groups", 2, refused_groups("a", "b")[4:])
    assert answer.fields["results"] == [
        {"group_id": name, "error_code": ErrorCode.illegal_sasl_state} for name in ("a", "b")
    ]


def test_a_large_request_is_not_decoded() -> None:
    assert refused_groups("x" * (REFUSED_BYTES - 100))
    assert refused_groups("x" * REFUSED_BYTES) == b""


def test_a_request_of_many_rows_makes_no_large_answer() -> None:
    assert refused_groups(*["a"] * REFUSED_ROWS)
    assert refused_groups(*["a"] * (REFUSED_ROWS + 1)) == b""


def test_a_version_of_api_versions_that_is_too_new_is_refused_in_version_0() -> None:
    answer = decode("api_versions", 0, refused(VERSIONS_99)[4:])
    assert answer.fields == {"error_code": ErrorCode.illegal_sasl_state, "api_keys": []}


@pytest.mark.parametrize("start", [b"\0\x03\0\x63", b"\x03\xe7\0\0"])
def test_what_does_not_exist_closes(start: bytes) -> None:
    with pytest.raises(CloseConnection, match="which does not exist, instead of a token"):
        refused(start + VERSIONS_99[4:])


def test_a_malformed_request_closes() -> None:
    with pytest.raises(MalformedRequest):
        refused(encode("delete_groups", 2, {"groups_names": ["a"]})[:-3])
