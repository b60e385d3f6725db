"""The page of limits."""

from __future__ import annotations

import pytest
from prometheus_client.samples import Sample

from seqgate.gateway.console.pages.gateway import MOST, USED, LimitRow, limits_of, nearest
from seqgate.gateway.metrics.subjects import requests as shown


def sample(name: str, setting: str, value: float) -> Sample:
    return Sample(name, {"setting": setting}, value)


def test_the_nearest_limit_comes_first_and_those_without_a_limit_last() -> None:
    of_one = [
        sample(USED, "a.max", 1),
        sample(USED, "b.bytes", 90),
        sample(USED, "c.max", 1_000_000),
        sample(MOST, "a.max", 10),
        sample(MOST, "b.bytes", 100),
    ]
    of_another = [sample(USED, "a.max", 2), sample(MOST, "a.max", 10)]
    found = nearest([*limits_of(of_one, 1), *limits_of(of_another, 2)])
    assert found == [
        LimitRow("b.bytes", 90, 100, 1),
        LimitRow("a.max", 2, 10, 2),
        LimitRow("a.max", 1, 10, 1),
        LimitRow("c.max", 1_000_000, None, 1),
    ]
    assert [(limit.is_near, limit.is_bytes) for limit in found] == [
        (True, True),
        (False, False),
        (False, False),
        (False, False),
    ]


@pytest.mark.parametrize(("name", "metric"), [(USED, shown.USED), (MOST, shown.MOST)])
def test_the_names_are_those_that_a_gateway_shows(name: str, metric: object) -> None:
    assert getattr(metric, "name", None) == name
