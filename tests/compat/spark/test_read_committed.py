"""Spark reads only committed records if its options ask for that, as `docs/transactions.md` says. `land` asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import source
from seqgate.spark_kafka_compat.landing import land
from tests.compat.spark.topics import TIMEOUT_S, Topics, landed, values_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "transactions.md"
COMMITTED = {"kafka.isolation.level": "read_committed"}


def _fill(topics: Topics, topic: str) -> Producer:
    """Write 0–9 committed, 10–19 aborted, 20–29 committed, and 30–39 in a transaction that stays open."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": topics.bootstrap, **settings})
    producer.init_transactions(TIMEOUT_S)
    for first in range(0, 40, 10):
        producer.begin_transaction()
        for value in range(first, first + 10):
            producer.produce(topic, str(value).encode())
        assert producer.flush(TIMEOUT_S) == 0
        if first == 10:
            producer.abort_transaction(TIMEOUT_S)
        elif first < 30:
            producer.commit_transaction(TIMEOUT_S)
    return producer


@pytest.mark.tier("test")
def test_batches(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh()
    producer = _fill(topics, topic)
    committed = source(spark, topics.bootstrap, topic, options=COMMITTED)
    assert values_of(committed) == [*range(10), *range(20, 30)]
    assert values_of(source(spark, topics.bootstrap, topic)) == list(range(40))
    producer.commit_transaction(TIMEOUT_S)
    assert values_of(committed) == [*range(10), *range(20, 40)]


def test_a_landed_stream_goes_on_behind_the_open_transaction(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.fresh()
    producer = _fill(topics, topic)

    def run() -> list[int]:
        land(spark, topics.bootstrap, topic, str(tmp_path)).awaitTermination()
        return landed(spark, tmp_path)

    assert run() == [*range(10), *range(20, 30)]
    producer.commit_transaction(TIMEOUT_S)
    assert run() == [*range(10), *range(20, 40)]


def test_the_example_of_the_page(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh()
    _fill(topics, topic)
    found = re.search(r"## With Spark\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    example = found[1].replace('spark = session("invoices")\n', "")
    example = example.replace("127.0.0.1:9092", topics.bootstrap).replace('"invoices"', repr(topic))
    names: dict[str, object] = {"spark": spark}
    exec(compile(example, PAGE.name, "exec"), names)
    assert names["values"] == [str(value).encode() for value in (*range(10), *range(20, 30))]
