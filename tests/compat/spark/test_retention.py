"""Spark reads topics whose log start has moved: `failOnDataLoss` both ways, in batches and in streams with a
checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import source
from tests.compat.spark.test_streaming import drain, stream
from tests.compat.spark.topics import Topics, landed, values_of
from tests.support.gateway_process import GatewayProcess

OLD_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DEADLINE_S = 120.0
FIFTY_ARE_A_SEGMENT = {"internal.segment.bytes": "2000", "retention.ms": "-1", "file.delete.delay.ms": "0"}
SAYS_WHY = r"(?is)data may have been lost|some data|failOnDataLoss|out.?of.?range"


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    settings = {"log.retention.check.interval.ms": "50"}
    with GatewayProcess(tmp_path_factory.mktemp("forgetful") / "data", settings=settings) as gateway:
        yield Topics(gateway.bootstrap)


def fill(topics: Topics, topic: str, start: int, *, old: bool) -> None:
    values = range(start, start + 50)
    topics.fill(topic, values, timestamps=dict.fromkeys(values, OLD_MS) if old else None)


def retain_an_hour(topics: Topics, topic: str, start: int) -> None:
    """Set the retention to one hour, and wait until the log begins at `start`."""
    topics.configure(topic, "retention.ms", str(HOUR_MS))
    deadline = time.monotonic() + DEADLINE_S
    while topics.earliest(topic) < start:
        assert time.monotonic() < deadline, f"the log still begins at {topics.earliest(topic)}"
    assert topics.earliest(topic) == start


def fails_and_says_why(spark: SparkSession, topics: Topics, topic: str, folder: Path) -> None:
    with pytest.raises(StreamingQueryException, match=SAYS_WHY):
        drain(stream(spark, topics, topic, failOnDataLoss=True), folder)


def test_a_stream_comes_back_when_records_are_gone(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The stream has read up to 50; records 50 to 99 are deleted, 100 to 149 exist. It fails until
    failOnDataLoss is off."""
    topic = topics.fresh(configs=FIFTY_ARE_A_SEGMENT)
    fill(topics, topic, 0, old=True)
    drain(stream(spark, topics, topic), tmp_path)
    fill(topics, topic, 50, old=True)
    fill(topics, topic, 100, old=False)
    retain_an_hour(topics, topic, 100)
    fails_and_says_why(spark, topics, topic, tmp_path)
    fails_and_says_why(spark, topics, topic, tmp_path)
    assert landed(spark, tmp_path / "out") == list(range(50))

    drain(stream(spark, topics, topic, failOnDataLoss=False), tmp_path)
    fill(topics, topic, 150, old=False)
    drain(stream(spark, topics, topic), tmp_path)
    assert landed(spark, tmp_path / "out") == [*range(50), *range(100, 200)]


def test_a_stream_comes_back_when_everything_is_gone(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Retention has deleted the active segment too: the log is empty and begins at 100."""
    topic = topics.fresh(configs=FIFTY_ARE_A_SEGMENT)
    fill(topics, topic, 0, old=True)
    drain(stream(spark, topics, topic), tmp_path)
    fill(topics, topic, 50, old=True)
    retain_an_hour(topics, topic, 100)
    assert values_of(source(spark, topics.bootstrap, topic)) == []
    fails_and_says_why(spark, topics, topic, tmp_path)

    drain(stream(spark, topics, topic, failOnDataLoss=False), tmp_path)
    fill(topics, topic, 100, old=False)
    drain(stream(spark, topics, topic, failOnDataLoss=False), tmp_path)
    assert landed(spark, tmp_path / "out") == [*range(50), *range(100, 150)]


class TestBatch:
    @pytest.fixture
    def topic(self, topics: Topics) -> str:
        name = topics.fresh(configs=FIFTY_ARE_A_SEGMENT)
        fill(topics, name, 0, old=True)
        fill(topics, name, 50, old=False)
        retain_an_hour(topics, name, 50)
        return name

    def test_earliest_is_what_is_left(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        assert values_of(source(spark, topics.bootstrap, topic)) == list(range(50, 100))

    def test_asking_for_what_is_gone_fails_and_says_why(
        self, spark: SparkSession, topics: Topics, topic: str
    ) -> None:
        with pytest.raises(Exception, match=SAYS_WHY):
            values_of(source(spark, topics.bootstrap, topic, startingOffsets={topic: {"0": 10}}))

    def test_or_goes_on_with_what_is_left(self, spark: SparkSession, topics: Topics, topic: str) -> None:
        frame = source(
            spark, topics.bootstrap, topic, startingOffsets={topic: {"0": 10}}, failOnDataLoss=False
        )
        assert values_of(frame) == list(range(50, 100))
