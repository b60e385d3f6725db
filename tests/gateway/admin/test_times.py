from __future__ import annotations

import datetime as dt

import pytest

from seqgate.gateway.admin.times import duration_ms, time_or_age_ms, timestamp_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0ms", 0), ("500ms", 500), ("30s", 30_000), ("5m", 300_000), (" 2 h ", 7_200_000), ("1d", 86_400_000)],
)
def test_lengths_of_time(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 min", "1.5h", "5m5s", "\u0665m"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a length of time"):
        duration_ms(text)


def test_a_time_has_as_many_digits_as_a_request_carries() -> None:
    assert timestamp_ms("9" * 18) == 10**18 - 1
    with pytest.raises(ValueError, match="not a valid time"):
        timestamp_ms("9" * 20)


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:00:00+01:00", "1969-12-31T23:59:59.999Z", "0001-01-02T00:00Z"]
)
def test_a_time_before_1970_is_the_first_one(text: str) -> None:
    assert timestamp_ms(text) == time_or_age_ms(text, 5_000) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T13:45:00-05:00", 1_769_885_100_000),
        ("2026-01-31T18:45:00Z", 1_769_885_100_000),
        ("2026-01-31T18:45", 1_769_885_100_000),
        ("2026-01-31", 1_769_817_600_000),
    ],
)
def test_a_time_is_in_the_zone_of_the_caller_unless_it_names_one(text: str, expected: int) -> None:
    assert timestamp_ms(text, dt.UTC) == expected
