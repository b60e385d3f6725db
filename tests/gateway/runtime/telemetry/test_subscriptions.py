from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.runtime.telemetry import Subscriptions, subscription_of
from tests.gateway.telemetry.support import CLIENT, client


def subscriptions(**by_name: dict[str, str]) -> Subscriptions:
    made = Subscriptions()
    for name, values in by_name.items():
        made.set(name, values)
    return made


def test_without_subscriptions_a_client_pushes_nothing_and_asks_every_five_minutes() -> None:
    choice = Subscriptions().choose(CLIENT)
    assert (choice.requested_metrics, choice.push_interval_ms) == ((), 300_000)


def test_a_client_gets_all_metrics_that_match_at_the_shortest_interval() -> None:
    known = subscriptions(
        a={"metrics": "b,a", "interval.ms": "2000"},
        b={"metrics": "c, a", "interval.ms": "1000", "match": "client_id=loader"},
        c={"metrics": "d", "interval.ms": "100", "match": "client_id=other"},
    )
    choice = known.choose(CLIENT)
    assert (choice.requested_metrics, choice.push_interval_ms) == (("a", "b", "c"), 1000)


def test_an_interval_above_the_default_is_told() -> None:
    assert subscriptions(a={"interval.ms": "3600000"}).choose(CLIENT).push_interval_ms == 3_600_000


@pytest.mark.parametrize("metrics", ["*", "a,*", "*,a"])
def test_the_star_stands_for_every_metric(metrics: str) -> None:
    known = subscriptions(a={"metrics": metrics}, b={"metrics": "org."})
    assert known.choose(CLIENT).requested_metrics == ("*",)


def test_a_removed_subscription_counts_no_more() -> None:
    known = subscriptions(a={"metrics": "x"})
    known.set("a", {})
    assert known.choose(CLIENT).requested_metrics == ()


def test_each_change_makes_a_new_version() -> None:
    known = Subscriptions()
    known.set("a", {"metrics": "x"})
    before = known.version
    known.set("a", {})
    assert known.version > before


def test_a_stored_value_that_this_version_refuses_leaves_the_subscription_out() -> None:
    assert subscription_of({"match": "client_id=("}) is None
    assert subscription_of({"interval.ms": "soon"}) is None
    known = subscriptions(a={"metrics": "x"})
    known.set("a", {"metrics": "x", "match": "client_id=("})
    assert known.choose(CLIENT).requested_metrics == ()


NAMES = st.sets(st.text("ab.", min_size=1, max_size=4), max_size=4)
INTERVALS = st.integers(100, 3_600_000)


@given(NAMES, INTERVALS, NAMES, INTERVALS)
def test_the_id_is_stable_and_changes_with_the_choice(
    names: set[str], interval_ms: int, other_names: set[str], other_interval_ms: int
) -> None:
    def choice(chosen: set[str], of_ms: int, *, order: int) -> tuple[int, object]:
        listed = ",".join(sorted(chosen, reverse=bool(order)))
        made = subscriptions(s={"metrics": listed, "interval.ms": str(of_ms)}).choose(CLIENT)
        return made.subscription_id, (made.requested_metrics, made.push_interval_ms)

    one, content = choice(names, interval_ms, order=0)
    assert choice(names, interval_ms, order=1) == (one, content)
    assert -(2**31) <= one < 2**31
    other, other_content = choice(other_names, other_interval_ms, order=0)
    assert (one == other) == (content == other_content)


def test_two_clients_have_two_ids() -> None:
    other = client(client_instance_id=uuid.UUID(int=7))
    assert Subscriptions().choose(CLIENT).subscription_id != Subscriptions().choose(other).subscription_id
