"""The values of `seqgate quotas set`."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.quotas import _numbers


def test_a_value_is_a_number_as_in_a_setting() -> None:
    assert _numbers({"producer_byte_rate": " 1048576", "request_percentage": "+1.25e1"}) == {
        "producer_byte_rate": 1_048_576,
        "request_percentage": 12.5,
    }


@pytest.mark.parametrize("text", ["1_000", "\uff11\uff10", "nan", "inf", "1e999", ""])
def test_a_value_that_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        _numbers({"producer_byte_rate": text})
