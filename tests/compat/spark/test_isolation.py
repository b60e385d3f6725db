"""Spark with `kafka.isolation.level`: what committed transactions hold, and nothing of those aborted or still open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_kafka_compat import source
from tests.compat.spark.test_streaming import drain
from tests.compat.spark.topics import TIMEOUT_S, Topics, landed, values_of

PARTITIONS = 2
ROUNDS = 9
PER_ROUND = 40
COMMITTED = [
    value
    for number in range(ROUNDS)
    if number % 3 != 1
    for value in range(number * PER_ROUND, (number + 1) * PER_ROUND)
]
STILL_OPEN = list(range(ROUNDS * PER_ROUND, (ROUNDS + 1) * PER_ROUND))
EVERY = list(range((ROUNDS + 1) * PER_ROUND))


class Transactions:
    """A topic with committed and aborted transactions, and an open one at its end."""

    def __init__(self, topics: Topics) -> None:
        self.topic = topics.fresh(partitions=PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": topics.bootstrap, "transactional.id": f"of-{self.topic}", "linger.ms": 1}
        )
        self._producer.init_transactions(TIMEOUT_S)
        for number in range(ROUNDS):
            self.begin(EVERY[number * PER_ROUND : (number + 1) * PER_ROUND])
            self.end(commit=number % 3 != 1)
        self.begin(STILL_OPEN)

    def begin(self, values: Iterable[int]) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self.topic, str(value).encode(), partition=value % PARTITIONS)
        assert self._producer.flush(TIMEOUT_S) == 0

    def end(self, *, commit: bool) -> None:
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        end(TIMEOUT_S)


@pytest.fixture
def transactions(topics: Topics) -> Iterator[Transactions]:
    written = Transactions(topics)
    yield written
    written.end(commit=False)


@pytest.mark.parametrize(
    ("isolation", "expected"), [("read_committed", COMMITTED), ("read_uncommitted", EVERY)]
)
def test_batch(
    spark: SparkSession, topics: Topics, transactions: Transactions, isolation: str, expected: list[int]
) -> None:
    options = {"kafka.isolation.level": isolation}
    frame = source(spark, topics.bootstrap, transactions.topic, options=options)
    assert values_of(frame) == expected


@pytest.mark.parametrize("most_offsets", [None, 50], ids=["at once", "in bounded micro-batches"])
def test_stream(
    spark: SparkSession,
    topics: Topics,
    transactions: Transactions,
    tmp_path: Path,
    most_offsets: int | None,
) -> None:
    options: dict[str, str | int] = {"kafka.isolation.level": "read_committed"}
    if most_offsets is not None:
        options["maxOffsetsPerTrigger"] = most_offsets
    frame = source(spark, topics.bootstrap, transactions.topic, stream=True, options=options)
    drain(frame, tmp_path)
    assert landed(spark, tmp_path / "out") == COMMITTED

    transactions.end(commit=True)
    drain(frame, tmp_path)
    assert landed(spark, tmp_path / "out") == COMMITTED + STILL_OPEN
    transactions.begin(range(10_000, 10_010))
