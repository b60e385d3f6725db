"""Logins, re-authentications and refused logins have the same outcome at Seqgate and at Apache Kafka."""

from __future__ import annotations

import pytest

from tests.compat.differential.logins import bearer_tokens, reauthentication, scram
from tests.compat.differential.logins.agreement import expect_alike
from tests.compat.differential.logins.endpoints import Endpoint
from tests.compat.differential.logins.visit import together

TABLE = together(reauthentication.TABLE, scram.TABLE, bearer_tokens.TABLE)


@pytest.mark.parametrize("name", TABLE.found)
def test_answers_agree(name: str, kafka_side: Endpoint, gateway_side: Endpoint) -> None:
    expect_alike(TABLE, name, kafka_side, gateway_side)
