"""Unmodified clients are named, with address and library, where they retry a batch or are fenced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import metadata
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any, Final

import confluent_kafka
import pytest
from kafka import KafkaProducer

from seqgate.gateway.testing import Broker
from tests.support.kafka_tools import run_tool
from tests.support.setup_peers import KAFKA_VERSION
from tests.system.commands.conftest import seqgate

TOPIC: Final = "orders"
NAME: Final = "checkout-service"
LIMIT_S: Final = 120.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[SimpleQueue[logging.LogRecord]]:
    """The lines of the log, as they come."""
    caplog.set_level(logging.INFO)
    found: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(found)
    logging.getLogger("seqgate").addHandler(handler)
    yield found
    logging.getLogger("seqgate").removeHandler(handler)


def with_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=NAME, enable_idempotence=True)
    producer.send(TOPIC, b"a").get(timeout=LIMIT_S)
    producer.close()


def with_librdkafka(bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "client.id": NAME, "enable.idempotence": True}
    )
    producer.produce(TOPIC, b"a")
    assert producer.flush(LIMIT_S) == 0


def with_java(bootstrap: str) -> None:
    client = ("--command-property", f"client.id={NAME}")
    run_tool(
        "kafka-console-producer", "--bootstrap-server", bootstrap, "--topic", TOPIC, *client, stdin="a\n"
    ).expect_success()


LIBRARIES: Final[dict[str, tuple[Callable[[str], None], str]]] = {
    "kafka-python": (with_kafka_python, f"kafka-python {metadata.version('kafka-python')}"),
    "librdkafka": (with_librdkafka, "confluent-kafka-python"),
    "java": (with_java, f"apache-kafka-java {KAFKA_VERSION}"),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_who_retried_a_batch(broker: Broker, name: str, lines: SimpleQueue[logging.LogRecord]) -> None:
    produce, library = LIBRARIES[name]
    with broker.faults.drop_answer(api="Produce", topic=TOPIC) as fault:
        produce(broker.bootstrap)
    assert fault.struck == 1
    (verdict,) = asked(broker, "verdicts")["verdicts"]
    (producer,) = asked(broker, "producers")["producers"]
    over_kafka = seqgate("producers", "--bootstrap", broker.bootstrap, "--json").json
    assert [row["client"] for row in over_kafka["producers"]] == [producer["client"]]
    assert verdict["outcome"] == "duplicate"
    assert verdict["client"] == producer["client"]
    assert verdict["client"].pop("library").startswith(library)
    assert verdict["client"] == {"client_id": NAME, "address": "127.0.0.1", "principal": "User:ANONYMOUS"}
    while "retried" not in (line := lines.get(timeout=LIMIT_S).getMessage()):
        pass
    assert line.startswith(f"{NAME} (127.0.0.1, {library}")
    assert line.endswith(f") retried 1 batch of {TOPIC}-0")


def test_who_was_fenced_and_by_whom(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    zombie, successor = transactional(broker, "pod-1"), transactional(broker, "pod-2")
    zombie.init_transactions(LIMIT_S)
    zombie.begin_transaction()
    zombie.produce(TOPIC, b"a")
    zombie.flush(LIMIT_S)
    (row,) = asked(broker, "transactions", "list")["transactions"]
    over_kafka = seqgate("transactions", "list", "--bootstrap", broker.bootstrap, "--json").json
    assert [other["client"] for other in over_kafka["transactions"]] == [row["client"]]
    assert (row["state"], row["client"]["client_id"]) == ("Ongoing", "pod-1")
    successor.init_transactions(LIMIT_S)
    assert any("fenced pod-1 (127.0.0.1, " in line for line in caplog.messages)
    zombie.produce(TOPIC, b"b")
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        zombie.flush(LIMIT_S)
    verdict = asked(broker, "verdicts")["verdicts"][0]
    assert (verdict["outcome"], verdict["client"]["client_id"]) == ("INVALID_PRODUCER_EPOCH", "pod-1")
    described = asked(broker, "transactions", "describe", "billing")
    assert described["client"]["client_id"] == "pod-2"
    assert "Its client is pod-2 (127.0.0.1, " in text(broker, "transactions", "describe", "billing")
    assert "pod-1 (127.0.0.1" in " ".join(text(broker, "verdicts").split())
    assert "the producer belongs to pod-2 (127.0.0.1, " in next(
        line for line in caplog.messages if "INVALID_PRODUCER_EPOCH" in line
    )


def transactional(broker: Broker, client_id: str) -> Any:
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": client_id, "transactional.id": "billing"}
    )


def asked(broker: Broker, *words: str) -> Any:
    return seqgate(*words, "--data-dir", broker.directory, "--json").json


def text(broker: Broker, *words: str) -> str:
    return seqgate(*words, "--data-dir", broker.directory).stdout
