from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.quota.client_quotas import INT_MAX, Rate, Windows
from tests.models.client_quota_rate import RateModel

KAFKAS = Windows(11, 1000)
NOW_MS = 1_700_000_000_000


def test_a_burst_within_ten_seconds_of_the_quota_is_no_violation() -> None:
    rate = Rate(KAFKAS)
    rate.record(10_000, NOW_MS)
    assert rate.throttle_ms(1000, NOW_MS) == 0
    rate.record(1000, NOW_MS)
    assert rate.throttle_ms(1000, NOW_MS) == 1000


def test_windows_that_are_too_old_do_not_count() -> None:
    rate = Rate(KAFKAS)
    rate.record(50_000, NOW_MS)
    assert rate.throttle_ms(1000, NOW_MS + 10_999) > 0
    assert rate.throttle_ms(1000, NOW_MS + 11_000) == 0
    assert rate.total(NOW_MS + 11_000) == 0


def test_a_value_that_is_taken_back_leaves_the_rate_as_it_was() -> None:
    rate = Rate(KAFKAS)
    rate.record(9000, NOW_MS)
    rate.record(5000, NOW_MS + 10)
    rate.record(-5000, NOW_MS + 10)
    assert rate.total(NOW_MS + 10) == 9000


@pytest.mark.parametrize("per_second", [math.inf, math.nan])
def test_a_quota_without_a_limit_never_throttles(per_second: float) -> None:
    rate = Rate(KAFKAS)
    rate.record(1e18, NOW_MS)
    assert rate.throttle_ms(per_second, NOW_MS) == 0


def test_a_tiny_quota_throttles_for_no_longer_than_the_answer_can_say() -> None:
    rate = Rate(KAFKAS)
    rate.record(1e9, NOW_MS)
    assert rate.throttle_ms(1e-300, NOW_MS) == INT_MAX


def test_a_single_window_does_not_divide_by_zero() -> None:
    rate = Rate(Windows(1, 1000))
    rate.record(1e9, NOW_MS)
    assert rate.throttle_ms(1, NOW_MS) == 0
    assert rate.throttle_ms(1, NOW_MS + 10) > 0


def test_a_clock_that_is_set_back_forgets_the_rate() -> None:
    rate = Rate(KAFKAS)
    rate.record(1e9, NOW_MS)
    assert rate.throttle_ms(1, NOW_MS - 3_600_000) == 0
    rate.record(5, NOW_MS - 3_600_000)
    assert rate.total(NOW_MS - 3_600_000) == 5


@given(
    st.integers(1, 4),
    st.integers(1, 50),
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 500), st.booleans()), max_size=40),
)
def test_the_rate_is_that_of_the_model(
    number: int, length_ms: int, per_second: int, events: list[tuple[int, int, bool]]
) -> None:
    rate = Rate(Windows(number, length_ms))
    model = RateModel(number, length_ms)
    now_ms = NOW_MS
    for passed_ms, value, records in events:
        now_ms += passed_ms
        if records:
            rate.record(value, now_ms)
            model.values.append((value, now_ms))
        seen, expected = rate.throttle_ms(per_second, now_ms), model.throttle_ms(per_second, now_ms)
        assert abs(seen - expected) <= 1, (seen, expected)  # a half is rounded up or down
