"""The metrics listener of a real gateway with real clients."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.gateway_process import GatewayProcess
from tests.support.metrics_text import fallen
from tests.support.wire import Wire
from tests.system.metrics.scene import (
    DEADLINE_S,
    LISTENER,
    await_values,
    create,
    measured,
    page,
    port_of,
    scraped,
)


def test_what_clients_of_librdkafka_do_is_counted(tmp_path: Path) -> None:
    count = 500
    with measured(tmp_path / "data") as gateway:
        port = port_of(gateway)
        with Wire(gateway.bootstrap) as wire:
            create(wire, "lines")
        producer = Producer(
            {"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )
        for number in range(count):
            producer.produce("lines", b"%d" % number)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["lines"])
        read = 0
        while read < count:
            read += sum(message.error() is None for message in consumer.consume(count, 5))
        consumer.commit(asynchronous=False)
        values = scraped(port)
        assert values.of("seqgate_topic_records_total", topic="lines") == count
        assert values.of("seqgate_topic_fetched_bytes_total", topic="lines") >= values.of(
            "seqgate_topic_bytes_total", topic="lines"
        )
        assert values.of("seqgate_groups", type="classic", state="Stable") == 1
        assert values.of("seqgate_group_members") == 1
        assert values.of("seqgate_group_lag_records", group="readers") == 0
        assert values.of("seqgate_connections") >= 1
        assert values.of("seqgate_requests_total", api="Produce") >= 1
        consumer.close()
        after = await_values(port, lambda found: found.of("seqgate_group_members") == 0, "the member leaves")
        assert fallen(values, after) == {}


def test_scrapes_beside_a_load(tmp_path: Path) -> None:
    """Each scrape is whole, and no counter falls."""
    with measured(tmp_path / "data") as gateway:
        port, stopping = port_of(gateway), threading.Event()

        def produce() -> int:
            producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0})
            number = 0
            while not stopping.is_set():
                producer.produce(f"t{number % 50}", b"x")
                producer.poll(0.001)
                number += 1
            assert producer.flush(DEADLINE_S) == 0
            return number

        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(produce)
            before = scraped(port)
            for _ in range(20):
                after = scraped(port)
                assert fallen(before, after) == {}
                before = after
            stopping.set()
            sent = load.result(DEADLINE_S)
        values = scraped(port)
        assert (
            sum(values.by("seqgate_topic_records_total", "topic").get(f"t{n}", 0) for n in range(50)) == sent
        )


def test_a_gateway_stops_while_scrapes_run(tmp_path: Path) -> None:
    with measured(tmp_path / "data") as gateway:
        port = port_of(gateway)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        gateway.stop()
        for client in clients:
            client.close()
    assert "Traceback" not in gateway.stderr_text()


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        gateway = GatewayProcess(tmp_path / "data", settings={LISTENER: f"127.0.0.1:{port}"})
        with pytest.raises(AssertionError, match=rf"can't listen for metrics on 127.0.0.1:{port}: .*in use"):
            gateway.start()
    with gateway:
        assert page(port, "/healthz") == (200, "ok\n")


def test_a_gateway_without_the_setting_imports_none_of_it(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", environment={"PYTHONPROFILEIMPORTTIME": "1"}) as gateway:
        pass
    imported = gateway.stderr_text()
    assert "seqgate.gateway.server.dispatcher" in imported
    for module in ("seqgate.gateway.metrics", "prometheus_client", "h11"):
        assert f"{module}\n" not in imported


def test_the_log_names_the_address(tmp_path: Path) -> None:
    with measured(tmp_path / "data") as gateway:
        assert f"metrics and health on http://127.0.0.1:{port_of(gateway)}" in gateway.stderr_text()
