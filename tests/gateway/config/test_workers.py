from __future__ import annotations

import pytest

from seqgate.gateway.config import Config, load_config
from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.config.metrics import METRICS_LISTENER
from seqgate.gateway.config.workers import worker_config, workers_complaint


def config(*overrides: str, workers: int = 2) -> Config:
    return load_config(overrides=[f"seqgate.workers={workers}", *overrides])


def test_each_worker_has_the_next_node_id_and_ports() -> None:
    given = config(
        "node.id=5",
        "listeners=PLAINTEXT://[::1]:9092,SSL://:9192",
        "advertised.listeners=PLAINTEXT://one.example:19092,SSL://one.example:19192",
        workers=3,
    )
    third = worker_config(given, 3)
    assert third.int("node.id") == 7
    assert [(place.host, place.port) for place in third.listeners] == [("::1", 9094), ("", 9194)]
    assert [place.port for place in third.advertised_listeners] == [19094, 19194]
    first = worker_config(given, 1)
    assert (first.int("node.id"), first.listeners) == (5, given.listeners)
    assert given.int("node.id") == 5


def test_a_gateway_of_a_bucket_chooses_its_node_id_where_none_is_set() -> None:
    bucket = "seqgate.cluster=file:///tmp"
    assert workers_complaint(config(bucket)) is None
    assert not worker_config(config(bucket), 2).is_set("node.id")
    assert worker_config(config(bucket, "node.id=5"), 2).int("node.id") == 6


def test_any_free_port_stays_any_free_port() -> None:
    given = config("listeners=PLAINTEXT://127.0.0.1:0")
    assert worker_config(given, 2).listeners[0].port == 0
    assert workers_complaint(given) is None


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["listeners=PLAINTEXT://h:9092,SSL://h:9093"], "two workers would listen on h:9093"),
        (["listeners=PLAINTEXT://h:65535"], "worker 2 would listen on port 65536"),
        (["advertised.listeners=PLAINTEXT://h:65535"], "worker 2 would advertise port 65536"),
        (
            [
                "listeners=PLAINTEXT://:9092,SSL://:9192",
                "advertised.listeners=PLAINTEXT://h:9092,SSL://h:9093",
            ],
            "two workers would advertise h:9093",
        ),
        (
            ["listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256"],
            "the workers could not ask each other: listener SASL_PLAINTEXT has logins; set sasl.mechanism",
        ),
    ],
)
def test_settings_that_do_not_go_together(overrides: list[str], said: str) -> None:
    assert said in str(workers_complaint(config(*overrides)))
    assert workers_complaint(config(*overrides, workers=1)) is None


def test_each_worker_shows_its_metrics_on_the_next_port() -> None:
    given = config("seqgate.metrics.listener=[::1]:9644", workers=3)
    assert workers_complaint(given) is None
    for number, port in ((1, 9644), (2, 9645), (3, 9646)):
        listener = parse_listener(worker_config(given, number).str(METRICS_LISTENER))
        assert (listener.host, listener.port) == ("::1", port)
    anywhere = config("seqgate.metrics.listener=:0")
    assert parse_listener(worker_config(anywhere, 2).str(METRICS_LISTENER)).port == 0
    assert worker_config(config(), 2).optional_str(METRICS_LISTENER) is None


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("h:9093", "two workers would listen on h:9093"),
        ("h:65535", "listener seqgate.metrics.listener: worker 2 would listen on port 65536"),
    ],
)
def test_ports_of_metrics_that_workers_cannot_have(address: str, said: str) -> None:
    given = ("listeners=PLAINTEXT://h:9092", f"seqgate.metrics.listener={address}")
    assert said in str(workers_complaint(config(*given)))
    assert workers_complaint(config(*given, workers=1)) is None


def test_listeners_on_ports_apart_go_together() -> None:
    assert workers_complaint(config("listeners=PLAINTEXT://h:9092,SSL://h:9094")) is None
