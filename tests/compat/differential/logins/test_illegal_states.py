"""Seqgate refuses requests in the middle of a login as Apache Kafka does: every API, at every step."""

from __future__ import annotations

import pytest

from tests.compat.differential.logins.agreement import expect_alike
from tests.compat.differential.logins.endpoints import Endpoint
from tests.compat.differential.logins.illegal_states import TABLE


@pytest.mark.parametrize("name", TABLE.found)
def test_answers_agree(name: str, kafka_side: Endpoint, gateway_side: Endpoint) -> None:
    expect_alike(TABLE, name, kafka_side, gateway_side)
