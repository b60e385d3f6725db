from __future__ import annotations

import pytest

from examples.demo.proxy import METADATA, PRODUCE, Fault, LossyProxy
from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Closed, Wire

RECORDS = 300


def send(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 5,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_lost_acknowledgements_make_duplicates_that_are_not_stored(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "lossy")
    with LossyProxy(("127.0.0.1", shared_gateway.port), fault_rate=0.2, seed=7) as proxy:
        send(proxy.address, topic)
    report = proxy.report
    assert report.faults[Fault.LOSE_ACKNOWLEDGEMENT]
    assert report.faults[Fault.DROP_CONNECTION]
    assert report.unknown_to_clients >= report.faults.total()
    assert report.duplicate_answers
    expect_unbroken(stored_batches(shared_gateway.bootstrap, topic), RECORDS)


def test_without_faults_no_batch_is_lost_or_duplicated(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "lossless")
    with LossyProxy(("127.0.0.1", shared_gateway.port), fault_rate=0.0, seed=7) as proxy:
        send(proxy.address, topic)
    assert not proxy.report.faults
    assert proxy.report.unknown_to_clients == proxy.report.duplicate_answers == 0
    assert proxy.report.acknowledged_batches == RECORDS / 5


def test_without_an_endpoint_the_proxy_closes_the_connection() -> None:
    import socket

    with LossyProxy(("127.0.0.1", 1), fault_rate=0.0, seed=7) as proxy:
        host, _, port = proxy.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            assert client.recv(1) == b""


def test_answers_that_name_brokers_name_the_proxy(shared_gateway: GatewayProcess) -> None:
    with (
        LossyProxy(("127.0.0.1", shared_gateway.port), fault_rate=0.0, seed=7) as proxy,
        Wire(proxy.address) as wire,
    ):
        asked = {"topics": [], "allow_auto_topic_creation": False}
        told = [
            *wire.call("metadata", 12, asked).fields["brokers"],
            *wire.call("find_coordinator", 4, key_type=1, coordinator_keys=["a"]).fields["coordinators"],
            wire.call("find_coordinator", 2, key_type=0, key="a").fields,
        ]
        assert {f"{row['host']}:{row['port']}" for row in told} == {proxy.address}


def test_the_answers_of_chosen_apis_are_lost(shared_gateway: GatewayProcess) -> None:
    with (
        LossyProxy(
            ("127.0.0.1", shared_gateway.port), fault_rate=1.0, seed=7, losing={PRODUCE, METADATA}
        ) as proxy,
        Wire(proxy.address) as wire,
    ):
        assert wire.call("find_coordinator", 2, key_type=0, key="a").fields["error_code"] == 0
        with pytest.raises(Closed):
            wire.call("metadata", 12, {"topics": [], "allow_auto_topic_creation": False})
    assert proxy.report.faults.total() == 1


def test_a_stop_closes_a_connection_whose_endpoint_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio
    import socket
    import threading

    is_connecting = threading.Event()

    async def connect(*_address: object, **_named: object) -> None:
        is_connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", connect)
    proxy = LossyProxy(("127.0.0.1", 1), fault_rate=0.0, seed=7).start()
    host, _, port = proxy.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        assert is_connecting.wait(10)
        proxy.stop()
        assert client.recv(1) == b""
