"""The sampler of the console: what it asks by itself, and how often."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from seqgate.gateway.admin.producers import ProducerPage
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.console.asking.connections import ClusterLogin, Connections
from seqgate.gateway.console.asking.gateways import Replies, Reply
from seqgate.gateway.console.metrics.history import LAG, QUARTER_MS, TOPIC_RECORDS
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.producer_events import key_of
from seqgate.gateway.console.metrics.sampler import (
    EVERY_S,
    FIRST_EVERY_S,
    FIRST_ROUNDS,
    IDLE_EVERY,
    Sampler,
    pause_s,
)
from tests.gateway.console.test_producers_strip import row
from tests.support.metrics_stub import metrics_stub

BEGIN = 1_795_847_040_000


@pytest.mark.parametrize(
    ("taken_s", "pause"), [(0.0, FIRST_EVERY_S), (0.5, FIRST_EVERY_S - 0.5), (30.0, 0.1)]
)
def test_the_first_rounds_open_connections_and_are_followed_by_the_second_at_once(
    taken_s: float, pause: float
) -> None:
    assert pause_s(taken_s, FIRST_ROUNDS) == pytest.approx(pause)


@pytest.mark.parametrize("taken_s", [0.5, 30.0])
def test_a_later_round_that_is_slow_is_followed_by_a_longer_pause(taken_s: float) -> None:
    assert pause_s(taken_s, FIRST_ROUNDS + 1) == pytest.approx(taken_s * IDLE_EVERY)


def test_a_later_round_that_is_quick_keeps_time() -> None:
    assert pause_s(0.05, FIRST_ROUNDS + 1) == pytest.approx(EVERY_S - 0.05)


class Login:
    """A stub of the login at a cluster with logins, or without."""

    def __init__(self, *mechanisms: str) -> None:
        self._mechanisms = mechanisms

    def mechanisms(self) -> tuple[str, ...]:
        return self._mechanisms


def sampler_of(listeners: Sequence[MetricsClient], times_ms: Iterable[int]) -> Sampler:
    """Return a sampler of a cluster with logins, without a login of its own."""
    login = cast("ClusterLogin", Login("SCRAM-SHA-256"))
    return Sampler(listeners, Connections(()), login, ClientSecurity(), None, iter(times_ms).__next__)


def test_the_listener_is_sampled_without_a_login() -> None:
    with metrics_stub() as stub:
        counts = itertools.count(100, 50)
        stub.metrics = lambda: (
            f'seqgate_topic_records_total{{topic="t"}} {next(counts)}\n'
            'seqgate_topic_records_total{topic="idle"} 5\nseqgate_group_lag_records{group="g"} 7\n'
        )
        sampler = sampler_of([MetricsClient(stub.url)], (BEGIN, BEGIN + 5_000, BEGIN + 10_000))
        for _ in range(3):
            sampler.sample()
    assert (sampler.error, sampler.asks_cluster) == (None, False)
    history = sampler.history
    times, values = history.series(TOPIC_RECORDS, {"topic": "t"}, QUARTER_MS)
    assert (times, values) == ([BEGIN, BEGIN + 5_000, BEGIN + 10_000], [None, 10, 10])
    assert history.last(LAG, {"group": "g"}) == 7
    assert history.last_write_ms("t") == BEGIN + 10_000
    assert history.last_write_ms("idle") is None


def test_listeners_that_take_the_place_of_brokers_tell_all_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers refuse, because the login lacks a right. A producer that then begins is a new one."""
    told = iter(
        [ProducerPage([row(4)], True, None), ProducerPage([row(4), row(2, producer_id=8)], True, None)]
    )
    listener = cast("MetricsClient", SimpleNamespace(view=lambda _: next(told)))
    login = cast("ClusterLogin", Login())
    sampler = Sampler([listener], Connections(()), login, ClientSecurity(), None, iter(()).__next__)
    refused = Replies([Reply("1", "127.0.0.1:9092", None, "no right")], 1)
    monkeypatch.setattr(sampler._metrics, "producers", lambda _: refused)
    for time_ms in (BEGIN, BEGIN + 5_000):
        sampler._see_producers(time_ms)
    key = key_of("orders", 3, 8)
    (event,) = sampler.producers.after(0, [key])[1][key]
    assert (event.first, event.last) == (-1, 2)


def test_without_listener_and_login_nothing_is_sampled_and_the_reason_is_told() -> None:
    sampler = sampler_of([], (BEGIN,))
    sampler.sample()
    assert sampler.error is not None
    assert "--command-config" in sampler.error
    assert sampler.history.series(LAG).times == [BEGIN], "the chart shows a time without figures"


def test_a_round_that_fails_is_logged_and_others_follow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = sampler_of([], ())
    follows = threading.Event()

    def fail() -> None:
        if sampler._rounds:
            follows.set()
        sampler._rounds += 1
        raise LookupError("nobody expects this")

    monkeypatch.setattr(sampler, "sample", fail)
    monkeypatch.setattr("seqgate.gateway.console.metrics.sampler.pause_s", lambda *_: 0.001)
    sampler.start()
    assert follows.wait(10)
    sampler.stop()
    assert "a round of samples failed" in caplog.messages
