"""What every page of the console has: navigation, keys, colours, times, and no fault that axe-core knows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from seqgate.gateway.console.pages import PAGES
from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.tiers import in_tiers

LOOKS = [(WIDE, False), (NARROW, True), (WIDE, True), (NARROW, False)]
LOOK_NAMES = ["wide-light", "narrow-dark", "wide-dark", "narrow-light"]


@pytest.mark.parametrize("path", [page.path for page in PAGES])
@pytest.mark.parametrize(("size", "dark"), in_tiers(LOOKS, nightly=LOOKS[2:]), ids=LOOK_NAMES)
def test_each_page_is_without_faults(
    browser: Browser, base: str, path: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, base, dark=dark, size=size) as window:
        page = window.open(path)
        expect(page.locator("h1")).to_be_visible()
        window.check()


def test_keys_open_pages_and_the_list_of_keys(window: Watched) -> None:
    page = window.open("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Name contains")).to_be_focused()


def test_one_key_searches_everything(window: Watched) -> None:
    page = window.open("/")
    page.keyboard.press("s")
    expect(page.get_by_role("searchbox", name="Search everything")).to_be_focused()
    page.keyboard.type("no-such-thing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Search", exact=True)).to_be_visible()
    expect(page.get_by_text("Nothing that you may see has this in its name")).to_be_visible()
    window.check()


def test_the_first_tab_skips_to_the_content(window: Watched) -> None:
    page = window.open("/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_colours_stay_as_chosen(window: Watched) -> None:
    page = window.open("/topics")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    button = page.get_by_role("button", name="Colours")
    button.click()
    button.click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


def test_a_button_opens_the_navigation_on_a_narrow_window(browser: Browser, base: str) -> None:
    with watched(browser, base, size=NARROW) as window:
        page = window.open("/")
        expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Topics", exact=True).first.click()
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
