"""The overview in a browser: figures over time, and what is wrong first."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer
from playwright.sync_api import Browser, expect

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.status import StatusRequest
from tests.support.chromium import NARROW, TIMEOUT_MS, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess
from tests.support.metrics_stub import MetricsStub, metrics_stub


def status_of(gateway: GatewayProcess) -> Any:
    """Return the status of a gateway, as its metrics listener would."""
    return msgspec.to_builtins(ask(gateway.data_dir, StatusRequest()))


def metrics(seconds: int) -> str:
    """Return the metrics of a gateway that has run for some seconds."""
    buckets = "".join(
        f'seqgate_request_duration_seconds_bucket{{api="Produce",le="{bound}"}} {count * seconds}\n'
        for bound, count in (("0.001", 90), ("0.002", 100), ("+Inf", 100))
    )
    return (
        f'seqgate_topic_records_total{{topic="orders"}} {1000 * seconds}\n'
        f'seqgate_topic_bytes_total{{topic="orders"}} {1024 * 1024 * seconds}\n'
        f"seqgate_producer_duplicate_batches_total {seconds}\n"
        f'seqgate_producer_refused_batches_total{{error="INVALID_PRODUCER_EPOCH"}} {2 * seconds}\n'
        f"seqgate_connections 7\n{buckets}"
    )


@pytest.fixture(scope="module")
def stub() -> Iterator[MetricsStub]:
    with metrics_stub() as listener:
        yield listener


@pytest.fixture(scope="module")
def base(
    gateway: GatewayProcess, stub: MetricsStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("process")
    with console_process(folder, gateway.bootstrap, "--metrics", stub.url) as address:
        yield address


def counted(passed_s: float) -> int:
    """Return a count that grows faster and slower."""
    return int(30 * passed_s - 40 * math.cos(passed_s / 4)) + 50


def test_a_gateway_that_is_well(
    browser: Browser, base: str, stub: MetricsStub, gateway: GatewayProcess
) -> None:
    begin = time.monotonic()
    stub.metrics = lambda: metrics(counted(time.monotonic() - begin))
    stub.views["status"] = status_of(gateway)
    with watched(browser, base) as window:
        page = window.open("/")
        expect(page.get_by_text("Disk free")).to_be_visible()
        expect(page.get_by_text("Nothing is wrong")).to_be_visible()
        window.picture("overview")
    del stub.views["status"]


def write_until(bootstrap: str, stopping: threading.Event) -> None:
    """Write records one by one until the event is set."""
    producer = KafkaProducer(bootstrap_servers=[bootstrap])
    try:
        while not stopping.wait(0.05):
            producer.send("orders", b"record").get(60)
    finally:
        producer.close()


def test_charts_show_figures_per_second(
    browser: Browser, measured: str, measured_gateway: GatewayProcess
) -> None:
    stopping = threading.Event()
    with ThreadPoolExecutor() as pool, watched(browser, measured) as window:
        writing = pool.submit(write_until, measured_gateway.bootstrap, stopping)
        try:
            page = window.open("/")
            chart = page.locator("figure").filter(has_text="Records stored/s")
            expect(chart.locator("canvas")).to_be_visible()
            expect(chart.locator("output")).to_have_text(re.compile(r"^[\d,.]*[1-9]"))
            refusals = page.locator("figure").filter(has_text="Duplicates and refusals")
            expect(refusals.locator("output")).to_have_text(re.compile("duplicates 0.* refused 0"))
            latency = page.locator("figure").filter(has_text="Produce time")
            expect(latency.locator("output")).to_have_text(re.compile(r"^[\d,.]*[1-9].* ms$"))
            chart.get_by_label("Time that the charts show").select_option("6h")
            expect(page).to_have_url(re.compile(r"[?]range=6h$"))
            for choice in page.locator(".chart-range").all():
                expect(choice).to_have_value("6h")
            expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile("over 6 h"))
            window.check()
        finally:
            stopping.set()
        writing.result()


def test_pages_come_back_by_themselves(
    browser: Browser, base: str, stub: MetricsStub, gateway: GatewayProcess
) -> None:
    with watched(browser, base) as overview, watched(browser, base, dark=True) as other:
        page = overview.open("/")
        expect(page.locator("figure canvas").first).to_be_visible()
        gateway.kill()
        problems = page.get_by_role("region", name="What is wrong")
        expect(problems).to_contain_text("The cluster does not answer")
        expect(page.locator("figure canvas").first).to_be_visible()
        topics = other.open("/topics")
        expect(topics.get_by_role("heading", name="The cluster does not answer")).to_be_visible()
        other.check()
        gateway.start()
        expect(topics.get_by_role("heading", name="Topics")).to_be_visible()
        expect(problems).not_to_contain_text("does not answer")
        overview.check()


def test_what_is_wrong_stands_first_also_on_an_open_page(
    browser: Browser, base: str, stub: MetricsStub
) -> None:
    with watched(browser, base, size=NARROW) as window:
        page = window.open("/")
        stub.ready = (503, "a flush failed")
        first = page.get_by_role("region", name="What is wrong").locator(".notice").first
        expect(first).to_contain_text("A flush failed", timeout=TIMEOUT_MS)
        expect(page.get_by_text("Nothing is wrong")).to_be_hidden()
        window.check()
    stub.ready = (200, "ready")
