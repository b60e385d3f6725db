"""The metrics of a client in a browser: a real librdkafka pushes them to a real gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import clients_of
from tests.support.chromium import NARROW, WIDE, watched
from tests.support.console_process import console_process
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic

CLIENT_METRICS = 16
"""Kafka's code of the resource type of subscriptions."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway to which a producer pushes its metrics ten times a second."""
    settings = {"seqgate.metrics.listener": f"127.0.0.1:{free_port()}"}
    with GatewayProcess(tmp_path_factory.mktemp("clients") / "data", settings=settings) as process:
        create_topic(process.bootstrap, "orders", 1)
        configs = [
            {"name": "metrics", "config_operation": 0, "value": "*"},
            {"name": "interval.ms", "config_operation": 0, "value": "100"},
        ]
        resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": configs}
        with Wire(process.bootstrap) as wire:
            (done,) = wire.call("incremental_alter_configs", 1, resources=[resource]).fields["responses"]
        assert done["error_code"] == 0, done
        producer = Producer({"bootstrap.servers": process.bootstrap, "client.id": "till-7"})
        listener = MetricsClient(f"http://{settings['seqgate.metrics.listener']}")

        def pushes() -> bool:
            producer.produce("orders", b"a record")
            producer.flush(10)
            return bool(clients_of(listener.metrics()))

        await_true(pushes, "the producer pushes its metrics")
        yield process
        producer.flush()


@pytest.fixture(scope="module")
def base(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with console_process(tmp_path_factory.mktemp("process"), gateway.bootstrap) as address:
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_client_and_one_of_its_metrics(
    browser: Browser, base: str, dark: bool, size: tuple[int, int]
) -> None:
    suffix = f"{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}"
    with watched(browser, base, dark=dark, size=size) as window:
        page = window.open("/clients")
        window.check()
        window.picture(f"clients{suffix}")
        page.get_by_role("link", name="till-7").click()
        page.get_by_role("link", name="kafka_client_producer").first.click()
        expect(page.locator(".chart canvas")).to_be_visible()
        window.check()
        window.picture(f"client{suffix}")
