from __future__ import annotations

import random
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.error_answers import with_throttle_time
from seqgate.gateway.protocol.messages import encode_response, response_type
from tests.gateway.protocol.test_schema_writer import filled

THROTTLE_MS = 1_234_567
VERSIONS = [(api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)]


def answer(api_key: int, version: int) -> Any:
    return filled(response_type(api_key, version), random.Random(f"{api_key} {version}"))


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_an_answer_gets_the_throttle_time_wherever_its_field_is(api_key: int, version: int) -> None:
    response = answer(api_key, version)
    frame = encode_response(api_key, 7, response)
    expected = frame
    if any(field.name == "throttle_time" for field in fields(response)):
        throttled = replace(response, throttle_time=timedelta(milliseconds=THROTTLE_MS))
        expected = encode_response(api_key, 7, throttled)
        assert expected != frame
    assert with_throttle_time(frame, api_key, version, THROTTLE_MS) == expected


def test_an_answer_in_pieces_gets_it_in_the_first() -> None:
    frame = encode_response(1, 7, answer(1, 12))
    assert with_throttle_time([frame, b"records"], 1, 12, THROTTLE_MS) == [
        with_throttle_time(frame, 1, 12, THROTTLE_MS),
        b"records",
    ]
