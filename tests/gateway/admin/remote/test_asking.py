"""Topics, offsets and configurations are the same, whether a command asks for them itself or by kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from seqgate.gateway.admin.configs import remote as configs
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import EARLIEST, LATEST, Cluster, connected
from seqgate.gateway.admin.topics import remote as topics
from seqgate.gateway.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", 3, {"retention.ms": "3600000"})
        running.create_topic("none")
        producer = KafkaProducer(bootstrap_servers=running.bootstrap)
        for partition in (0, 0, 2):
            producer.send("orders", b"x", partition=partition, timestamp_ms=5_000).get(60)
        producer.close()
        yield running


def asked(cluster: Cluster) -> list[Any]:
    places = [("orders", 0), ("orders", 1), ("orders", 2), ("none", 0)]
    return [
        topics.list_topics(cluster, internal=True),
        topics.describe(cluster, ["orders", "none"]),
        cluster.leaders(),
        cluster.broker_ids(),
        *(cluster.offsets(places, at) for at in (EARLIEST, LATEST, 4_000, 6_000)),
        cluster.offsets(places, LATEST, "read_committed"),
        configs.described(cluster, "topic", ["none", "orders"]),
        configs.described(cluster, "broker", ["1"]),
        configs.described(cluster, "group", ["g"]),
        configs.described(cluster, "topic", ["missing"]),
    ]


def test_both_give_the_same(broker: Broker) -> None:
    addresses = parse_addresses(broker.bootstrap)
    with connected(addresses) as by_itself, connected(addresses, lasts=True) as by_kafka_python:
        answers = asked(by_itself)
        assert "admin" not in vars(by_itself), "it asked kafka-python"
        assert answers == asked(by_kafka_python)
    assert answers[4] == {("orders", 0): 0, ("orders", 1): 0, ("orders", 2): 0, ("none", 0): 0}
    assert answers[5] == {("orders", 0): 2, ("orders", 1): 0, ("orders", 2): 1, ("none", 0): 0}


def test_kafka_python_asks_where_there_is_no_leader_or_an_older_version(broker: Broker) -> None:
    addresses = parse_addresses(broker.bootstrap)
    with connected(addresses) as cluster:
        cluster._versions = {}
        assert cluster.offsets([("orders", 0)], LATEST) == {("orders", 0): 2}
        assert "admin" in vars(cluster)
