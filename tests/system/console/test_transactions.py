"""Transactions in the browser: what they look like, and an abort with the keyboard only."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.compat.topics import fresh_topic
from tests.support.chromium import NARROW, WIDE, watched
from tests.support.gateway_process import GatewayProcess
from tests.support.producing import begun, open_transaction, send

NAUGHTY = "<img src=x onerror=alert(1)>\u202e'\""


@pytest.fixture(scope="module")
def topic(measured_gateway: GatewayProcess) -> str:
    """A topic with open, overdue and hanging transactions."""
    bootstrap = measured_gateway.bootstrap
    name = fresh_topic(bootstrap, "orders", partitions=2)
    open_transaction(bootstrap, "billing-7", name, 0, 1)
    open_transaction(bootstrap, NAUGHTY, name, 1, timeout_ms=1)
    hanging, _ = begun(bootstrap, None)
    assert send(bootstrap, name, hanging, 0, transactional_id="gone")[0] == 0
    return name


@pytest.mark.parametrize(
    ("dark", "size"), [(False, WIDE), (True, WIDE), (False, NARROW)], ids=["light", "dark", "narrow"]
)
def test_the_pages_are_without_faults(
    browser: Browser, measured: str, topic: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, measured, dark=dark, size=size) as window:
        for name, path in {
            "transactions": "/transactions",
            "transaction": "/transactions/one?id=billing-7",
            "transactions-hanging": f"/transactions/hanging?topic={topic}",
        }.items():
            page = window.open(path)
            expect(page.locator("h1")).to_be_visible()
            window.check()
            window.picture(f"{name}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}")
        page = window.open("/transactions/one?id=billing-7")
        page.get_by_role("button", name="Abort the transaction").click()
        expect(page.get_by_role("heading", name="Abort the transaction of billing-7?")).to_be_visible()
        window.check()
        window.picture(f"abort{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}")


def tab_to(page: Page, role: str, name: str) -> None:
    """Press Tab until this element has the focus."""
    wanted = page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
    expect(wanted).to_be_visible()
    for _ in range(80):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to the {role} {name}")


def test_an_abort_with_the_keyboard_only(
    browser: Browser, measured: str, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id, epoch = open_transaction(measured_gateway.bootstrap, "by-keys", topic, 0)
    with watched(browser, measured) as window:
        page = window.open("/")
        page.keyboard.press("g")
        page.keyboard.press("x")
        expect(page.get_by_role("heading", name="Transactions", exact=True)).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("by-k.*")
        page.keyboard.press("Enter")
        tab_to(page, "link", "by-keys")
        page.keyboard.press("Enter")
        tab_to(page, "button", "Abort the transaction")
        page.keyboard.press("Enter")
        tab_to(page, "textbox", "Type by-keys to confirm")
        page.keyboard.type("by-keys")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text(
            "The transaction of by-keys is aborted in 1 partition"
        )
        window.check()
    late = send(measured_gateway.bootstrap, topic, producer_id, 1, epoch=epoch, transactional_id="by-keys")
    assert late[0] != 0


def test_names_of_strangers_stay_text(browser: Browser, measured: str, topic: str) -> None:
    with watched(browser, measured) as window:
        page = window.open("/transactions")
        page.get_by_role("link", name="<img src=x").click()
        expect(page.locator("h1")).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.locator("main img").count() == 0
        window.check()
