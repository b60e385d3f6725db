from __future__ import annotations

import pytest

from seqgate.gateway.admin.status import FIRST_ESTIMATE_MS, BucketState, bucket_rows

DAY_MS = 24 * 3_600_000


def state(replica_bytes: int | None = None) -> BucketState:
    return BucketState(
        address="s3://bucket/prefix",
        puts=1,
        gets=1,
        lists=0,
        deletes=0,
        bytes_up=0,
        bytes_down=0,
        failures=0,
        us_dollars=0.5,
        unwritten_bytes=0,
        unwritten_max_bytes=1,
        is_behind=False,
        cache=None,
        uploads=None,
        replica_bytes=replica_bytes,
    )


def price(uptime_ms: int) -> str:
    return dict(bucket_rows(state(), uptime_ms))["  price"]


def test_what_was_read_here_of_other_gateways_is_told_where_consumers_may() -> None:
    assert "  read here" not in dict(bucket_rows(state(), 0))
    assert dict(bucket_rows(state(5000), 0))["  read here"] == "5,000 bytes that other gateways lead"


def test_a_month_goes_on_as_since_the_start() -> None:
    assert price(3 * DAY_MS) == "$0.5000 since the start, $5.00 a month, by Amazon's list for S3"


@pytest.mark.parametrize("uptime_ms", [0, FIRST_ESTIMATE_MS - 1])
def test_the_requests_of_the_start_itself_say_nothing_about_a_month(uptime_ms: int) -> None:
    assert price(uptime_ms) == "$0.5000 since the start, by Amazon's list for S3"
