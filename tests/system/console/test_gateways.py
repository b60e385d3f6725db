"""The figures of all gateways in one console: two workers, and three gateways of a bucket, none with a metrics
listener.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import NARROW, WIDE, watched
from tests.support.console_process import console_process
from tests.support.gateway_cluster import GatewayCluster, Writer, await_true
from tests.support.gateway_process import GatewayProcess
from tests.system.workers.scene import consecutive_ports, create_topic, load, present_pid, workers

WAIT_S = 600.0
"""A round of the console may be long on a busy machine, and a pause follows that is many times longer."""


def figures(base: str, *names: str) -> list[dict[str, float | None]]:
    """Return the samples of the last 15 minutes that have values of these figures."""
    with urllib.request.urlopen(f"{base}/api/figures?range=15m") as answer:
        series: dict[str, list[float | None]] = json.load(answer)["series"]
    rows = [dict(zip(series, row, strict=True)) for row in zip(*series.values(), strict=True)]
    return [row for row in rows if all(row[name] is not None for name in names)]


def whole_sums(base: str, count: int) -> list[dict[str, float | None]]:
    """Return the samples that are sums of so many gateways, which store records."""
    rows = figures(base, "records_per_s", "gateways_counted")
    return [row for row in rows if row["gateways_counted"] == count and row["records_per_s"]]


def has_all(base: str, count: int) -> Callable[[], bool]:
    return lambda: bool(whole_sums(base, count))


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with workers(tmp_path_factory.mktemp("workers") / "data", 2, consecutive_ports(2)) as process:
        create_topic(process.bootstrap)
        yield process


def test_each_worker_has_a_row_and_a_restart_is_no_huge_rate(
    browser: Browser, two_workers: GatewayProcess, tmp_path: Path
) -> None:
    with (
        load(two_workers.bootstrap) as running,
        console_process(tmp_path, two_workers.bootstrap) as base,
        watched(browser, base) as window,
    ):
        await_true(has_all(base, 2), "the sums of both workers", WAIT_S)
        page = window.open("/cluster")
        rows = page.locator("#figures tbody tr")
        expect(rows).to_have_count(3)
        for number in range(2):
            expect(rows.nth(number)).to_contain_text("ok", timeout=WAIT_S * 1000)
        expect(rows.last).to_contain_text("2 of 2")
        window.check()
        killed = present_pid(two_workers, 2)
        os.kill(killed, signal.SIGKILL)
        await_true(lambda: present_pid(two_workers, 2) != killed, "the worker is started again", WAIT_S)
        before = len(whole_sums(base, 2))
        await_true(lambda: len(whole_sums(base, 2)) > before, "the sums of both workers again", WAIT_S)
        rates = [row["records_per_s"] for row in figures(base, "records_per_s")]
    stored = sum(map(len, running.acknowledged.values()))
    # samples are a second apart at least, and a batch that was not acknowledged may be stored twice
    assert all(rate is not None and 0 <= rate <= 2 * stored for rate in rates), (stored, rates)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    with GatewayCluster(tmp_path_factory.mktemp("cluster"), 3) as gateways:
        gateways.create()
        yield gateways


@pytest.fixture(scope="module")
def base(cluster: GatewayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with console_process(tmp_path_factory.mktemp("process"), cluster.gateways[0].bootstrap) as address:
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_pages_show_the_sums_and_each_gateway(
    browser: Browser, base: str, cluster: GatewayCluster, dark: bool, size: tuple[int, int]
) -> None:
    bootstrap = ",".join(gateway.bootstrap for gateway in cluster.gateways)
    with Writer(bootstrap), watched(browser, base, dark=dark, size=size) as window:
        await_true(has_all(base, 3), "the sums of three gateways", WAIT_S)
        shape = f"{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}"
        for path, name in (("/", "overview"), ("/cluster", "cluster")):
            page: Any = window.open(path)
            expect(page.get_by_text("Of 3 gateways: their sums, and the slowest times.")).to_be_visible(
                timeout=WAIT_S * 1000
            )
            table = page.locator("[aria-labelledby=figures-title] tbody tr")
            expect(table).to_have_count(4)
            expect(table.last).to_contain_text("3 of 3")
            window.check()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            window.picture(f"gateways-{name}{shape}")
