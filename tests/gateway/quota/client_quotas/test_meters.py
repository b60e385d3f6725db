from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.quota.client_quotas import DEFAULT, IDLE_MS, LONGEST_NAME, Limits, Meters, Quota

NOW_MS = 1_700_000_000_000


class Meter:
    """A meter that is equal only to itself."""


def quota_of(client_id: str, limits: Limits) -> Quota:
    quota = limits.quota_of("ann", client_id)
    assert quota is not None
    return quota


def test_each_client_of_a_default_has_its_own_meter_until_there_are_too_many() -> None:
    limits = Limits()
    limits.change((None, DEFAULT), 1.0)
    meters: Meters[Meter] = Meters(Meter, 2)
    own = [meters.of(quota_of(name, limits), NOW_MS) for name in ("a", "b")]
    shared = [meters.of(quota_of(name, limits), NOW_MS) for name in ("c", "d", "e")]
    assert own[0] is not own[1]
    assert shared[0] is shared[1] is shared[2]
    assert shared[0] not in own
    assert meters.of(quota_of("a", limits), NOW_MS) is own[0]
    assert len(meters) == 3


def test_a_client_with_a_quota_under_its_name_has_its_own_meter_always() -> None:
    limits = Limits()
    limits.change((None, DEFAULT), 1.0)
    limits.change((None, "named"), 1.0)
    meters: Meters[Meter] = Meters(Meter, 1)
    others = [meters.of(quota_of(name, limits), NOW_MS) for name in ("a", "b")]
    assert meters.of(quota_of("named", limits), NOW_MS) not in others


def test_long_names_are_told_apart_and_not_remembered() -> None:
    limits = Limits()
    limits.change((None, DEFAULT), 1.0)
    meters: Meters[Meter] = Meters(Meter, 9)
    names = ["c" * 32_000 + end for end in "ab"]
    first, second = (meters.of(quota_of(name, limits), NOW_MS) for name in names)
    assert first is not second
    assert meters.of(quota_of(names[0], limits), NOW_MS) is first
    remembered = [name for key in meters._meters for name in key]
    assert max(map(len, remembered)) <= LONGEST_NAME


def test_idle_meters_make_room() -> None:
    limits = Limits()
    limits.change((None, DEFAULT), 1.0)
    meters: Meters[Meter] = Meters(Meter, 2)
    first = meters.of(quota_of("a", limits), NOW_MS)
    meters.of(quota_of("b", limits), NOW_MS)
    meters.of(quota_of("a", limits), NOW_MS + IDLE_MS - 1)
    third = meters.of(quota_of("c", limits), NOW_MS + IDLE_MS)
    assert meters.of(quota_of("a", limits), NOW_MS + IDLE_MS) is first
    assert meters.of(quota_of("c", limits), NOW_MS + IDLE_MS) is third
    assert len(meters) == 2


def test_a_clock_that_is_set_back_makes_no_meter_stay() -> None:
    limits = Limits()
    limits.change((None, DEFAULT), 1.0)
    meters: Meters[Meter] = Meters(Meter, 1)
    first = meters.of(quota_of("a", limits), NOW_MS)
    assert first is meters.of(quota_of("a", limits), NOW_MS - 1), "a small correction changes nothing"
    meters.of(quota_of("b", limits), NOW_MS - 10 * IDLE_MS)
    assert len(meters) == 1


@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3), st.integers(0, IDLE_MS)),
        max_size=60,
    ),
)
def test_made_up_names_need_no_more_memory_than_allowed(
    most: int, requests: list[tuple[str, str, int]]
) -> None:
    limits = Limits()
    defaults = [(None, DEFAULT), (DEFAULT, DEFAULT), (DEFAULT, None)]
    for entity in defaults:
        limits.change(entity, 1.0)
    meters: Meters[Meter] = Meters(Meter, most)
    now_ms = NOW_MS
    for user, client_id, passed_ms in requests:
        now_ms += passed_ms
        quota = limits.quota_of(user, client_id)
        assert quota is not None
        meters.of(quota, now_ms)
        assert len(meters) <= most + len(defaults)
