from __future__ import annotations

import math

import pytest

from seqgate.gateway.quota.client_quotas import MutationQuota, Windows

NOW_MS = 1_700_000_000_000


def quota(per_second: float = 2.0) -> MutationQuota:
    made = MutationQuota(Windows(11, 1000), 100)
    made.limits.change(("ann", None), per_second)
    return made


def test_a_strict_quota_refuses_what_comes_after_the_change_that_overdrew() -> None:
    mutations = quota()
    assert mutations.charge("ann", "", 30, NOW_MS, strict=True) == (True, 0)
    assert mutations.charge("ann", "", 1, NOW_MS, strict=True) == (False, 4000)
    assert mutations.charge("ann", "", 1, NOW_MS + 1000, strict=True) == (False, 3000)
    assert mutations.charge("ann", "", 1, NOW_MS + 4000, strict=True) == (True, 0)


def test_a_permissive_quota_throttles_after_the_change_that_overdrew() -> None:
    mutations = quota()
    assert mutations.charge("ann", "", 22, NOW_MS, strict=False) == (True, 0)
    assert mutations.charge("ann", "", 2, NOW_MS, strict=False) == (True, 1000)
    assert mutations.charge("ann", "", 2, NOW_MS, strict=False) == (True, 2000)


def test_unused_permits_are_saved_for_the_windows_only() -> None:
    mutations = quota()
    mutations.charge("ann", "", 22, NOW_MS, strict=True)
    later_ms = NOW_MS + 3_600_000 - 1
    assert mutations.charge("ann", "", 23, later_ms, strict=True) == (True, 0)
    assert mutations.charge("ann", "", 1, later_ms, strict=True) == (False, 500)


def test_a_clock_that_is_set_back_takes_no_permits() -> None:
    mutations = quota()
    mutations.charge("ann", "", 22, NOW_MS, strict=True)
    assert mutations.charge("ann", "", 1, NOW_MS - 3_600_000, strict=True) == (True, 0)


@pytest.mark.parametrize("per_second", [math.inf, math.nan])
def test_a_quota_without_a_limit_refuses_nothing(per_second: float) -> None:
    mutations = quota(per_second)
    for _ in range(3):
        assert mutations.charge("ann", "", 10**9, NOW_MS, strict=True) == (True, 0)
