"""Every page of the console with data: on a telephone nothing is off the screen, and each row of a table is a
card whose cells say what they are; and an operator's questions are answered in as many clicks as the
comparison in docs/console.md says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Locator, Page, expect

from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import clients_of
from seqgate.gateway.console.page import Get
from seqgate.gateway.console.pages import PAGES
from tests.support.chromium import NARROW, Watched, layout_faults, watched
from tests.support.console_process import console_process
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import REPOSITORY, GatewayProcess, free_port
from tests.support.group_members import (
    commit_offsets,
    hold_offset,
    join_share_group,
    join_streams_group,
    member,
)
from tests.support.guarded_gateway import guarded_gateway, seqgate_apart
from tests.support.named_batches import DEDUPLICATED, named
from tests.support.producing import INVALID_EPOCH, OUT_OF_ORDER, begun, open_transaction, send
from tests.support.wire import Wire
from tests.system.commands.clients import create_topic

NEVER_MS = str(2**31 - 1)
TOPIC = "payments.settlement.europe-west.customer-notifications-v2"
UNBROKEN = "x" * 249
"""The longest name of a topic, without a place to break."""
GROUP = "notification-fan-out-europe-west-consumer-blue"
SHARED, STREAMS = "shipping-desks", "word-count"
TRANSACTION = "notification-fan-out-europe-west-task-0_17-producer"
DEDUPLICATING = "ledger.entries"
CLIENT = "checkout-service-7f9c6d5b48-x2lqp"
CLIENT_METRICS = 16
"""Kafka's code of the resource type of subscriptions to client metrics."""
ORDER = {
    "order": 4711,
    "customer": {"id": "5f0c2f7e-6f8e-4d55-9d0a-6f1f0c4a8f7b", "name": "Größe & Söhne GmbH", "vip": True},
    "lines": [{"sku": f"SKU-{number:06}", "count": number, "price": 12.5 * number} for number in range(1, 9)],
    "note": "deliver to the second door, " * 6,
}


def write_records(bootstrap: str) -> None:
    """Produce long JSON with long keys and headers, and one record without a place to break."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": CLIENT, "enable.idempotence": True})
    for number in range(120):
        producer.produce(
            TOPIC,
            json.dumps({**ORDER, "order": number}, ensure_ascii=False),
            key=f"customer/5f0c2f7e-6f8e-4d55-9d0a-6f1f0c4a8f7b/order/{number}",
            partition=number % 3,
            headers=[("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
        )
        producer.produce(UNBROKEN, "y" * 600, key="z" * 200)
    assert producer.flush(60) == 0


def write_groups(bootstrap: str, stack: ExitStack) -> None:
    """Leave groups of all kinds, with lag, members and offsets that an open transaction holds."""
    commit_offsets(bootstrap, GROUP, TOPIC, {0: 4, 1: 12, 2: 40})
    commit_offsets(bootstrap, "billing", UNBROKEN, {0: 100})
    for protocol, group in (("classic", "shop-floor"), ("consumer", "warehouse")):
        commit_offsets(bootstrap, group, TOPIC, {0: 4, 1: 12, 2: 30})
        stack.enter_context(member(bootstrap, group, TOPIC, protocol=protocol, client_id=f"{CLIENT}-{group}"))
    share, streams, transaction = (stack.enter_context(Wire(bootstrap)) for _ in range(3))
    join_share_group(share, SHARED, TOPIC, "desk-1")
    join_streams_group(streams, STREAMS, TOPIC, "app-1")
    hold_offset(transaction, "till-7", GROUP, TOPIC, 9)


def write_troubles(bootstrap: str) -> int:
    """Leave duplicates, refused batches, open and hanging transactions and producer names; return a producer."""
    producer_id, _ = begun(bootstrap, None)
    for first in (0, 0, 3):
        assert send(bootstrap, TOPIC, producer_id, first, 3)[0] == 0
    assert send(bootstrap, TOPIC, producer_id, 46)[0] == OUT_OF_ORDER
    fenced, _ = begun(bootstrap, None)
    assert send(bootstrap, TOPIC, fenced, 0, epoch=1)[0] == 0
    assert send(bootstrap, TOPIC, fenced, 1)[0] == INVALID_EPOCH
    open_transaction(bootstrap, TRANSACTION, TOPIC, 0, 1)
    open_transaction(bootstrap, "overdue", TOPIC, 2, timeout_ms=1)
    hanging, _ = begun(bootstrap, None)
    assert send(bootstrap, TOPIC, hanging, 0, transactional_id="gone")[0] == 0
    assert send(bootstrap, DEDUPLICATING, -1, -1, batch=named(f"{CLIENT}/partition-0", 1, 2))[0] == 0
    return producer_id


def subscribe_to_client_metrics(bootstrap: str, listener: MetricsClient, stack: ExitStack) -> None:
    """Have a librdkafka push its metrics."""
    configs = [
        {"name": name, "config_operation": 0, "value": value}
        for name, value in (("metrics", "*"), ("interval.ms", "100"))
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": configs}
    with Wire(bootstrap) as wire:
        (done,) = wire.call("incremental_alter_configs", 1, resources=[resource]).fields["responses"]
    assert done["error_code"] == 0, done
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": CLIENT})
    stack.callback(producer.flush)

    def pushes() -> bool:
        producer.produce(TOPIC, b"a record")
        producer.flush(10)
        return bool(clients_of(listener.metrics()))

    await_true(pushes, "the producer pushes its metrics")


def give_access(gateway: GatewayProcess) -> None:
    """Add access control entries, quotas and blocks of producer ids."""
    place = ("--bootstrap", gateway.bootstrap)
    allow = ("acls", "add", "--allow-principal", "User:CN=checkout-service,OU=payments,O=Example,C=DE")
    seqgate_apart(*allow, "--consumer", "--topic", TOPIC, "--group", GROUP, *place)
    seqgate_apart(
        "acls", "add", "--deny-principal", "User:*", "--operation", "delete", "--topic", TOPIC, *place
    )
    rates = ("producer_byte_rate=1048576", "consumer_byte_rate=2097152", "request_percentage=50")
    seqgate_apart("quotas", "set", *rates, "--user", "bob", *place)
    seqgate_apart("quotas", "set", "connection_creation_rate=20", "--default-ip", *place)
    here = ("--data-dir", gateway.data_dir)
    seqgate_apart("pids", "claim", "30", "--owner", f"{CLIENT}.europe-west.example.com", "--yes", *here)
    seqgate_apart("pids", "move", "200", "--yes", *here)
    seqgate_apart("pids", "claim", "9", "--owner", "loader", "--yes", *here)


@dataclass(frozen=True)
class Busy:
    """A gateway with something on every page: a producer with troubles, and the metrics of a client."""

    gateway: GatewayProcess
    producer_id: int
    instance: str
    metric: str

    def filled(self, path: str) -> str:
        """Return an address with what only this gateway knows."""
        known = {"PRODUCER": self.producer_id, "INSTANCE": self.instance, "METRIC": self.metric}
        return re.sub("|".join(known), lambda found: quote(str(known[found[0]])), path)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    settings = {
        "seqgate.metrics.listener": f"127.0.0.1:{free_port()}",
        "seqgate.producer.id.block.size": "20",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS,
        "transaction.partition.verification.enable": "false",
    }
    with guarded_gateway(tmp_path_factory.mktemp("busy"), **settings) as guarded, ExitStack() as stack:
        gateway = guarded.process
        bootstrap = gateway.bootstrap
        create_topic(bootstrap, TOPIC, 3, {"retention.ms": "259200000"})
        create_topic(bootstrap, UNBROKEN, 1)
        create_topic(bootstrap, DEDUPLICATING, 1, DEDUPLICATED)
        create_topic(
            bootstrap, "reminders", 1, {"backlog.quota.bytes": "1000", "delivery.delay.header": "due"}
        )
        write_records(bootstrap)
        producer_id = write_troubles(bootstrap)
        write_groups(bootstrap, stack)
        listener = MetricsClient(f"http://{settings['seqgate.metrics.listener']}")
        subscribe_to_client_metrics(bootstrap, listener, stack)
        give_access(gateway)
        client = next(iter(clients_of(listener.metrics()).values()))
        yield Busy(gateway, producer_id, client.instance_id, client.series[0].name)


@pytest.fixture(scope="module")
def base(busy: Busy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    gateway = busy.gateway
    metrics = f"http://{gateway.settings['seqgate.metrics.listener']}"
    with console_process(
        tmp_path_factory.mktemp("process"), gateway.bootstrap, "--metrics", metrics
    ) as address:
        yield address


PATHS = [
    "/",
    "/topics",
    "/create-topic",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}/settings",
    "/records",
    f"/records/{TOPIC}",
    f"/records/{UNBROKEN}",
    f"/records/{TOPIC}?filter=customer&rows=50",
    f"/records/{TOPIC}/0/3",
    f"/records/{TOPIC}/produce",
    f"/records/{TOPIC}/schema",
    "/delayed",
    "/producers",
    f"/producers/one?topic={TOPIC}&partition=0&id=PRODUCER",
    "/producer-ids",
    "/transactions",
    f"/transactions/one?id={TRANSACTION}",
    f"/transactions/hanging?topic={TOPIC}",
    "/names",
    "/groups",
    *(f"/groups/view?group={group}" for group in (GROUP, "shop-floor", "warehouse", SHARED, STREAMS)),
    f"/groups/reset?group={GROUP}&target=earliest",
    "/backlog",
    f"/backlog?topic={TOPIC}",
    "/clients",
    "/clients/view?instance=INSTANCE&metric=METRIC",
    "/access/users",
    "/access/users/password?user=bob",
    "/access/acls",
    "/access/acls/add",
    "/access/quotas",
    "/access/quotas/edit?user-is=named&user=bob",
    "/cluster",
    "/cluster/settings",
    "/limits",
    "/logs",
    "/logs/tasks",
    "/search?q=europe",
    "/manual",
    "/manual/console",
]
"""The addresses of all pages, so that each shows data."""


def open_whole(window: Watched, path: str) -> Page:
    """Open a page, and wait until scripts have drawn its charts, strips, log lines and hits."""
    page = window.open(path)
    expect(page.locator("h1").first).to_be_visible()
    for part, drawn in ((".chart", ".chart canvas"), (".strip", ".strip svg")):
        expect(page.locator(drawn)).to_have_count(page.locator(part).count())
    for island in ("[data-island=logs] li", "[data-island=search] tbody tr"):
        if page.locator(island.split()[0]).count():
            expect(page.locator(island).first).to_be_visible()
    return page


def test_every_page_is_looked_at() -> None:
    for path in (each.path for page in PAGES for each in page.endpoints if isinstance(each, Get)):
        pattern = re.sub(r"\{\w+\}", "[^/]+", path)
        assert any(re.fullmatch(pattern, urlsplit(each).path) for each in PATHS), path


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_a_telephone(browser: Browser, base: str, busy: Busy, path: str) -> None:
    with watched(browser, base, size=NARROW) as window:
        page = open_whole(window, busy.filled(path))
        assert not window.errors + layout_faults(page)


@pytest.mark.parametrize(
    "path", ["/groups", "/access/users", "/access/acls", "/access/quotas", "/clients", "/transactions"]
)
def test_a_list_is_filtered_while_somebody_types(browser: Browser, base: str, busy: Busy, path: str) -> None:
    with watched(browser, base) as window:
        page = window.open(path)
        expect(page.locator("tbody tr").first).to_be_visible()
        expect(page.locator("[data-island=live-filter]")).to_have_attribute("data-started", "yes")
        page.locator("[data-filter]").press_sequentially("no-such-thing")
        expect(page.locator("tbody tr")).to_have_count(0)
        expect(page.locator(".empty-title")).to_be_visible()
        expect(page.locator("[data-filter]")).to_be_focused()
        assert not window.errors


def test_a_filter_without_an_answer_says_so_and_asks_again(browser: Browser, base: str, busy: Busy) -> None:
    """The list stays meanwhile, and so does the focus."""
    with watched(browser, base) as window:
        page = window.open("/groups")
        expect(page.locator("[data-island=live-filter]")).to_have_attribute("data-started", "yes")
        page.route("**/groups?*", lambda route: route.abort())
        page.locator("[data-filter]").press_sequentially("no-such-thing")
        notice = page.get_by_text("This part does not change now: The console does not answer.")
        expect(notice).to_be_visible()
        expect(page.locator("tbody tr").first).to_be_visible()
        page.unroute_all()
        expect(page.locator("tbody tr")).to_have_count(0)
        expect(notice).to_have_count(0)
        expect(page.locator("[data-filter]")).to_be_focused()


def test_half_a_regular_expression_is_told_in_place_of_the_list(browser: Browser, base: str) -> None:
    with watched(browser, base) as window:
        page = window.open("/transactions")
        expect(page.locator("[data-island=live-filter]")).to_have_attribute("data-started", "yes")
        page.locator("[data-filter]").press_sequentially("till-(")
        expect(page.get_by_role("alert")).to_contain_text("is not a regular expression of RE2")
        page.locator("[data-filter]").press_sequentially("7)")
        expect(page.locator("tbody tr")).to_have_count(1)


def test_each_table_shows_all_its_columns_on_a_desk(browser: Browser, base: str, busy: Busy) -> None:
    with watched(browser, base) as window:
        faults = {path: layout_faults(open_whole(window, busy.filled(path))) for path in PATHS}
        assert not {path: found for path, found in faults.items() if found}
        assert not window.errors


def test_a_person_sorts_opens_and_changes_cards(browser: Browser, base: str, busy: Busy) -> None:
    with watched(browser, base, size=NARROW) as window:
        page = window.open("/topics")
        page.get_by_role("link", name="Size").click()
        expect(page.locator("thead th[aria-sort=ascending]")).to_have_text("Size")
        page.get_by_role("button", name="Menu").click()
        window.check()
        page = window.open(f"/records/{TOPIC}?from=offset&offset=3&partition=0")
        page.get_by_role("button", name="Open record 0:3 here").click()
        expect(page.locator("tr.opened [data-record]")).to_be_visible()
        window.check()
        page = window.open(f"/topics/{TOPIC}/settings?filter=retention.ms")
        page.locator("td summary").first.click()
        expect(page.get_by_label("New value").first).to_be_visible()
        window.check()
        page = open_whole(window, "/producers")
        page.locator(".verdicts summary").first.click()
        window.check()


def test_cards_that_scripts_add_have_labels(browser: Browser, base: str, busy: Busy) -> None:
    gateway, producer_id = busy.gateway, busy.producer_id
    with watched(browser, base, size=NARROW) as window:
        page = window.open(f"/records/{DEDUPLICATING}?from=live")
        with page.expect_response(lambda answer: "/tail?" in answer.url):  # not the script tail.js
            pass
        assert send(gateway.bootstrap, DEDUPLICATING, -1, -1, batch=named("live", 1))[0] == 0
        expect(page.locator("tbody td.value")).to_have_attribute("data-label", "Value")
        window.check()
        page = open_whole(window, f"/producers/one?topic={TOPIC}&partition=0&id={producer_id}")
        page.get_by_text("The same as a table").click()
        expect(page.locator("#events td").first).to_have_attribute("data-label", "Time")
        assert send(gateway.bootstrap, TOPIC, producer_id, 900)[0] == OUT_OF_ORDER
        newest = page.locator(".verdicts tbody tr").first
        expect(newest.locator("[data-label=Sequences]")).to_have_text("900")
        window.check()


class Operator:
    """Somebody at the Overview whose clicks are counted; something typed, with its Enter, counts as one."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)

    def type(self, key: str, text: str) -> None:
        self.page.keyboard.press(key)
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")
        self.clicks += 1

    def sees(self, selector: str, words: str = "") -> None:
        expect(self.page.locator(selector).filter(has_text=words).first).to_be_visible()


def lag_grows(person: Operator) -> None:
    person.click(person.page.locator(".figure", has_text="Lag of all groups").get_by_role("link"))
    person.link(GROUP)
    person.sees(".chart canvas")


def sent_twice(person: Operator) -> None:
    person.link("Producers")
    person.sees(".verdicts tr", "duplicate")
    person.sees(".verdicts td[data-label=Client]", "wire")


def transaction_hangs(person: Operator) -> None:
    person.sees("#problems .notice", "hang")
    person.sees("#problems .notice", TRANSACTION)


def last_of_a_key(person: Operator) -> None:
    key = "order/119"
    person.type("s", key)
    person.link(TOPIC)
    person.sees("td.key", key)


def broker_settings(person: Operator) -> None:
    person.link("Cluster")
    person.click(person.page.get_by_role("link", name="Settings of node"))
    expect(person.page.locator("tbody tr").first).to_contain_text("set at the start")


def disk_is_full(person: Operator) -> None:
    person.sees(".figure", "Disk free")


def busiest_topic(person: Operator) -> None:
    person.link("Topics")
    line = person.page.locator("td[data-label^='Records/s'] .spark")

    def has_line() -> bool:
        person.page.reload()
        return line.count() > 0

    # a line has a point for each minute, so that it begins with the console's second one
    await_true(lambda: line.count() > 0 or has_line(), "the line of a topic", 600)


def partitions_without_leader(person: Operator) -> None:
    person.link("Cluster")
    person.sees(".figure", "Without a leader")


def producer_of_a_record(person: Operator) -> None:
    person.link("Records")
    person.click(person.page.get_by_role("main").get_by_role("link", name=TOPIC))
    person.click(person.page.locator("td.open button").first)
    person.sees("[data-record] .figure", "Producer id and epoch")


def reset_with_preview(person: Operator) -> None:
    person.link("Groups")
    person.link(GROUP)
    person.link("Reset offsets")
    person.click(person.page.get_by_role("button", name="Show the preview"))
    person.sees("h2", "Preview")


def rights_of_a_user(person: Operator) -> None:
    person.link("ACLs")
    person.type("/", "checkout")
    person.sees("tbody th", "checkout-service")


def produce_time(person: Operator) -> None:
    person.page.locator(".chart-range").first.select_option("6h")
    person.clicks += 1
    person.sees(".chart:has(canvas)", "Produce time")


QUESTIONS: dict[str, Callable[[Operator], None]] = {
    "Which group lags, and does its lag grow?": lag_grows,
    "Which client sent a batch twice?": sent_twice,
    "Does a transaction hang?": transaction_hangs,
    "What is the last record of a key?": last_of_a_key,
    "Which settings of a broker are not the defaults?": broker_settings,
    "When is the disk full?": disk_is_full,
    "Which topic is written most now?": busiest_topic,
    "Which partition has no leader?": partitions_without_leader,
    "Which producer and transaction wrote this record?": producer_of_a_record,
    "What would a reset of a group change?": reset_with_preview,
    "What may a user do?": rights_of_a_user,
    "How long did Produce take in the last 6 hours?": produce_time,
}


def clicks_in_the_docs() -> dict[str, int]:
    """Return the clicks that the comparison tells of Seqgate, by question."""
    text = Path(REPOSITORY / "docs" / "console.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*\?) \| (\d+)", text, re.MULTILINE)
    return {question: int(clicks) for question, clicks in rows}


def test_questions_are_answered_in_as_many_clicks_as_the_docs_say(browser: Browser, base: str) -> None:
    counted = {}
    with watched(browser, base) as window:
        for question, answer in QUESTIONS.items():
            person = Operator(open_whole(window, "/"))
            answer(person)
            counted[question] = person.clicks
    assert counted == clicks_in_the_docs()
