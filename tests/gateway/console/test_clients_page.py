"""The metrics that clients push: the list of clients, and the metrics of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.console.metrics.rates import FigureReader, clients_of
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.metrics_stub import MetricsStub, metrics_stub

LABELS = 'client_id="till <b>7</b>",client_instance_id="abc-1",client_software_name="librdkafka",client_software_version="2.5"'
TEXT = f"""\
seqgate_connections 3
kafka_client_producer_record_send_total{{{LABELS},topic="orders"}} 40
kafka_client_producer_record_send_total{{{LABELS},topic="returns"}} 2
client_latency_bucket{{{LABELS},le="+Inf"}} 2
client_latency_sum{{{LABELS}}} 7.5
kafka_client_consumer_lag{{client_id="desk",client_instance_id="abc-2",group_id="desks"}} 5
"""


@pytest.fixture
def stub() -> Iterator[MetricsStub]:
    with metrics_stub() as listener:
        listener.metrics = TEXT
        yield listener


@pytest.fixture
def pushed(stub: MetricsStub, shared_gateway: GatewayProcess) -> Iterator[ConsoleClient]:
    with console_client(shared_gateway.bootstrap, metrics_url=stub.url) as client:
        yield client


def test_clients_are_listed_with_their_software_and_groups(pushed: ConsoleClient) -> None:
    page = pushed.page("/clients")
    assert "till <b>7</b> abc-1 abc-1 librdkafka 2.5 – 3" in text_of(page)
    assert "<b>" not in page.partition("<main")[2]
    assert "desk abc-2 abc-2 – desks 1" in text_of(page)
    assert 'href="/groups/view?group=desks"' in page
    assert "No client matches" in text_of(pushed.page("/clients?filter=nobody"))


def test_the_metrics_of_one_client(pushed: ConsoleClient) -> None:
    page = text_of(pushed.page("/clients/view?instance=abc-1"))
    assert "kafka_client_producer_record_send_total topic orders 40" in page
    assert "client_latency_sum 7.5" in page
    assert "bucket" not in page
    only = text_of(pushed.page("/clients/view?instance=abc-1&filter=latency"))
    assert "record_send" not in only
    assert "no client with the instance id 'gone' pushes metrics now" in text_of(
        pushed.page("/clients/view?instance=gone")
    )


def test_a_counter_is_drawn_as_its_growth(stub: MetricsStub, pushed: ConsoleClient) -> None:
    name = "kafka_client_producer_record_send_total"
    feed = f"/api/clients/figures?instance=abc-1&metric={name}"
    assert pushed.data(feed)["series"][name] == []
    pushed.console.sampler.sample()
    stub.metrics = TEXT.replace("} 40", "} 90")
    pushed.console.sampler.sample()
    stub.metrics = ""
    pushed.console.sampler.sample()
    values = pushed.data(feed)["series"][name]
    assert any(value is not None and value > 0 for value in values)
    assert values[-1] is None


def test_a_gauge_is_drawn_as_it_is() -> None:
    reader = FigureReader(lambda: TEXT, "abc-2", "kafka_client_consumer_lag")
    assert reader() == {"kafka_client_consumer_lag": 5.0}


def test_without_pushed_metrics_the_page_says_how_to_get_them(
    stub: MetricsStub, pushed: ConsoleClient, console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    gateway = shared_gateway.bootstrap
    stub.metrics = "seqgate_connections 3\n"
    assert clients_of(stub.metrics) == {}
    command = f"seqgate configs set client-metrics all metrics='*' interval.ms=60000 --bootstrap {gateway}"
    assert command in text_of(pushed.page("/clients"))
    assert "seqgate.metrics.listener" in text_of(console.page("/clients"))
