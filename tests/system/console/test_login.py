"""The login in a browser: by keyboard, refused with a sentence, and over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.chromium import Watched, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess, free_port
from tests.system.commands.conftest import seqgate


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console for a gateway with logins. Ask for it before `browser`, in whose event loop no command runs."""
    folder = tmp_path_factory.mktemp("guarded")
    add = ("users", "add", "ann", "--password-file", "-", "--data-dir", folder / "data")
    seqgate(*add, stdin=b"correct horse")
    port = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    listeners = (f"LOGIN://127.0.0.1:{port}",)
    with (
        GatewayProcess(folder / "data", settings=settings, also_listen=listeners),
        console_process(folder, f"127.0.0.1:{port}") as address,
    ):
        yield address


def test_a_person_logs_in_and_out(base: str, browser: Browser) -> None:
    with watched(browser, base) as window:
        page = window.open("/topics")
        expect(page.get_by_label("User")).to_be_focused()
        window.check()
        page.keyboard.type("ann")
        page.keyboard.press("Tab")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("ann")
        expect(page.get_by_label("Password")).to_be_focused()
        check_without_refusal(window)
        page.keyboard.type("correct horse")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
        expect(page.get_by_text("ann", exact=True)).to_be_visible()
        check_without_refusal(window)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def check_without_refusal(window: Watched) -> None:
    """Check a page; the browser's own line about a refused login (status 403) is expected."""
    window.errors[:] = [error for error in window.errors if "403" not in error]
    window.check()
