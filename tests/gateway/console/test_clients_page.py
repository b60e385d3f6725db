"""The metrics that clients push: the list of clients, and the metrics of one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.admin.metrics import GatewayMetrics, MetricsPage, MetricsRequest, with_prefix
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.console.answer import Data
from seqgate.gateway.console.asking.gateways import GatewayAsker, Replies, Reply
from seqgate.gateway.console.metrics.rates import FigureReader, clients_of
from seqgate.gateway.console.page import Gathered, Visit
from seqgate.gateway.console.pages import clients
from seqgate.gateway.console.pages.clients import PushedMetrics
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
def pushed(
    foreign_brokers: None, stub: MetricsStub, shared_gateway: GatewayProcess
) -> Iterator[ConsoleClient]:
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


def test_a_client_that_has_gone_to_another_gateway_has_a_row_at_both(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = TEXT.replace("} 40", "} 90")
    texts = {1: TEXT, 2: here[: here.index("kafka_client_consumer_lag")]}

    def answers(_: GatewayAsker, request: Request[Any]) -> Replies[MetricsPage]:
        if not isinstance(request, MetricsRequest):
            return Replies(of=3)
        told = {node: GatewayMetrics(node, with_prefix(text, request.prefix)) for node, text in texts.items()}
        rows = [Reply(str(node), f"h:{node}", MetricsPage([each], [node])) for node, each in told.items()]
        return Replies([*rows, Reply("3", "h:3", None, "no answer in time")], 3, "c")

    monkeypatch.setattr(GatewayAsker, "ask", answers)
    page = console.page("/clients")
    text = text_of(page)
    assert "till <b>7</b> abc-1 abc-1 1 librdkafka 2.5 – 3" in text
    assert "till <b>7</b> abc-1 abc-1 2 librdkafka 2.5 – 3" in text
    assert "Node 3 at h:3 gives no answer: no answer in time." in text
    assert 'href="/clients/view?instance=abc-1&amp;node=2"' in page
    assert 'href="/clients/view?instance=abc-2"' in page, "its address stays when it goes to another gateway"
    at_two = text_of(console.page("/clients/view?instance=abc-1&node=2"))
    assert "Pushed to node 2" in at_two
    assert "topic orders 90" in at_two
    assert "topic orders 40" in text_of(console.page("/clients/view?instance=abc-1"))


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
    reader = FigureReader(lambda: {1: TEXT}, "abc-2", "kafka_client_consumer_lag")
    assert reader() == {"kafka_client_consumer_lag": 5.0}


def test_a_counter_at_two_gateways_does_not_leap_when_one_is_silent_or_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, now_s, told = "kafka_client_producer_record_send_total", [0.0], dict[int, str]()
    clock = SimpleNamespace(monotonic=lambda: now_s[0])
    monkeypatch.setattr("seqgate.gateway.console.metrics.rates.time", clock)
    reader = FigureReader(lambda: told, "abc-1", name)

    def growth(**sent: int) -> float | None:
        told.clear()
        told.update({int(node[1:]): f"{name}{{{LABELS}}} {value}\n" for node, value in sent.items()})
        now_s[0] += 5.0
        return reader()[name]

    assert growth(n1=9_000_000) is None
    assert growth(n1=9_000_050) == 10
    assert growth(n1=9_000_050, n2=400) == 0, "the client has come to another gateway"
    assert growth(n2=450) == 10, "the first one is silent"
    assert growth(n1=9_000_050, n2=500) == 10
    assert growth() is None
    assert growth(n2=600) == 10


def test_without_pushed_metrics_the_page_says_how_to_get_them(
    stub: MetricsStub, pushed: ConsoleClient, console: ConsoleClient, shared_gateway: GatewayProcess
) -> None:
    gateway = shared_gateway.bootstrap
    stub.metrics = "seqgate_connections 3\n"
    assert clients_of(stub.metrics) == {}
    command = f"seqgate configs set client-metrics all metrics='*' interval.ms=60000 --bootstrap {gateway}"
    assert command in text_of(pushed.page("/clients"))
    assert "Only a Seqgate gateway tells what clients push" in text_of(console.page("/clients"))


def test_after_a_change_of_the_password_a_chart_is_read_with_the_new_login(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of a chart lasts as long as somebody looks, and so must not keep a login that is refused."""
    name = "kafka_client_producer_record_send_total"
    refused = set[str]()

    def asked(visit: Visit) -> PushedMetrics:
        if visit.security.password in refused:
            raise ControlError("the login is refused")
        return PushedMetrics(Gathered([], [], 1), {1: TEXT})

    def look(password: str) -> list[float | None]:
        login = ClientSecurity("SASL_PLAINTEXT", None, "PLAIN", "ann", password)
        query = {"instance": ["abc-1"], "metric": [name]}
        answer = clients.client_figures(Visit(console.console, login, "", "", query=query))
        assert isinstance(answer, Data)
        return list(answer.value["series"][name])

    monkeypatch.setattr(clients, "_asked", asked)
    look("old")
    console.console.sampler.sample()
    refused.add("old")
    look("new")
    for _ in range(2):
        console.console.sampler.sample()
    assert look("new")[-1] is not None
