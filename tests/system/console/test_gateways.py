"""All gateways in one console: two workers, and three gateways of a bucket, none with a metrics listener. Pages
have the figures, logs, limits, backlogs, tasks and producers of each, and name one that does not answer.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from seqgate.gateway.console.pages.producers import IDLE_MS, ROWS
from seqgate.seq_validator.snapshot import decode, encode
from tests.compat.topics import fresh_topic
from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.support.console_process import console_process
from tests.support.gateway_cluster import GatewayCluster, Writer, await_true
from tests.support.gateway_process import GatewayProcess
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.producing import begun, send
from tests.support.wire import Wire
from tests.system.workers.scene import (
    consecutive_ports,
    create_topic,
    listed,
    load,
    present_pid,
    seqgate,
    workers,
)

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


# The pages that show what each worker tells of itself.

NEVER_MS = str(3_600_000)


def leaders(bootstrap: str, topic: str) -> dict[int, str]:
    """Return the address of the leader of each partition of a topic."""
    with Wire(bootstrap) as wire:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        found = wire.call("metadata", 12, asked).fields
    addresses = {row["node_id"]: f"{row['host']}:{row['port']}" for row in found["brokers"]}
    rows = found["topics"][0]["partitions"]
    return {row["partition_index"]: addresses[row["leader_id"]] for row in rows}


@pytest.fixture(scope="module")
def stopping_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Two workers; a worker that stands still is not started again."""
    settings = {"seqgate.workers.timeout.ms": NEVER_MS}
    data = tmp_path_factory.mktemp("stopping") / "data"
    with workers(data, 2, consecutive_ports(2), settings) as process:
        yield process


def nodes(page: Page) -> set[str]:
    """Return the nodes that the rows of a page name."""
    return set(page.locator("tbody [data-label=Node]").all_inner_texts())


PAGES_OF_ALL = (
    "/limits",
    "/logs/tasks",
    "/backlog?topic={topic}",
    "/names?topic={topic}",
    "/delayed",
    "/logs?level=DEBUG",
    "/producer-ids",
    "/clients",
)
ROWS_OF_ALL = PAGES_OF_ALL[:5]
"""The pages whose rows name both workers."""


def test_pages_of_gateways_are_those_of_all_workers(
    browser: Browser, stopping_workers: GatewayProcess, tmp_path: Path
) -> None:
    bootstrap = stopping_workers.bootstrap
    configs = {"backlog.quota.bytes": "100000", **DEDUPLICATED}
    topic = fresh_topic(bootstrap, "tight", partitions=4, configs=configs)
    for partition, leader in leaders(bootstrap, topic).items():
        assert send(leader, topic, -1, -1, partition=partition, batch=named(f"till-{partition}", 1))[0] == 0
        begun(leader, None)
    told = listed(stopping_workers.data_dir, "backlog", topic)["partitions"]
    assert [(row["partition"], row["verdict"]) for row in told] == [(index, "open") for index in range(4)]
    for number in (1, 2):
        seqgate(stopping_workers.data_dir / "workers" / str(number), "sweep")
    with console_process(tmp_path, bootstrap) as base, watched(browser, base) as window:
        for path in ROWS_OF_ALL:
            page = window.open(path.format(topic=topic))
            assert nodes(page) == {"1", "2"}, path
            expect(page.get_by_text("gives no answer")).to_have_count(0)
            window.check()
        page = window.open("/producer-ids")
        owners = page.locator("tbody tr").filter(has_text="in use").locator("[data-label=Owner]")
        assert sorted(map(str.strip, owners.all_inner_texts())) == ["node-1", "node-2"]
        expect(page.get_by_text("not known")).to_have_count(0)
        window.check()
        page = window.open("/logs?level=DEBUG")
        lines = page.locator(".log li")
        expect(lines.filter(has_text="node 1 ").first).to_be_visible()
        expect(lines.filter(has_text="node 2 ").first).to_be_visible()
        stopped = present_pid(stopping_workers, 2)
        os.kill(stopped, signal.SIGSTOP)
        try:
            expect(page.get_by_role("alert")).to_contain_text("node 2 at 127.0.0.1:")
            name_the_silent(browser, base, topic)
        finally:
            os.kill(stopped, signal.SIGCONT)
        expect(page.get_by_role("alert")).to_be_hidden()
        before = lines.filter(has_text="node 1 ").all_inner_texts()
        os.kill(stopped, signal.SIGKILL)
        expect(lines.filter(has_text="The gateway on node 2 has started again.")).to_have_count(1)
        expect(page.get_by_role("alert")).to_be_hidden()
        after = lines.filter(has_text="node 1 ").all_inner_texts()
        assert after[-len(before) :] == before, "the lines of the other one go on, and do not come again"
        assert not window.errors


def name_the_silent(browser: Browser, base: str, topic: str) -> None:
    """Check that each page names the worker that stands still, and fits a telephone."""
    with watched(browser, base, size=NARROW) as window:
        for path in PAGES_OF_ALL:
            page = window.open(path.format(topic=topic))
            expect(
                page.get_by_text(re.compile(r"[Nn]ode 2 at 127\.0\.0\.1:\d+ gives no answer")).first
            ).to_be_visible()
            if path == "/producer-ids":
                expect(page.locator("tbody tr").filter(has_text="node-2").first).to_contain_text("not known")
            if "backlog" in path:
                expect(page.locator("tbody tr").filter(has_text="elsewhere").first).to_be_visible()
                assert nodes(page) == {"1", "–"}
            window.check()


# The list of producers, of which the idle ones come behind all others.

ACTIVE = (40_001, 40_003, 40_119)
PRODUCERS = range(40_000, 40_120)


def age(data_dir: Path, topic: str, *besides: int) -> None:
    """Let all other producers of a stopped gateway have written last before the strips begin."""
    for path in data_dir.rglob(f"{topic}-*/*.snapshot"):
        entries, end_offset = decode(path.read_bytes(), 5)
        for entry in entries:
            if entry.producer_id not in besides:
                entry.last_active_ms -= 2 * IDLE_MS
        path.write_bytes(encode(entries, end_offset))


def test_idle_producers_come_behind_all_others_on_all_pages(browser: Browser, tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as process:
        topic = fresh_topic(process.bootstrap, "orders", partitions=2)
        led = leaders(process.bootstrap, topic)
        assert len(set(led.values())) == 2, "each worker leads one"
        for number in PRODUCERS:
            assert send(led[number % 2], topic, number, 0, partition=number % 2)[0] == 0
        process.stop()
        age(process.data_dir, topic)
        process.start()
        led = leaders(process.bootstrap, topic)
        for number in ACTIVE:
            assert send(led[number % 2], topic, number, 1, partition=number % 2)[0] == 0
        (tmp_path / "process").mkdir()
        with (
            console_process(tmp_path / "process", process.bootstrap) as base,
            watched(browser, base) as window,
        ):
            pages = list(pages_of_producers(window, f"/producers?topic={topic}"))
    assert [len(page) for page in pages] == [ROWS, ROWS, len(PRODUCERS) - 2 * ROWS]
    idle = sorted((number for number in PRODUCERS if number not in ACTIVE), key=lambda each: (each % 2, each))
    assert [number for page in pages for number in page] == [*ACTIVE, *idle]


def pages_of_producers(window: Watched, path: str) -> Iterator[list[int]]:
    """Yield the ids on each page of the list."""
    page = window.open(path)
    while True:
        yield [int(found) for found in page.locator(".producers tbody th").all_inner_texts()]
        following = page.locator("a[rel=next]")
        if not following.count():
            return
        page = window.open(str(following.get_attribute("href")))


def test_strips_outlive_the_console(
    browser: Browser, stopping_workers: GatewayProcess, tmp_path: Path
) -> None:
    """Each worker has a producer that writes, repeats a batch, and goes on while no console runs."""
    topic = fresh_topic(stopping_workers.bootstrap, "strips", partitions=2)
    led = leaders(stopping_workers.bootstrap, topic)
    assert len(set(led.values())) == 2, "each worker leads one"
    ids = {partition: 50_000 + partition for partition in led}
    keys = {partition: f"{partition}/{producer_id}/{topic}" for partition, producer_id in ids.items()}
    history = ("--history", str(tmp_path / "history"))

    def write(first: int, count: int) -> None:
        for partition, producer_id in ids.items():
            code, _ = send(led[partition], topic, producer_id, first, count, partition=partition)
            assert code == 0

    def accepted(base: str) -> dict[str, list[tuple[int, int]]]:
        """Return the first and the last sequence of each event of the two producers."""
        with urllib.request.urlopen(f"{base}/api/producers/strips?topic={topic}") as answer:
            events = json.load(answer)["events"]
        return {
            key: [(event[2], event[3]) for event in of_key if event[1] == "accepted"]
            for key, of_key in events.items()
        }

    def has_seen(base: str, *sequences: tuple[int, int]) -> Callable[[], bool]:
        return lambda: all(set(sequences) <= set(accepted(base).get(key, ())) for key in keys.values())

    write(0, 3)
    with console_process(tmp_path, stopping_workers.bootstrap, *history) as base:
        await_true(has_all_rows(base, topic, 2), "both producers are watched", WAIT_S)
        write(3, 4)
        await_true(has_seen(base, (3, 6)), "the strips have what came", WAIT_S)
        write(3, 4)
        # a sample that follows is in the file, too
        before = len(figures(base, "gateways_counted"))
        await_true(lambda: len(figures(base, "gateways_counted")) > before, "a further sample", WAIT_S)
    write(7, 5)
    with (
        console_process(tmp_path, stopping_workers.bootstrap, *history) as base,
        watched(browser, base) as window,
    ):
        await_true(has_seen(base, (3, 6), (7, 11)), "the strips of the console before", WAIT_S)
        page = window.open(f"/producers?topic={topic}")
        for key in keys.values():
            strip = page.locator(f'.strip[data-key="{key}"]')
            expect(strip.locator(".mark-accepted").first).to_be_attached()
            expect(strip.locator(".mark-duplicate").first).to_be_attached()
        page.locator(".verdicts summary").first.click()
        expect(page.locator(".verdicts tbody tr").first).to_contain_text(re.compile(r"Told by node [12]\."))
        window.check()


def has_all_rows(base: str, topic: str, count: int) -> Callable[[], bool]:
    """Return whether the console has a time since which it watches each producer of a topic."""

    def ask() -> bool:
        with urllib.request.urlopen(f"{base}/api/producers/strips?topic={topic}") as answer:
            since = json.load(answer)["since"]
        return len(since) == count and None not in since.values()

    return ask
