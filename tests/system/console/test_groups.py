"""Groups in a browser: their pages, the chart of the lag, and a reset by keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import AS_THE_PEER
from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.support.console_process import console_process
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.group_members import (
    commit_offsets,
    hold_offset,
    join_share_group,
    join_streams_group,
    member,
)
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic, next_producer_id, produce

PARTITIONS = 4


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with groups of all kinds."""
    settings = {**AS_THE_PEER, "seqgate.metrics.listener": f"127.0.0.1:{free_port()}"}
    with (
        GatewayProcess(tmp_path_factory.mktemp("groups") / "data", settings=settings) as process,
        ExitStack() as members,
    ):
        bootstrap = process.bootstrap
        for topic in ("orders", "returns", "parcels"):
            create_topic(bootstrap, topic, PARTITIONS)
            for partition in range(PARTITIONS):
                produce(bootstrap, topic, partition, next_producer_id(bootstrap), 0, 20 * (partition + 1))
        commit_offsets(bootstrap, "billing", "orders", {0: 4, 1: 12, 2: 30, 3: 80})
        commit_offsets(bootstrap, "billing", "returns", {0: 19, 1: 40})
        commit_offsets(bootstrap, "archive", "parcels", {0: 20, 1: 40})
        commit_offsets(bootstrap, "<b>bold</b>\u202eevil", "parcels", {0: 5})
        for protocol, group in (("classic", "shop-floor"), ("consumer", "warehouse")):
            commit_offsets(bootstrap, group, "orders", {0: 4, 1: 12, 2: 30, 3: 80})
            members.enter_context(
                member(bootstrap, group, "orders", protocol=protocol, client_id=f"{group}-1")
            )
        share, streams, transaction = (members.enter_context(Wire(bootstrap)) for _ in range(3))
        join_share_group(share, "desks", "orders", "desk-1")
        join_streams_group(streams, "word-count", "returns", "app-1")
        hold_offset(transaction, "till-7", "billing", "orders", 9)
        yield process


@pytest.fixture(scope="module")
def base(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("process")
    metrics = f"http://{gateway.settings['seqgate.metrics.listener']}"
    with console_process(folder, gateway.bootstrap, "--metrics", metrics) as address:
        yield address


LOOKS = {
    "groups": "/groups",
    "group": "/groups/view?group=billing",
    "group-members": "/groups/view?group=warehouse",
    "group-streams": "/groups/view?group=word-count",
    "group-share": "/groups/view?group=desks",
    "group-reset": "/groups/reset?group=billing&target=earliest",
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pages_of_groups_are_without_faults(
    browser: Browser, base: str, name: str, dark: bool, size: tuple[int, int]
) -> None:
    with watched(browser, base, dark=dark, size=size) as window:
        page = window.open(LOOKS[name])
        expect(page.locator("h1")).to_be_visible()
        for chart in page.locator(".chart").all():
            expect(chart.locator("canvas")).to_be_visible()
        window.check()
        window.picture(f"{name}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}")


def test_the_lag_is_drawn_over_time(window: Watched) -> None:
    page = window.open("/groups/view?group=archive")
    expect(page.locator(".chart-now")).to_have_text("0", timeout=120_000)


def test_links_lead_from_a_topic_to_its_groups_and_on_to_records(window: Watched) -> None:
    page = window.open("/groups?topic=returns")
    page.get_by_role("link", name="billing").click()
    link = page.get_by_role("link", name="Records of orders-0")
    expect(link).to_have_attribute("href", "/records/orders?partition=0&offset=4")


def test_a_reset_by_keyboard_only(window: Watched) -> None:
    page = window.open("/groups")
    keys = page.keyboard
    keys.press("/")
    keys.type("archive")
    keys.press("Enter")
    expect(page.get_by_role("link", name="billing")).to_have_count(0)
    page.get_by_role("link", name="archive").focus()
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Group archive")).to_be_visible()
    page.get_by_role("link", name="Reset offsets").focus()
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Reset offsets of group archive")).to_be_visible()
    window.settle()
    keys.press("/")
    target = page.get_by_label("Move the group to")
    expect(target).to_be_focused()
    while target.input_value() != "offset":
        before = target.input_value()
        keys.press("ArrowDown")
        expect(target).not_to_have_value(before)
    keys.press("Tab")
    expect(page.get_by_label("Offset", exact=True)).to_be_focused()
    keys.type("7")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    expect(page.get_by_role("row", name="parcels 1 40 7 33 0 0 40")).to_be_visible()
    page.get_by_role("button", name="Reset these offsets").focus()
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Reset the offsets of group archive?")).to_be_visible()
    window.check()
    window.picture("group-reset-confirmation")
    page.get_by_role("button", name="Reset the offsets").focus()
    keys.press("Enter")
    expect(page.locator(".notice")).to_have_text(
        "The offsets of group archive in 2 partitions are committed."
    )


def test_a_time_is_one_of_the_browsers_zone(window: Watched) -> None:
    page = window.open("/groups/reset?group=billing")
    page.get_by_label("Move the group to").select_option("time")
    page.get_by_label("Time, in this browser's zone").fill("2026-01-31T13:45")
    page.get_by_role("button", name="Show the preview").click()
    page.wait_for_url("**at_ms=1769863500000**")
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()


def test_a_name_that_can_not_be_typed_needs_another_word(window: Watched) -> None:
    page = window.open("/groups?filter=bold")
    page.get_by_role("link", name="bold").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_label("Type delete to confirm")).to_be_visible()
    window.check()
