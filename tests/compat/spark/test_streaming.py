from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seqgate.spark_kafka_compat import source
from seqgate.spark_kafka_compat.options import OptionValue
from tests.compat.spark.topics import Topics, landed, values_of

PATIENCE_S = 180


def drain(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Read all available records into Parquet, from the folder's checkpoint on."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()
    return query


def stream(spark: SparkSession, topics: Topics, topic: str, **options: OptionValue) -> DataFrame:
    return source(spark, topics.bootstrap, topic, stream=True, options=options)


def test_available_now_in_bounded_micro_batches(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.fresh(partitions=2)
    topics.fill(topic, range(500), partition=0)
    topics.fill(topic, range(500, 1_000), partition=1)

    query = drain(stream(spark, topics, topic, maxOffsetsPerTrigger=300), tmp_path)

    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert max(sizes) <= 300
    assert sum(sizes) == 1_000
    assert landed(spark, tmp_path / "out") == list(range(1_000))


def test_max_records_per_partition(spark: SparkSession, topics: Topics) -> None:
    topic, parts = topics.fresh(), []
    topics.fill(topic, range(1_000))
    frame = stream(spark, topics, topic, maxRecordsPerPartition=100)
    writer = frame.writeStream.foreachBatch(lambda rows, _: parts.append(rows.rdd.getNumPartitions()))
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
    assert parts == [10]


@pytest.mark.tier("test")
def test_goes_on_from_its_checkpoint(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.fresh()
    for round_number in range(3):
        topics.fill(topic, range(round_number * 100, round_number * 100 + 100))
        drain(stream(spark, topics, topic), tmp_path)
    assert landed(spark, tmp_path / "out") == list(range(300))


def test_starts_at_the_end_when_told(spark: SparkSession, topics: Topics) -> None:
    topic, name = topics.fresh(), f"late_{uuid.uuid4().hex}"
    topics.fill(topic, range(10))
    frame = stream(spark, topics, topic, startingOffsets="latest")
    query = frame.writeStream.format("memory").queryName(name).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        topics.fill(topic, range(10, 20))
        query.processAllAvailable()
        assert values_of(spark.table(name)) == list(range(10, 20))
    finally:
        query.stop()


def test_partitions_added_while_it_runs(spark: SparkSession, topics: Topics) -> None:
    topic, name = topics.fresh(), f"grown_{uuid.uuid4().hex}"
    topics.fill(topic, range(10))
    frame = stream(spark, topics, topic)
    query = frame.writeStream.format("memory").queryName(name).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        topics.grow(topic, 3)
        topics.fill(topic, range(10, 20), partition=1)
        topics.fill(topic, range(20, 30), partition=2)
        topics.fill(topic, range(30, 40), partition=0)
        query.processAllAvailable()
        assert values_of(spark.table(name)) == list(range(40))
    finally:
        query.stop()


def test_topics_added_under_a_pattern(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex[:8]
    for values in (range(10), range(10, 20)):
        topics.fill(topics.fresh(prefix=f"family-{mark}"), values)
        frame = source(spark, topics.bootstrap, stream=True, subscribePattern=f"family-{mark}-.*")
        drain(frame, tmp_path)
    assert landed(spark, tmp_path / "out") == list(range(20))


class TestDeletedBeforeTheyWereRead:
    """Records 100 to 149 are deleted before a stream that stopped at 100 continues."""

    @pytest.fixture
    def topic(self, spark: SparkSession, topics: Topics, tmp_path: Path) -> str:
        name = topics.fresh()
        topics.fill(name, range(100))
        drain(stream(spark, topics, name), tmp_path)
        topics.fill(name, range(100, 200))
        topics.delete_records_before(name, 0, 150)
        return name

    def test_the_stream_fails(self, spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
        with pytest.raises(StreamingQueryException):
            drain(stream(spark, topics, topic), tmp_path)

    def test_or_goes_on_when_told(
        self, spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
    ) -> None:
        drain(stream(spark, topics, topic, failOnDataLoss=False), tmp_path)
        assert landed(spark, tmp_path / "out") == [*range(100), *range(150, 200)]
