"""The producers of partitions, what happened to their batches, and why."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest

from seqgate.gateway.console.asking.gateways import GatewayAsker, Replies
from tests.compat.topics import fresh_topic
from tests.support.console_client import ConsoleClient, console_client, text_of, title_of
from tests.support.gateway_process import GatewayProcess
from tests.support.metrics_stub import metrics_stub
from tests.support.producing import INVALID_EPOCH, OUT_OF_ORDER, begun, open_transaction, send

CLIENT = {"client_id": "c", "address": "10.0.0.7", "principal": "User:ann", "library": "librdkafka 2.11.0"}
NAUGHTY = '<script>alert("1")</script>'


@pytest.fixture
def topic(measured_gateway: GatewayProcess) -> str:
    return fresh_topic(measured_gateway.bootstrap, "orders", partitions=2)


def mishaps(bootstrap: str, topic: str) -> int:
    """Let a producer write, repeat a batch, skip sequences, and be fenced; return its id."""
    producer_id, _ = begun(bootstrap, None)
    assert send(bootstrap, topic, producer_id, 0, 3) == (0, 0)
    assert send(bootstrap, topic, producer_id, 0, 3) == (0, 0)
    assert send(bootstrap, topic, producer_id, 50)[0] == OUT_OF_ORDER
    assert send(bootstrap, topic, producer_id, 0, 2, epoch=1)[0] == 0
    assert send(bootstrap, topic, producer_id, 3)[0] == INVALID_EPOCH
    return producer_id


def test_shows_producers_and_why_batches_were_not_stored(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id = mishaps(measured_gateway.bootstrap, topic)
    page = measured.page(f"/producers?topic={topic}&partition=0")
    text = text_of(page)
    assert title_of(page) == "Producers"
    assert f"/producers/one?topic={topic}&amp;partition=0&amp;id={producer_id}" in page
    assert re.search(rf"{producer_id} wire \(127\.0\.0\.1\) 1 1 4 \S+ s none", text), text
    assert (
        text.index("INVALID_PRODUCER_EPOCH")
        < text.index("OUT_OF_ORDER_SEQUENCE_NUMBER")
        < text.index(f"{producer_id} 0 0–2 0")
    )
    assert "its sequences do not follow" in text
    assert "Nothing needs to be done" in text
    assert "wire" in text


def test_an_old_batch_may_be_stored_already(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id, _ = begun(measured_gateway.bootstrap, None)
    for sequence in range(6):
        assert send(measured_gateway.bootstrap, topic, producer_id, sequence)[0] == 0
    assert send(measured_gateway.bootstrap, topic, producer_id, 0)[0] == OUT_OF_ORDER
    assert "its records may be stored already" in text_of(
        measured.page(f"/producers?topic={topic}&partition=0")
    )


def strips(console: ConsoleClient, topic: str, **fields: Any) -> Any:
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    return console.data(f"/api/producers/strips?topic={topic}&partition=0&{query}")


@pytest.mark.parametrize("is_told", [True, False], ids=["seqgate", "kafka"])
def test_the_strip_tells_what_was_accepted_repeated_and_refused(
    unmeasured: ConsoleClient,
    measured_gateway: GatewayProcess,
    topic: str,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = unmeasured
    if not is_told:
        monkeypatch.setattr(GatewayAsker, "ask", lambda *_: Replies(of=1))
    bootstrap = measured_gateway.bootstrap
    producer_id, _ = begun(bootstrap, None)
    send(bootstrap, topic, producer_id, 0, 2)
    first = strips(console, topic)
    console.console.sampler.sample()
    send(bootstrap, topic, producer_id, 2, 5)
    send(bootstrap, topic, producer_id, 2, 5)
    send(bootstrap, topic, producer_id, 90, 1)
    found = strips(console, topic, id=producer_id)
    key = f"0/{producer_id}/{topic}"
    assert list(found["rows"]) == [key]
    while not (written := accepted_of(strips(console, topic), key)):
        console.console.sampler.sample()
    (event,) = written
    assert event[1:5] == ["accepted", 2, 6, 5]
    assert event[5] == (6 if is_told else -1)
    judged = [event for event in strips(console, topic)["events"].get(key, []) if event[1] != "accepted"]
    kinds = [(event[1], event[2], event[3]) for event in judged]
    assert kinds == ([("duplicate", 2, 6), ("refused", 90, 90)] if is_told else [])
    later = strips(console, topic, after=found["now"] + 3_600_000, numbers=strips(console, topic)["numbers"])
    assert later["events"] == {}
    assert first["error"] is None


def accepted_of(found: Any, key: str) -> list[Any]:
    """Return what was accepted after the first batch; the sampler may have seen that one come, too."""
    return [event for event in found["events"].get(key, []) if event[1] == "accepted" and event[3] > 1]


def test_a_producer_has_a_page_of_its_own(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id = mishaps(measured_gateway.bootstrap, topic)
    page = measured.page(f"/producers/one?topic={topic}&partition=0&id={producer_id}")
    text = text_of(page)
    assert str(producer_id) in title_of(page)
    assert "of node-1" in text
    assert "the producer is idempotent only" in text
    assert "a newer producer has fenced its producer" in text
    other = text_of(measured.page(f"/producers/one?topic={topic}&partition=0&id=987654321"))
    assert "does not track producer 987654321" in other
    assert "No block holds the id 987654321" in other


def test_the_page_of_a_producer_links_to_its_transaction(
    measured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    name = f"{NAUGHTY}{topic}"
    producer_id, _ = open_transaction(measured_gateway.bootstrap, name, topic, 0)
    page = measured.page(f"/producers/one?topic={topic}&partition=0&id={producer_id}")
    assert f"/transactions/one?id={quote(name, safe='').replace('%20', '+')}" in page
    assert "<script>alert" not in page
    assert "open since offset 0" in text_of(measured.page(f"/producers?topic={topic}&partition=0"))


def test_many_producers_come_in_pages(
    measured: ConsoleClient, unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    ids = range(5_000, 5_120)
    for producer_id in ids:
        send(measured_gateway.bootstrap, topic, producer_id, 0)
    for console in (measured, unmeasured):
        path: str | None = f"/producers?topic={topic}"
        seen: list[int] = []
        while path is not None:
            page = console.page(path)
            seen += [
                int(found)
                for found in re.findall(r'<th scope="row" class="number"[^>]*><a href="[^"]*id=(\d+)"', page)
            ]
            following = re.search(r'rel="next" href="([^"]*)"', page)
            path = None if following is None else following[1].replace("&amp;", "&")
        assert seen == list(ids)
    from_there = measured.page(f"/producers?topic={topic}&partition=0&from_id=5119")
    assert "id=5119" in from_there
    assert "partition=0&amp;id=5118" not in from_there


@pytest.mark.usefixtures("foreign_brokers")
def test_of_other_brokers_the_page_says_what_is_missing(
    unmeasured: ConsoleClient, measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id = mishaps(measured_gateway.bootstrap, topic)
    text = text_of(unmeasured.page(f"/producers?topic={topic}&partition=0"))
    assert f"{producer_id} wire (127.0.0.1) 1 1 –" in text
    assert "Only the gateway knows which batches it did not store" in text


def test_wrong_places_are_told(measured: ConsoleClient, topic: str) -> None:
    assert "there is no topic nowhere" in text_of(measured.page("/producers?topic=nowhere"))
    assert "choose the topic of partition 1" in text_of(measured.page("/producers?partition=1"))
    assert f"{topic} has no partition 9" in text_of(measured.page(f"/producers?topic={topic}&partition=9"))
    assert "must name a topic" in text_of(measured.page("/producers/one?id=1"))
    assert "No producer has written here" in text_of(measured.page(f"/producers?topic={topic}"))
    assert "<script>" not in measured.page(f"/producers?topic={quote(NAUGHTY)}").partition("<main")[2]


@pytest.mark.usefixtures("foreign_brokers")
def test_what_clients_send_stays_text(measured_gateway: GatewayProcess) -> None:
    verdict = {
        "number": 1,
        "time_ms": 1_700_000_000_000,
        "topic": "orders",
        "partition": 0,
        "producer_id": 2**62,
        "producer_epoch": 0,
        "base_sequence": 1,
        "last_sequence": 1,
        "base_offset": -1,
        "outcome": "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "client": {**CLIENT, "client_id": f"{NAUGHTY}'\u202egpj.exe"},
        "message": NAUGHTY,
    }
    with metrics_stub() as stub:
        stub.views["producers"] = {"producers": [], "complete": True, "counters": None}
        stub.views["verdicts"] = {"verdicts": [verdict], "kept": 10_000}
        with console_client(measured_gateway.bootstrap, metrics_url=stub.url) as console:
            page = console.page("/producers")
            assert "<script>alert" not in page
            assert "\u202e" not in page
            assert f"id={2**62}" in page
            assert console.data("/api/verdicts?numbers=")["verdicts"][0]["producer_id"] == str(2**62)
            stub.views["verdicts"] = {
                "verdicts": [{**verdict, "client": {**CLIENT, "client_id": "\ud800"}}],
                "kept": 1,
            }
            assert "has another form" in text_of(console.page("/producers"))


@pytest.mark.usefixtures("foreign_brokers")
def test_a_listener_that_is_down_leaves_what_kafka_tells(
    measured_gateway: GatewayProcess, topic: str
) -> None:
    producer_id = mishaps(measured_gateway.bootstrap, topic)
    with console_client(measured_gateway.bootstrap, metrics_url="http://127.0.0.1:1") as console:
        text = text_of(console.page(f"/producers?topic={topic}&partition=0"))
    assert f"{producer_id} wire (127.0.0.1) 1 1 –" in text
    assert "does not answer" in text
