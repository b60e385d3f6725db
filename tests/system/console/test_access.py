"""Users, access control entries and quotas in a browser, with a login."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.support.console_process import console_process
from tests.support.guarded_gateway import PASSWORD, Guarded, guarded_gateway, seqgate_apart


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A gateway with logins, some entries and some quotas."""
    with guarded_gateway(tmp_path_factory.mktemp("access")) as gateway:
        place = ("--bootstrap", gateway.process.bootstrap)
        seqgate_apart(
            "acls",
            "add",
            "--allow-principal",
            "User:bob",
            "--consumer",
            "--topic",
            "orders",
            "--group",
            "desk",
            *place,
        )
        seqgate_apart(
            "acls", "add", "--deny-principal", "User:*", "--operation", "delete", "--topic", "orders", *place
        )
        seqgate_apart(
            "quotas", "set", "producer_byte_rate=1048576", "request_percentage=50", "--user", "bob", *place
        )
        seqgate_apart("quotas", "set", "connection_creation_rate=20", "--default-ip", *place)
        yield gateway


@pytest.fixture(scope="module")
def base(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with console_process(tmp_path_factory.mktemp("process"), guarded.login) as address:
        yield address


def log_in(window: Watched, path: str) -> Page:
    page = window.open(path)
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


LOOKS = {
    "users": "/access/users",
    "user-password": "/access/users/password?user=bob",
    "acls": "/access/acls",
    "acls-add": "/access/acls/add",
    "quotas": "/access/quotas",
    "quota-edit": "/access/quotas/edit?user-is=named&user=bob",
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pages_of_access_are_without_faults(
    browser: Browser, base: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, base, dark=dark, size=size) as window:
        page = log_in(window, "/access/users")
        for name, path in LOOKS.items():
            window.open(path)
            expect(page.locator("h1")).to_be_visible()
            window.check()
            window.picture(f"{name}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}")


def test_a_made_password_lets_the_new_user_in(browser: Browser, base: str) -> None:
    with watched(browser, base) as window:
        page = log_in(window, "/access/users")
        page.get_by_label("New user").fill("carl")
        page.get_by_role("button", name="Add").click()
        page.get_by_role("button", name="Make a password").click()
        field = page.get_by_label("Password")
        expect(field).to_have_attribute("type", "text")
        made = field.input_value()
        assert len(made) == 24
        page.get_by_role("button", name="Hide").click()
        expect(field).to_have_attribute("type", "password")
        window.check()
        page.get_by_role("button", name="Add the user").click()
        expect(page.locator(".notice.good")).to_contain_text("User carl can log in")
        assert made not in page.content()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("User").fill("carl")
        page.get_by_label("Password").fill(made)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator(".user")).to_have_text("carl")


def test_an_entry_is_added_by_keyboard_and_shown(browser: Browser, base: str) -> None:
    with watched(browser, base) as window:
        page = log_in(window, "/access/acls")
        page.get_by_role("link", name="Add entries").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Add access control entries")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("User:dora")
        page.locator("select[name=role]").focus()
        page.keyboard.type("single")
        page.locator("select[name=kind]").focus()
        page.keyboard.type("cluster")
        expect(page.get_by_label("TWO_PHASE_COMMIT")).to_be_hidden()
        page.get_by_label("IDEMPOTENT_WRITE").focus()
        page.keyboard.press("Space")
        window.check()
        window.picture("acls-add-single")
        page.get_by_role("button", name="Add").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("rowheader")).to_have_text(
            "User:dora may IDEMPOTENT_WRITE cluster kafka-cluster from *"
        )
        window.check()
        page.get_by_role("button", name="Add").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".notice.good")).to_have_text("1 entry is added.")


def test_a_quota_is_changed(browser: Browser, base: str) -> None:
    with watched(browser, base) as window:
        page = log_in(window, "/access/quotas")
        page.get_by_role("link", name="Change the quotas of user bob").click()
        page.get_by_label("request_percentage").fill("75")
        page.get_by_role("button", name="Set").click()
        expect(page.get_by_role("row", name="request_percentage 50 75")).to_be_visible()
        window.check()
        window.picture("quota-confirmation")
        page.get_by_role("button", name="Change the quotas").click()
        expect(page.locator(".notice.good")).to_have_text("The quotas of user bob are changed.")
