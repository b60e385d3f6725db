"""The page of the cluster in a browser: two gateways, a failover seen live, and a setting changed by
keyboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import NARROW, WIDE, watched
from tests.support.console_process import console_process
from tests.support.gateway_cluster import GatewayCluster
from tests.support.gateway_process import free_port

TOPIC = "parcels"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    settings = {"seqgate.cluster.balance.enable": "false"}
    with ExitStack() as stack:
        cluster = GatewayCluster(tmp_path_factory.mktemp("cluster"), 2, settings)
        cluster.gateways[0].settings["seqgate.metrics.listener"] = f"127.0.0.1:{free_port()}"
        stack.enter_context(cluster)
        cluster.create(TOPIC, 6)
        yield cluster


@pytest.fixture(scope="module")
def base(cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    metrics = f"http://{cluster.gateways[0].settings['seqgate.metrics.listener']}"
    folder = tmp_path_factory.mktemp("process")
    with console_process(folder, cluster.gateways[0].bootstrap, "--metrics", metrics) as address:
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", ["cluster", "cluster/settings"])
def test_pages_of_the_cluster_are_without_faults(
    browser: Browser, base: str, name: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, base, dark=dark, size=size) as window:
        page = window.open(f"/{name}")
        expect(page.locator("h1")).to_be_visible()
        if name == "cluster/settings":
            page.locator("details summary").first.click()
        window.check()
        window.picture(
            f"{name.replace('/', '-')}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}"
        )


def test_a_setting_is_changed_by_keyboard(browser: Browser, base: str) -> None:
    with watched(browser, base) as window:
        page = window.open("/cluster/settings?node=1")
        page.keyboard.press("/")
        page.keyboard.type("log.retention.ms")
        page.keyboard.press("Enter")
        summary = page.locator("details summary")
        expect(summary).to_have_count(1)
        summary.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_label("New value of log.retention.ms")).to_be_focused()
        page.keyboard.type("86400000")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Change log.retention.ms of broker 1?")).to_be_visible()
        window.check()
        page.get_by_role("button", name="Change the setting").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".notice.good")).to_have_text("log.retention.ms is changed.")


def test_a_failover_appears_by_itself(browser: Browser, base: str, cluster: GatewayCluster) -> None:
    with watched(browser, base) as window:
        page = window.open("/cluster")
        ids = cluster.brokers()
        first, second = (ids[gateway.port] for gateway in cluster.gateways)
        expect(page.get_by_text("No partition has changed its leader")).to_be_visible()
        cluster.gateways[1].kill()
        row = page.get_by_role("row", name=f"node {second} node {first}")
        expect(row.first).to_be_visible(timeout=120_000)
        expect(page.locator(".badge", has_text="ended")).to_be_visible(timeout=120_000)
        window.check()
        window.picture("cluster-failover")
        cluster.gateways[1].start()
