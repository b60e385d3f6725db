"""Records in a browser: browsed, followed live, read in the reader's zone, and never run as script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kafka import KafkaProducer
from playwright.sync_api import Browser, expect

from tests.support.chromium import NARROW, Watched, watched
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

HOSTILE = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">"
NOTE_WORDS = """(button) => {
    const note = () => document.body.dataset.said = `${document.body.dataset.said ?? ""}${button.textContent}\n`;
    new MutationObserver(note).observe(button, {childList: true});
}"""
"""Notes what a button says, each for two seconds only."""
NOON_MS = 1_767_268_800_000
"""2026-01-01 12:00:00 in UTC."""


@pytest.fixture(scope="module")
def producer(gateway: GatewayProcess) -> Iterator[KafkaProducer]:
    for topic in ("orders", "hostile", "live", "none"):
        seqgate("topics", "create", topic, "--partitions", "2", "--bootstrap", gateway.bootstrap)
    made = KafkaProducer(bootstrap_servers=[gateway.bootstrap])
    for number in range(200):
        value = {"order": number, "note": "größe", "total": number * 1.5}
        made.send(
            "orders",
            json.dumps(value, ensure_ascii=False).encode(),
            key=f"c-{number}".encode(),
            partition=0,
            timestamp_ms=NOON_MS + number * 1000,
        )
    made.send("hostile", HOSTILE, key=HOSTILE, headers=[(HOSTILE.decode(), HOSTILE)], partition=0)
    made.flush()
    yield made
    made.close()


def test_records_are_browsed_page_by_page(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/orders")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text('"order":199')
    window.check()
    window.picture("records")
    page.get_by_role("link", name="Older").first.click()
    expect(rows.first).to_contain_text('"order":149')
    page.get_by_role("link", name="Newer").first.click()
    expect(page.locator("tbody")).to_contain_text('"order":199')
    page.get_by_role("searchbox", name="Text").fill("c-17")
    page.get_by_role("combobox", name="In", exact=True).select_option("key")
    page.get_by_role("searchbox", name="Text").press("Enter")
    expect(rows).to_have_count(11)


def test_times_are_those_of_the_reader(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/orders?from=oldest")
    expect(page.locator("tbody tr").first).to_contain_text("2026-01-01 13:00:00.000")
    page.get_by_label("Show").select_option("time")
    page.get_by_label("Time", exact=True).fill("2026-01-01 13:01:00")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr").first).to_contain_text('"order":60')
    assert "time=2026-01-01T12%3A01%3A00.000Z" in page.url
    window.check()


def test_a_record_opens_with_its_producer(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/orders?from=offset&offset=5&partition=0")
    page.get_by_role("link", name="5", exact=True).click()
    expect(page.get_by_role("heading", name="Record orders 0:5")).to_be_visible()
    expect(page.locator("pre").nth(1)).to_contain_text('"order": 5')
    expect(page.get_by_text("Sequence")).to_be_visible()
    page.get_by_role("link", name="Show as hex").last.click()
    expect(page.locator("pre").nth(1)).to_contain_text("00000000  7b 22")
    window.check()
    window.picture("record")


def test_a_row_opens_in_its_place(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/orders?from=offset&offset=5&partition=0")
    expect(page.locator("[data-island=records]")).to_have_attribute("data-started", "yes")
    page.get_by_role("button", name="Open record 0:5 here").press("Enter")
    opened = page.locator("tr.opened")
    expect(opened.locator(".json-name").first).to_have_text('"order"')
    button = opened.get_by_role("button", name="Copy the value")
    button.evaluate(NOTE_WORDS)
    button.click()
    expect(page.locator("body")).to_have_attribute("data-said", re.compile("^(Copied|Press)", re.MULTILINE))
    window.check()
    window.picture("records-open")
    page.get_by_role("button", name="Open record 0:5 here").press("Enter")
    expect(opened).to_have_count(0)


def test_hits_come_as_they_are_found(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/orders?filter=%22order%22&rows=50")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Continue").click()
    expect(rows).to_have_count(100)
    window.check()
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON", exact=True).click()
    assert len(json.loads(download.value.path().read_bytes())) == 200


def test_contents_never_run_as_script(window: Watched, producer: KafkaProducer) -> None:
    for path in ("/records/hostile", "/records/hostile/0/0", "/records/hostile?filter=%3Cscript%3E"):
        page = window.open(path)
        window.check()
        assert "owned" not in page.title()


def test_records_arrive_live(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/live?from=live")
    with page.expect_response(lambda answer: "/api/records/live/tail" in answer.url):
        pass
    producer.send("live", HOSTILE, key=b"\x00\x01", partition=1).get(10)
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("<script>")
    expect(row).to_contain_text("00 01")
    expect(page.get_by_text("1 record has arrived.")).to_be_visible()
    window.check()
    assert "owned" not in page.title()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def test_a_record_is_produced(window: Watched, producer: KafkaProducer) -> None:
    page = window.open("/records/none")
    page.get_by_role("link", name="Produce a record").last.click()
    page.get_by_label("Value", exact=True).fill('{"hello": 1}')
    page.get_by_label("Headers").fill("trace: 1")
    window.check()
    page.get_by_role("button", name="Produce…").click()
    page.get_by_role("button", name="Produce the record").click()
    expect(page.get_by_role("status")).to_contain_text("The record is stored in partition")
    expect(page.locator("pre").last).to_contain_text('"hello": 1')


def test_records_with_an_avro_schema_are_a_link(window: Watched, producer: KafkaProducer) -> None:
    producer.send("none", b"\x0a", key=b"avro").get(10)
    page = window.open("/records/none?filter=avro")
    page.get_by_role("link", name="Avro or Protobuf…").click()
    page.get_by_label("pasted").fill('"long"')
    window.check()
    page.get_by_role("button", name="Show the records").click()
    expect(page.locator("tbody tr").filter(has_text="avro").locator("td.value")).to_have_text("5")


def test_records_on_a_narrow_dark_window(browser: Browser, base: str, producer: KafkaProducer) -> None:
    with watched(browser, base, dark=True, size=NARROW) as window:
        for path in ("/records/orders", "/records/orders/0/3", "/records/orders/schema"):
            window.open(path)
            window.check()
