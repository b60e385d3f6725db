"""The log in a browser: live lines, filters, a pause, folded tracebacks, and texts that try to be HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess
from tests.support.guarded_gateway import seqgate_apart
from tests.support.metrics_stub import MetricsStub, metrics_stub

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: <b>disk</b> full'


def line(number: int, level: str, message: str, error: str | None = None) -> dict[str, Any]:
    at = 1_700_000_000_000 + number * 1_000
    return {
        "number": number,
        "time_ms": at,
        "level": level,
        "logger": "seqgate.log",
        "message": message,
        "error": error,
    }


def lines() -> list[dict[str, Any]]:
    return [
        line(1, "INFO", "Seqgate 0.1.0 has started."),
        line(2, "DEBUG", "the round took 3 ms"),
        line(3, "WARNING", "<img src=x onerror=alert(1)> is no topic\n2026-01-01 ERROR fake"),
        line(4, "ERROR", "a flush of orders-0 has failed", TRACEBACK),
    ]


@pytest.fixture(scope="module")
def stub() -> Iterator[MetricsStub]:
    """A listener with lines of every level; a real gateway writes few."""
    with metrics_stub() as listener:
        yield listener


@pytest.fixture(autouse=True)
def fresh(stub: MetricsStub) -> None:
    stub.views["log-lines"] = {"lines": lines(), "kept": 1000}
    task = {"begun_ms": 1_700_000_000_000, "age_ms": 61_000, "done": 3, "total": 9, "failure": None}
    stub.views["tasks"] = {
        "tasks": [
            {**task, "number": 1, "name": "compaction of orders-0", "ended": True},
            {**task, "number": 2, "name": "sweep", "ended": True, "failure": "the disk is full"},
            {**task, "number": 3, "name": "sweep", "ended": False},
        ],
        "files_to_delete": 2,
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that tells people without a login nothing of itself, so that they see the listener's lines."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with GatewayProcess(tmp_path_factory.mktemp("console") / "data", settings=settings) as process:
        deny = ("acls", "add", "--deny-principal", "User:ANONYMOUS", "--cluster")
        rights = ("--operation", "describe", "--operation", "alter")
        seqgate_apart(*deny, *rights, "--data-dir", process.data_dir)
        yield process


@pytest.fixture(scope="module")
def base(
    gateway: GatewayProcess, stub: MetricsStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("process")
    with console_process(folder, gateway.bootstrap, "--metrics", stub.url) as address:
        yield address


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_log_and_the_tasks_are_without_faults(
    browser: Browser, base: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, base, dark=dark, size=size) as window:
        for name in ("logs", "logs/tasks"):
            page = window.open(f"/{name}")
            if name == "logs":
                expect(page.locator(".log li").first).to_be_visible()
                page.locator(".log summary").click()
                expect(page.locator(".log pre")).to_be_visible()
            window.check()
            window.picture(
                f"{name.replace('/', '-')}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}"
            )


def test_lines_come_live_and_are_filtered(window: Watched, stub: MetricsStub) -> None:
    page = window.open("/logs")
    rows = page.locator(".log li:visible")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("ERROR")
    expect(rows.first).to_contain_text("OSError: <b>disk</b> full")
    expect(page.locator(".log pre")).to_be_hidden()
    expect(rows.nth(1)).to_contain_text("<img src=x onerror=alert(1)> is no topic\\n2026-01-01 ERROR fake")
    page.get_by_label("At least").select_option("DEBUG")
    expect(rows).to_have_count(4)
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 5, "y": 400})
    page.keyboard.press("/")
    page.keyboard.type("flush")
    expect(rows).to_have_count(1)
    page.wait_for_url("**/logs?level=DEBUG&filter=flush")
    page.get_by_label("Text contains").fill("")
    stub.views["log-lines"] = {"lines": [line(5, "INFO", "one more line")], "kept": 1000}
    expect(rows.first).to_contain_text("one more line")
    window.check()


def test_a_pause_keeps_the_lines_still(window: Watched, stub: MetricsStub) -> None:
    window.page.clock.install()
    page = window.open("/logs?level=ERROR")
    rows = page.locator(".log li:visible")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    stub.views["log-lines"] = {"lines": [line(5, "ERROR", "behind the pause")], "kept": 1000}
    page.clock.run_for(10_000)
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Continue").click()
    expect(rows.first).to_contain_text("behind the pause")


def test_a_listener_that_ends_is_told_and_comes_back(window: Watched, stub: MetricsStub) -> None:
    page = window.open("/logs")
    expect(page.locator(".log li:visible")).to_have_count(3)
    del stub.views["log-lines"]
    expect(page.get_by_role("alert")).to_contain_text("there is no operation log-lines")
    stub.views["log-lines"] = {"lines": [], "kept": 1000, "started_ms": 7}
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_text("The gateway has started again.")).to_have_count(1)
