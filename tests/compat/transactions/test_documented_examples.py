"""The examples of `docs/transactions.md` do what the page says."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire

PAGE = Path(__file__).resolve().parents[3] / "docs" / "transactions.md"
EXAMPLES = re.findall(
    r"^([a-z-]+):\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
WAIT_S = 120.0


@pytest.fixture
def bootstrap(gateway: GatewayProcess) -> str:
    """A gateway with the topic `orders` (three committed records, one aborted between them) and the empty
    topic `invoices`."""
    with Wire(gateway.bootstrap) as wire:
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("orders", "invoices")
        ]
        created = wire.call("create_topics", 7, topics=topics, timeout=10_000).fields["topics"]
    assert {row["error_code"] for row in created} == {0}
    _write(gateway.bootstrap, "orders")
    return gateway.bootstrap


def _write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "shop"})
    producer.init_transactions(WAIT_S)
    for values, is_commit in ((["a", "b"], True), (["x"], False), (["c"], True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), value.encode())
        assert producer.flush(WAIT_S) == 0
        if is_commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


def _run(example: str, bootstrap: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(example.replace("127.0.0.1:9092", bootstrap), PAGE.name, "exec"), names)
    return names


def _committed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (message := reader.poll(WAIT_S)) or not message.error():
        assert message is not None
        found.append((message.key(), message.value()))
    reader.close()
    return found


def test_every_library_has_an_example() -> None:
    assert [name for name, _ in EXAMPLES] == ["confluent-kafka", "kafka-python", "aiokafka"]


@pytest.mark.parametrize(("library", "example"), EXAMPLES)
def test_example(bootstrap: str, library: str, example: str) -> None:
    del library
    # an example may run an event loop of its own
    thread = threading.Thread(target=_run, args=(example, bootstrap))
    thread.start()
    thread.join()
    assert _committed(bootstrap, "invoices") == [(key, b"invoice of " + key) for key in (b"a", b"b", b"c")]
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "invoicing"})
    (read,) = group.committed([TopicPartition("orders", 0)], WAIT_S)
    (_, end_offset) = group.get_watermark_offsets(TopicPartition("orders", 0), WAIT_S)
    group.close()
    # the position after the last record; a library may already have passed the marker behind it
    assert end_offset - 1 <= read.offset <= end_offset
