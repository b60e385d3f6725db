"""Delegation tokens have the same lives, and clients over their quotas the same throttling, at Seqgate and at
Apache Kafka.
"""

from __future__ import annotations

import pytest

from tests.compat.differential.logins import over_quota, tokens
from tests.compat.differential.logins.agreement import expect_alike
from tests.compat.differential.logins.endpoints import Endpoint
from tests.compat.differential.logins.visit import together

TABLE = together(tokens.TABLE, over_quota.TABLE)


@pytest.mark.parametrize("name", TABLE.found)
def test_answers_agree(name: str, kafka_side: Endpoint, gateway_side: Endpoint) -> None:
    expect_alike(TABLE, name, kafka_side, gateway_side)
