"""Clients and people read why RE2 refuses an expression."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import compiled
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.regular_expressions import pattern_of


def test_the_reason_is_text() -> None:
    with pytest.raises(ValueError, match=r"^missing \): tx\($"):
        pattern_of("tx(")


def test_a_member_gets_the_reason_as_text() -> None:
    told = r"^SubscribedTopicRegex `a\(` is not a valid regular expression: missing \): a\(\.$"
    with pytest.raises(HeartbeatRefused, match=told) as refused:
        compiled("a(")
    assert refused.value.error_code is ErrorCode.invalid_regular_expression
