from __future__ import annotations

from seqgate.gateway.quota.client_quotas import DEFAULT, RateQuota, Windows

NOW_MS = 1_700_000_000_000


def quota(longest_ms: int = 10**9) -> RateQuota:
    made = RateQuota(Windows(11, 1000), 100, longest_ms=longest_ms)
    made.limits.change(("ann", None), 1000.0)
    return made


def test_all_client_ids_of_a_user_share_its_quota() -> None:
    bytes_quota = quota()
    assert bytes_quota.charge("ann", "one", 9000, NOW_MS) == 0
    assert bytes_quota.charge("bob", "one", 9000, NOW_MS) == 0
    assert bytes_quota.charge("ann", "two", 2000, NOW_MS) == 1000


def test_all_users_of_a_client_id_share_its_quota() -> None:
    bytes_quota = quota()
    bytes_quota.limits.change((None, "app"), 1000.0)
    assert bytes_quota.charge("bob", "app", 9000, NOW_MS) == 0
    assert bytes_quota.charge("cid", "app", 2000, NOW_MS) == 1000


def test_each_client_of_a_default_has_the_quota_for_itself() -> None:
    bytes_quota = quota()
    bytes_quota.limits.change((DEFAULT, None), 1000.0)
    assert bytes_quota.charge("bob", "app", 9000, NOW_MS) == 0
    assert bytes_quota.charge("cid", "app", 9000, NOW_MS) == 0
    assert bytes_quota.charge("bob", "app", 2000, NOW_MS) == 1000


def test_nobody_waits_longer_than_allowed() -> None:
    assert quota(longest_ms=700).charge("ann", "", 10**9, NOW_MS) == 700


def test_a_changed_quota_counts_at_once() -> None:
    bytes_quota = quota()
    assert bytes_quota.charge("ann", "", 20_000, NOW_MS) == 10_000
    bytes_quota.limits.change(("ann", None), 2000.0)
    assert bytes_quota.charge("ann", "", 0, NOW_MS) == 0
    bytes_quota.limits.change(("ann", None), None)
    assert bytes_quota.charge("ann", "", 10**9, NOW_MS) == 0


def test_what_was_refused_is_not_counted() -> None:
    bytes_quota = quota()
    assert bytes_quota.try_charge("ann", "", 9000, NOW_MS) == 0
    assert bytes_quota.try_charge("ann", "", 5000, NOW_MS) == 4000
    assert bytes_quota.try_charge("ann", "", 1000, NOW_MS) == 0


def test_what_exceeds_the_quota_by_itself_comes_through_after_one_wait() -> None:
    bytes_quota = quota()
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS) == 2_000
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS + 1_999) > 0
    assert bytes_quota.try_charge("ann", "", 5_000, NOW_MS + 1_999) == 0
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS + 2_000) == 0
    assert bytes_quota.try_charge("ann", "", 1, NOW_MS + 2_000) > 0
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS + 30_000) == 2_000


def test_a_clock_that_is_set_back_does_not_lengthen_the_wait() -> None:
    bytes_quota = quota()
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS) == 2_000
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS - 3_600_000) == 2_000
    assert bytes_quota.try_charge("ann", "", 12_000, NOW_MS - 3_598_000) == 0


def test_the_most_at_once_is_that_of_the_whole_windows() -> None:
    assert quota().most_at_once("ann", "") == 10_000
    assert quota().most_at_once("bob", "") is None
