from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.silence import WATCHED, Silence, watched_by

STEP_S = 2.0


def test_time_between_looks_counts() -> None:
    silence = Silence(STEP_S)
    silence.begin(10.0)
    silence.still_empty(11.0)
    silence.still_empty(12.5)
    assert silence.silent_s == 2.5


def test_time_around_a_failed_look_does_not_count() -> None:
    silence = Silence(STEP_S)
    silence.begin(10.0)
    silence.still_empty(11.0)
    silence.failed()
    silence.still_empty(12.0)
    silence.still_empty(13.0)
    assert silence.silent_s == 2.0


def test_a_pause_of_the_watcher_counts_as_one_step() -> None:
    silence = Silence(STEP_S)
    silence.begin(10.0)
    silence.still_empty(500.0)
    assert silence.silent_s == STEP_S


def test_a_sign_of_life_begins_anew() -> None:
    silence = Silence(STEP_S)
    silence.begin(10.0)
    silence.still_empty(11.0)
    silence.begin(11.5)
    silence.still_empty(12.0)
    assert silence.silent_s == 0.5


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from(["begin", "empty", "failed"])), min_size=1, max_size=30
    )
)
def test_what_counts_is_never_more_than_the_time_since_the_last_sign_of_life(
    looks: list[tuple[float, str]],
) -> None:
    silence = Silence(STEP_S)
    now_s = begun_s = 0.0
    silence.begin(now_s)
    for step_s, what in looks:
        now_s += step_s
        if what == "begin":
            silence.begin(now_s)
            begun_s = now_s
        elif what == "empty":
            silence.still_empty(now_s)
        else:
            silence.failed()
        assert silence.silent_s <= now_s - begun_s + 1e-6


@given(st.sets(st.integers(0, 50), min_size=1, max_size=9))
def test_each_gateway_is_watched_by_as_many_as_it_watches(live: set[int]) -> None:
    expected = min(WATCHED, len(live) - 1)
    watched = [other for node in live for other in watched_by(node, live)]
    for node in live:
        assert watched.count(node) == expected
        assert node not in watched_by(node, live)


def test_the_ring_closes() -> None:
    assert watched_by(3, [1, 2, 3, 5]) == [5, 1]
    assert watched_by(5, [1, 2, 3, 5]) == [1, 2]
    assert watched_by(1, [1]) == []
