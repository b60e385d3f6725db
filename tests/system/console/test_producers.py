"""The strips of producers and the map of their ids, as people see and use them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.compat.topics import fresh_topic
from tests.support.chromium import NARROW, WIDE, Watched, watched
from tests.support.gateway_process import GatewayProcess
from tests.support.group_members import commit_offsets
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.producing import INVALID_EPOCH, OUT_OF_ORDER, begun, open_transaction, send
from tests.system.commands.conftest import seqgate

NAUGHTY = '<script>alert("1")</script>'
LOOKS = [(False, WIDE), (True, WIDE), (False, NARROW)]
NAMES = ["light", "dark", "narrow"]


class Busy:
    """A topic with a producer that writes, repeats and skips whenever a test says so."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.bootstrap = gateway.bootstrap
        self.topic = fresh_topic(gateway.bootstrap, "orders", partitions=2)
        self.producer_id, _ = begun(gateway.bootstrap, None)
        self.next = 0

    def write(self, count: int) -> None:
        assert send(self.bootstrap, self.topic, self.producer_id, self.next, count)[0] == 0
        self.next += count

    def repeat(self, count: int) -> None:
        assert send(self.bootstrap, self.topic, self.producer_id, self.next - count, count)[0] == 0

    def skip(self) -> None:
        assert send(self.bootstrap, self.topic, self.producer_id, self.next + 40)[0] == OUT_OF_ORDER


@pytest.fixture(scope="module")
def busy(measured_gateway: GatewayProcess) -> Busy:
    found = Busy(measured_gateway)
    found.write(3)
    found.repeat(3)
    found.skip()
    fenced, _ = begun(found.bootstrap, None)
    assert send(found.bootstrap, found.topic, fenced, 0, epoch=1)[0] == 0
    assert send(found.bootstrap, found.topic, fenced, 1)[0] == INVALID_EPOCH
    open_transaction(found.bootstrap, NAUGHTY, found.topic, 0, 1)
    here = ("--data-dir", measured_gateway.data_dir)
    seqgate("pids", "claim", "30", "--owner", NAUGHTY, "--yes", *here)
    seqgate("pids", "move", "200", "--yes", *here)
    seqgate("pids", "claim", "9", "--owner", "loader", "--yes", *here)
    ledger = fresh_topic(found.bootstrap, "ledger", configs=DEDUPLICATED)
    assert send(found.bootstrap, ledger, -1, -1, batch=named(NAUGHTY, 1))[0] == 0
    fresh_topic(
        found.bootstrap, "tight", configs={"backlog.quota.bytes": "1000", "delivery.delay.header": "due"}
    )
    return found


def key_of(busy: Busy) -> str:
    return f"0/{busy.producer_id}/{busy.topic}"


@pytest.mark.parametrize(("dark", "size"), LOOKS, ids=NAMES)
def test_the_pages_are_without_faults(
    browser: Browser, measured: str, busy: Busy, dark: bool, size: tuple[int, int]
) -> None:
    paths = {
        "producers": f"/producers?topic={busy.topic}&partition=0",
        "producer": f"/producers/one?topic={busy.topic}&partition=0&id={busy.producer_id}",
        "producer-ids": "/producer-ids",
        "producer-id": f"/producer-ids?id={busy.producer_id}",
        "names": "/names",
        "backlog": "/backlog",
        "delayed": "/delayed",
    }
    with watched(browser, measured, dark=dark, size=size) as window:
        for name, path in paths.items():
            page = window.open(path)
            expect(page.locator("h1")).to_be_visible()
            if name in {"producers", "producer"}:
                expect(page.locator(".strip svg").first).to_be_attached()
                expect(
                    page.locator(f'.strip[data-key="{key_of(busy)}"] .mark-refused').first
                ).to_be_attached()
            window.check()
            window.picture(f"{name}{'-dark' if dark else ''}{'-narrow' if size == NARROW else ''}")


def test_a_strip_follows_what_the_producer_does(browser: Browser, measured: str, busy: Busy) -> None:
    with watched(browser, measured) as window:
        page = window.open(f"/producers?topic={busy.topic}&partition=0")
        key = key_of(busy)
        expect(page.locator(f'.strip[data-key="{key}"] .mark-duplicate').first).to_be_attached()
        expect(page.locator(f'.strip[data-key="{key}"] .mark-unwatched').first).to_be_attached()
        sampled = page.locator(f'.strip[data-key="{key}"] .mark-accepted')
        row = page.locator(f'[data-row="{key}"]')
        while not sampled.count():
            busy.write(5)
            expect(row.locator('[data-live="sequence"]')).to_have_text(str(busy.next - 1))
        busy.skip()
        expect(page.locator(".verdicts tbody tr").first).to_contain_text("OUT_OF_ORDER_SEQUENCE_NUMBER")
        expect(page.locator(".verdicts tbody tr").first).to_contain_text("wire")
        page.locator(".verdicts tbody tr").first.locator("summary").click()
        expect(page.locator(".verdicts tbody tr").first).to_contain_text("a batch in between is missing")
        window.check()


FILLED_TWICE = """async () => {
  const { fillEvents } = await import("/static/strip-table.js");
  const body = document.createElement("table").createTBody();
  const events = Array.from({ length: 300 }, (_, last) => (
    { time: last, kind: "accepted", first: last, last, records: 1, offset: last, epoch: 0, outcome: null }
  ));
  const newest = () => body.rows[0].cells[2].textContent;
  fillEvents(body, events);
  const before = [body.rows.length, newest(), body.rows[0]];
  fillEvents(body, events);
  const stays = body.rows[0] === before[2];
  fillEvents(body, [...events.slice(1), { ...events[299], time: 300, first: 300, last: 300 }]);
  return [before[0], before[1], stays, body.rows.length, newest()];
}"""


def test_the_table_of_events_follows_when_it_is_full(browser: Browser, measured: str) -> None:
    with watched(browser, measured) as window:
        found = window.open("/producers").evaluate(FILLED_TWICE)
        assert found == [300, "299–299", True, 300, "300–300"]


def test_keys_tell_the_cells_of_a_strip(browser: Browser, measured: str, busy: Busy) -> None:
    with watched(browser, measured) as window:
        page = window.open(f"/producers/one?topic={busy.topic}&partition=0&id={busy.producer_id}")
        strip = page.get_by_role("slider", name="The newest 15 minutes")
        expect(strip.locator(".mark-refused").first).to_be_attached()
        strip.focus()
        expect(strip).to_have_attribute(
            "aria-valuetext", re.compile("Duplicate: sequences 0–2, the original is at offset 0|Refused")
        )
        expect(page.locator(".strip-tip")).to_be_visible()
        page.keyboard.press("Home")
        expect(strip).to_have_attribute("aria-valuenow", "0")
        page.keyboard.press("ArrowRight")
        expect(strip).to_have_attribute("aria-valuenow", "1")
        page.keyboard.press("PageDown")
        expect(page.locator(".strip-tip")).to_contain_text(re.compile("Duplicate|Refused with"))
        page.keyboard.press("Escape")
        expect(page.locator(".strip-tip")).to_be_hidden()
        strip.hover(position={"x": 5, "y": 20})
        expect(page.locator(".strip-tip")).to_contain_text("The console did not watch.")
        page.get_by_text("The same as a table").click()
        expect(page.locator("#events")).to_contain_text("◆ duplicate")
        expect(page.locator("#events")).to_contain_text("✕ refused with OUT_OF_ORDER_SEQUENCE_NUMBER")
        window.check()


def test_the_map_of_ids_zooms_and_finds_a_block(browser: Browser, measured: str, busy: Busy) -> None:
    with watched(browser, measured) as window:
        page = window.open("/producer-ids")
        expect(page.locator(".map-legend")).to_contain_text(NAUGHTY)
        page.keyboard.press("/")
        page.keyboard.type(str(busy.producer_id))
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("is in the block")
        expect(page.locator(".map-sought")).to_be_attached()
        page.get_by_role("link", name="All blocks").click()
        expect(page.get_by_text("which are never handed out").first).to_be_visible()
        window.check()


def test_without_metrics_pages_say_what_to_do(gateway: GatewayProcess, window: Watched) -> None:
    commit_offsets(gateway.bootstrap, "billing", fresh_topic(gateway.bootstrap, "orders"), {0: 0})
    page = window.open("/groups/view?group=billing")
    expect(page.get_by_text("--metrics http://127.0.0.1:9644")).to_be_visible()
    window.check()


def test_a_page_says_when_it_does_not_change_any_more(browser: Browser, measured: str, busy: Busy) -> None:
    with watched(browser, measured) as window:
        page = window.open(f"/producers?topic={busy.topic}&partition=0")
        page.route(
            "**/api/**", lambda route: route.fulfill(status=400, json={"error": "<b>the gateway rests</b>"})
        )
        notice = page.get_by_text("This part does not change now: <b>the gateway rests</b>")
        expect(notice).to_have_count(2)
        page.unroute_all()
        expect(notice).to_have_count(0)
