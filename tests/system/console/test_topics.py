"""Topics in a browser: created, changed and deleted by keyboard and mouse, each after a question."""

from __future__ import annotations

from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.chromium import NARROW, Watched, watched
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


def create(gateway: GatewayProcess, topic: str, partitions: int = 1) -> None:
    seqgate("topics", "create", topic, "--partitions", str(partitions), "--bootstrap", gateway.bootstrap)


def test_a_topic_is_created(window: Watched) -> None:
    page = window.open("/topics")
    page.get_by_role("link", name="Create a topic").click()
    window.check()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Partitions").fill("6")
    page.get_by_role("button", name="Create…").click()
    expect(page.get_by_role("heading", name="Create topic orders?")).to_be_visible()
    window.check()
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Topic orders is created.")).to_be_visible()
    expect(page.locator(".scroll tbody tr")).to_have_count(6)
    window.check()
    window.picture("topic")


def test_a_setting_is_edited_in_its_place(window: Watched, gateway: GatewayProcess) -> None:
    create(gateway, "edited")
    page = window.open("/topics/edited/settings?filter=retention.ms")
    row = page.get_by_role("row").filter(has_text="Age at which segments are deleted")
    row.get_by_text("Change", exact=True).press("Enter")
    row.get_by_label("New value").fill("60000")
    window.check()
    row.get_by_role("button", name="Set…").click()
    expect(page.get_by_role("row").filter(has_text="604800000")).to_contain_text("60000")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_contain_text("is 60000")
    window.check()


def test_a_topic_is_deleted_only_by_its_name(window: Watched, gateway: GatewayProcess) -> None:
    create(gateway, "doomed")
    page = window.open("/topics/doomed")
    page.get_by_role("button", name="Delete…").click()
    window.check()
    page.get_by_label("to confirm").fill("doome")
    page.get_by_role("button", name="Delete the topic").click()
    expect(page.get_by_role("heading", name="Delete topic doomed?")).to_be_visible()
    page.get_by_label("to confirm").fill("doomed")
    page.get_by_label("to confirm").press("Enter")
    expect(page.get_by_role("status")).to_have_text("Topic doomed is deleted.")


def test_a_filtered_and_sorted_list_is_a_link(window: Watched, gateway: GatewayProcess) -> None:
    create(gateway, "list-a", 2)
    create(gateway, "list-b", 4)
    page = window.open("/topics")
    page.get_by_label("Name contains").fill("list-")
    page.get_by_label("Name contains").press("Enter")
    page.get_by_role("link", name="Partitions").click()
    page.get_by_role("link", name="Partitions").click()
    expect(names(page)).to_have_text(["list-b", "list-a"])
    again = page.url.partition("//")[2].partition("/")[2]
    expect(names(window.open(f"/{again}"))).to_have_text(["list-b", "list-a"])
    window.check()


def names(page: Page) -> Locator:
    return page.locator("tbody th a")


def test_pages_of_a_topic_on_a_narrow_window(browser: Browser, base: str, gateway: GatewayProcess) -> None:
    create(gateway, "narrow", 3)
    with watched(browser, base, dark=True, size=NARROW) as window:
        for path in (
            "/topics/narrow",
            "/topics/narrow/settings",
            "/records/narrow",
            "/records/narrow/produce",
        ):
            window.open(path)
            window.check()
