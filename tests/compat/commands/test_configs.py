"""`seqgate configs` against a gateway and against Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.commands.conftest import Peer
from tests.support.gateway_cluster import await_true

Fresh = Callable[[str], str]


@pytest.fixture
def topic(peer: Peer, fresh: Fresh) -> str:
    name = fresh("configured")
    peer.run("topics", "create", name)
    return name


def test_a_topic(peer: Peer, topic: str) -> None:
    text = peer.run("configs", "get", "topic", topic).stdout
    assert f"Nothing is set on topic {topic}." in text
    assert text.endswith(" configurations not set there; --all shows them.\n")
    done = peer.run("configs", "set", "topic", topic, "retention.ms=7200000", "cleanup.policy=compact,delete")
    assert done.stdout.splitlines() == [
        f"topic {topic}: retention.ms=7200000",
        f"topic {topic}: cleanup.policy=compact,delete",
    ]
    listing = peer.json("configs", "get", "topic", topic)
    assert [(row["name"], row["value"], row["source"]) for row in listing["configs"]] == [
        ("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG"),
        ("retention.ms", "7200000", "DYNAMIC_TOPIC_CONFIG"),
    ]
    assert listing["left_out"] > 20
    unset = peer.run("configs", "unset", "topic", topic, "cleanup.policy")
    assert unset.stdout == f"topic {topic}: cleanup.policy is no longer set\n"
    (one,) = peer.json("configs", "get", "topic", topic, "cleanup.policy")["configs"]
    assert (one["value"], one["source"]) == ("delete", "DEFAULT_CONFIG")
    everything = peer.json("configs", "get", "topic", topic, "--all")
    assert everything["left_out"] == 0
    assert len(everything["configs"]) == listing["left_out"] + 2


def test_refusals(peer: Peer, topic: str) -> None:
    wrong = peer.run("configs", "set", "topic", topic, "retention.ms=soon", "segment.ms=9999999", code=1)
    assert wrong.stderr == (
        f"seqgate: topic {topic}: Invalid value soon for configuration retention.ms: Not a number of type "
        "LONG (INVALID_CONFIG)\n"
    )
    assert peer.json("configs", "get", "topic", topic)["configs"] == []
    unknown = f"seqgate: topic {topic} has no configuration retentoin.ms; the nearest name is retention.ms\n"
    for command in (("get", "retentoin.ms"), ("set", "retentoin.ms=1"), ("unset", "retentoin.ms")):
        assert peer.run("configs", command[0], "topic", topic, command[1], code=1).stderr == unknown
    assert "there is no topic" in peer.run("configs", "get", "topic", f"{topic}x", code=1).stderr
    assert peer.run("configs", "get", "broker", "7", code=1).stderr == (
        "seqgate: there is no broker 7; the cluster has 1, and default stands for all\n"
    )


def test_a_broker(peer: Peer) -> None:
    peer.run("configs", "set", "broker", "1", "log.cleaner.backoff.ms=14000")

    def told() -> tuple[str | None, str | None]:
        rows = {row["name"]: row for row in peer.json("configs", "get", "broker", "1")["configs"]}
        row = rows.get("log.cleaner.backoff.ms", {})
        return row.get("value"), row.get("source")

    # A broker of Apache Kafka follows the controller a moment later.
    await_true(lambda: told() == ("14000", "DYNAMIC_BROKER_CONFIG"), "the value is set")
    peer.run("configs", "unset", "broker", "1", "log.cleaner.backoff.ms")
    # another test may have set a default for all brokers of this cluster
    await_true(lambda: told()[1] != "DYNAMIC_BROKER_CONFIG", "the value is unset")


def test_a_subscription_of_client_metrics(peer: Peer, fresh: Fresh) -> None:
    name = fresh("subscription")

    def told() -> dict[str, str]:
        listed = peer.json("configs", "get", "client-metrics", name)["configs"]
        return {row["name"]: row["value"] for row in listed}

    done = peer.run(
        "configs", "set", "client-metrics", name, "metrics=org.apache.kafka.", "interval.ms=60000"
    )
    assert done.stdout.splitlines()[0] == f"client-metrics {name}: metrics=org.apache.kafka."
    wanted = {"metrics": "org.apache.kafka.", "interval.ms": "60000"}
    await_true(lambda: told().items() >= wanted.items(), "the subscription is there")
    peer.run("configs", "unset", "client-metrics", name, "metrics", "interval.ms")
    await_true(lambda: not told().keys() & wanted.keys(), "the subscription is gone")


def test_all_brokers(peer: Peer) -> None:
    name = "log.cleaner.io.buffer.load.factor"
    assert "Nothing is set on broker default." in peer.run("configs", "get", "broker", "default", name).stdout
    done = peer.run("configs", "set", "broker", "default", f"{name}=0.8")
    assert done.stdout == f"broker default: {name}=0.8\n"
    try:
        set_to = "0.8", "DYNAMIC_DEFAULT_BROKER_CONFIG"
        await_true(
            lambda: any(
                (row["value"], row["source"]) == set_to
                for row in peer.json("configs", "get", "broker", "1", name)["configs"]
            ),
            "the broker has the value",
        )
        for words in ([], [name], ["--all"]):
            listed = peer.json("configs", "get", "broker", "default", *words)["configs"]
            (row,) = (row for row in listed if row["name"] == name)
            assert (row["value"], row["source"]) == ("0.8", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        (row,) = peer.json("configs", "get", "broker", "1", name)["configs"]
        assert (row["value"], row["source"]) == ("0.8", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    finally:
        peer.run("configs", "unset", "broker", "default", name)
    await_true(
        lambda: peer.json("configs", "get", "broker", "default", name)["configs"] == [], "the value is unset"
    )
    (row,) = peer.json("configs", "get", "broker", "1", name)["configs"]
    assert (row["value"], row["source"]) == ("0.9", "DEFAULT_CONFIG")


def test_all_brokers_refuse(peer: Peer) -> None:
    for words in (["get", "log.retenton.ms"], ["set", "log.retenton.ms=1"], ["unset", "log.retenton.ms"]):
        refused = peer.run("configs", words[0], "broker", "default", words[1], code=1)
        assert refused.stderr == (
            "seqgate: broker default has no configuration log.retenton.ms; the nearest name is "
            "log.retention.ms\n"
        )
    assert peer.run("configs", "set", "broker", "default", "log.retention.ms=soon", code=1).stderr.startswith(
        "seqgate: broker default: "
    )


def test_a_group(peer: Peer, fresh: Fresh) -> None:
    group = fresh("billing")
    peer.run("configs", "set", "group", group, "consumer.session.timeout.ms=50000")
    (row,) = peer.json("configs", "get", "group", group)["configs"]
    assert (row["name"], row["value"], row["source"]) == (
        "consumer.session.timeout.ms",
        "50000",
        "DYNAMIC_GROUP_CONFIG",
    )
