"""The console's pages about producers and transactions on an Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.topics import fresh_topic
from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.kafka_peer import KafkaPeer
from tests.support.producing import OUT_OF_ORDER, begun, open_transaction, send


@pytest.fixture(scope="module")
def console(kafka: KafkaPeer) -> Iterator[ConsoleClient]:
    with console_client(kafka.bootstrap) as client:
        yield client


def test_producers_and_their_strip(console: ConsoleClient, kafka: KafkaPeer) -> None:
    topic = fresh_topic(kafka.bootstrap, "orders")
    producer_id, _ = begun(kafka.bootstrap, None)
    assert send(kafka.bootstrap, topic, producer_id, 0, 3) == (0, 0)
    assert send(kafka.bootstrap, topic, producer_id, 0, 3) == (0, 0)
    assert send(kafka.bootstrap, topic, producer_id, 50)[0] == OUT_OF_ORDER
    text = text_of(console.page(f"/producers?topic={topic}&partition=0"))
    assert f"{producer_id} – 0 2 – – none" in text
    assert "The brokers of this cluster do not tell it: they are others, such as Apache Kafka" in text
    assert "Only Seqgate gateways tell the last offset and the age" in text
    feed = f"/api/producers/strips?topic={topic}&partition=0&id={producer_id}"
    console.data(feed)
    console.console.sampler.sample()
    send(kafka.bootstrap, topic, producer_id, 3, 2)
    key = f"0/{producer_id}/{topic}"
    while not (events := [event for event in console.data(feed)["events"].get(key, []) if event[3] > 2]):
        console.console.sampler.sample()  # it may have seen the first batch come, too
    assert events[0][1:5] == ["accepted", 3, 4, 2]
    one = text_of(console.page(f"/producers/one?topic={topic}&partition=0&id={producer_id}"))
    assert "the producer is idempotent only" in one


def test_transactions_are_listed_and_aborted(console: ConsoleClient, kafka: KafkaPeer) -> None:
    topic = fresh_topic(kafka.bootstrap, "orders", partitions=2)
    name = f'<b>"{topic}"'
    producer_id, epoch = open_transaction(kafka.bootstrap, name, topic, 0, 1)
    listed = console.page(f"/transactions?state=Ongoing&producer_id={producer_id}")
    assert f'<b>"{topic}"' in text_of(listed)
    assert "<b>" not in listed.partition("<main")[2]
    assert "is not a regular expression" in text_of(console.page("/transactions?pattern=("))
    one = text_of(console.page(f"/transactions/one?id={name}"))
    assert f"{topic} -1 0 0 1" in one
    done = console.confirmed("/transactions/abort", {"id": name}, typed=name)
    assert f"is aborted in 2 partitions, and producer epoch {epoch} is fenced" in text_of(done)
    late = send(kafka.bootstrap, topic, producer_id, 1, epoch=epoch, transactional_id=name)
    assert late[0] != 0


def test_pages_of_what_only_seqgate_has_say_so(console: ConsoleClient, kafka: KafkaPeer) -> None:
    fresh_topic(kafka.bootstrap, "orders")
    assert "No topic has a backlog quota" in text_of(console.page("/backlog"))
    assert "No topic deduplicates" in text_of(console.page("/names"))
    assert "No topic delays records" in text_of(console.page("/delayed"))
    assert "No transaction hangs" in text_of(console.page("/transactions/hanging"))
    assert "--metrics" in text_of(console.page("/producer-ids"))
    for path in ("/logs", "/logs/tasks", "/limits", "/backlog?topic=orders"):
        assert "The brokers of this cluster are others" in text_of(console.page(path)), path
