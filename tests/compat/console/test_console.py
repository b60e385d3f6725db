"""The console shows and changes an Apache Kafka as it does a Seqgate, with what the Kafka protocol tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaProducer

from tests.support.console_client import ConsoleClient, console_client, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer


@pytest.fixture(params=["Kafka", "Seqgate"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    peer: KafkaPeer | GatewayProcess = request.getfixturevalue(
        "kafka" if request.param == "Kafka" else "shared_gateway"
    )
    return peer.bootstrap


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    with console_client(bootstrap) as client:
        yield client


def test_a_topic_lives_and_dies(console: ConsoleClient, bootstrap: str) -> None:
    assert bootstrap in text_of(console.page("/"))
    page = console.confirmed(
        "/create-topic", {"name": "cc-life", "partitions": "2", "settings": "retention.ms=60000"}
    )
    assert "Topic cc-life is created." in text_of(page)
    page = console.confirmed(
        "/topics/cc-life/settings", {"name": "cleanup.policy", "value": "compact", "action": "set"}
    )
    assert "cleanup.policy of topic cc-life is compact." in text_of(page)
    record = {
        "key_is": "text",
        "key": "k",
        "value_is": "text",
        "value": '{"a": 1}',
        "partition": "1",
        "headers": "h: 1",
    }
    page = console.confirmed("/records/cc-life/produce", record)
    assert "stored in partition 1 at offset 0" in text_of(page)
    assert '"a":1' in text_of(page).replace(" ", "")  # each name and value has its colour
    assert "1 record, newest first" in text_of(console.page("/records/cc-life"))
    assert console.data("/api/records/cc-life/tail?at=0:0,1:0")["at"] == "0:0,1:1"
    page = console.confirmed("/topics/cc-life/delete", {}, typed="cc-life")
    assert "Topic cc-life is deleted." in text_of(page)
    assert "there is no topic cc-life" in text_of(console.page("/records/cc-life"))


def test_committed_records_are_told_from_others(console: ConsoleClient, bootstrap: str) -> None:
    console.confirmed("/create-topic", {"name": "cc-transactions", "partitions": "1"})
    producer = KafkaProducer(bootstrap_servers=[bootstrap], transactional_id="cc-transactions")
    try:
        producer.init_transactions()
        for value, is_kept in (("kept", True), ("aborted", False), ("kept again", True)):
            producer.begin_transaction()
            producer.send("cc-transactions", value.encode()).get(10)
            (producer.commit_transaction if is_kept else producer.abort_transaction)()
    finally:
        producer.close()
    everything = text_of(console.page("/records/cc-transactions?from=oldest&markers=yes"))
    assert "aborted" in everything
    assert everything.count("commit of a transaction") == 2
    assert everything.count("abort of a transaction") == 1
    committed = text_of(console.page("/records/cc-transactions?from=oldest&committed=yes"))
    assert "kept again" in committed
    assert "aborted" not in committed
    assert "2 records, oldest first" in committed
