"""A cluster for tests: an application that loses one of its brokers, with a real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from seqgate.gateway.testing import Broker, Cluster
from tests.gateway.testing.exchanges import LIMIT_S, eventually

PARTITIONS = 6
NEVER_SILENT = {"seqgate.cluster.lease.ms": "360000"}
"""For a cluster whose brokers nobody kills: a machine may stand still for seconds."""


@pytest.fixture
def settings() -> dict[str, str]:
    return NEVER_SILENT


@pytest.fixture
def cluster(settings: dict[str, str]) -> Iterator[Cluster]:
    with Cluster(3, settings) as running:
        running.create_topic("orders", PARTITIONS)
        yield running


class Sender:
    """An idempotent producer of numbered values."""

    def __init__(self, cluster: Cluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        self._producer = Producer(settings)
        self.sent: list[bytes | None] = []

    def send(self, count: int) -> None:
        """Send values to all partitions, and wait until they are acknowledged."""
        for _ in range(count):
            value = b"%d" % len(self.sent)
            self._producer.produce("orders", value, partition=len(self.sent) % PARTITIONS)
            self.sent.append(value)
        assert self._producer.flush(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("end", "settings"), [(Broker.kill, {}), (Broker.stop, NEVER_SILENT)], ids=["killed", "stopped"]
)
def test_a_producer_loses_one_of_its_brokers(cluster: Cluster, end: Callable[[Broker], None]) -> None:
    sender = Sender(cluster)
    sender.send(30)
    lost = cluster.leader("orders", 2)
    end(lost)
    sender.send(30)
    assert cluster.leader("orders", 2) is not lost
    cluster.assert_exactly_once("orders", sender.sent)
    lost.start()
    eventually(lambda: any(lost.partitions("orders").values()), "the broker that came back leads partitions")
    sender.send(30)
    cluster.assert_exactly_once("orders", sender.sent)
    assert [record.partition for record in cluster.records("orders")] == sorted(
        number % PARTITIONS for number in range(90)
    )


def test_a_fault_of_one_broker_strikes_its_requests_alone(cluster: Cluster) -> None:
    sender = Sender(cluster)
    leader = cluster.leader("orders", 0)
    with leader.faults.drop_answer(api="Produce", topic="orders") as fault:
        sender.send(PARTITIONS)
    assert fault.struck == 1
    cluster.assert_exactly_once("orders", sender.sent)
    with pytest.raises(AssertionError, match="1 lost: 'never sent'"):
        cluster.assert_exactly_once("orders", [*sender.sent, b"never sent"])


def test_what_does_not_exist(cluster: Cluster) -> None:
    assert cluster.topics() == ["orders"]
    with pytest.raises(LookupError, match="there is no topic 'lines'"):
        cluster.records("lines")
    with pytest.raises(LookupError, match="there is no partition orders-6"):
        cluster.leader("orders", PARTITIONS)
    with pytest.raises(ValueError, match="orders"):
        cluster.create_topic("orders")


def test_all_brokers_end_although_the_end_of_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2, NEVER_SILENT)
    cluster.start()
    stop = Broker.stop

    def failing(broker: Broker) -> None:
        stop(broker)
        if broker is cluster.brokers[0]:
            raise OSError("the disk is gone")

    monkeypatch.setattr(Broker, "stop", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        cluster.close()
    assert not any(broker.is_running for broker in cluster.brokers)


def test_a_cluster_without_a_running_broker_says_so() -> None:
    cluster = Cluster(2)
    try:
        with pytest.raises(RuntimeError, match="no broker runs: call start"):
            cluster.topics()
    finally:
        cluster.close()
