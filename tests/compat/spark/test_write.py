from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from seqgate.spark_kafka_compat import SparkCompatError, sink, source
from tests.compat.spark.topics import Topics, values_of


@pytest.mark.tier("test")
def test_batch(spark: SparkSession, topics: Topics) -> None:
    topic = topics.fresh(partitions=2)
    rows = spark.range(1_000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    sink(rows, topics.bootstrap, topic).save()
    assert values_of(source(spark, topics.bootstrap, topic)) == list(range(1_000))


def test_each_row_names_its_topic_partition_and_headers(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.fresh(partitions=2), topics.fresh(partitions=2)
    rows = spark.createDataFrame(
        [(first, 1, "1", [("h", b"x")]), (second, 0, "2", [("h", b"y")])],
        "topic string, partition int, value string, headers array<struct<key: string, value: binary>>",
    )
    sink(rows, topics.bootstrap, includeHeaders=True).save()
    found = source(spark, topics.bootstrap, [first, second], includeHeaders=True).collect()
    assert {(row.topic, row.partition, bytes(row.value), bytes(row.headers[0].value)) for row in found} == {
        (first, 1, b"1", b"x"),
        (second, 0, b"2", b"y"),
    }


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    incoming, outgoing = topics.fresh(partitions=2), topics.fresh(partitions=2)
    for values in (range(500), range(500, 1_000)):
        topics.fill(incoming, values, partition=values.start // 500)
        rows = source(spark, topics.bootstrap, incoming, stream=True).select("key", "value")
        writer = sink(rows, topics.bootstrap, outgoing, stream=True, checkpointLocation=str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    assert values_of(source(spark, topics.bootstrap, outgoing)) == list(range(1_000))


def test_without_a_value_spark_says_so(spark: SparkSession, topics: Topics) -> None:
    with pytest.raises(AnalysisException, match="value"):
        sink(spark.range(1).selectExpr("CAST(id AS STRING) AS key"), topics.bootstrap, "t").save()


def test_the_kind_of_frame_must_fit(spark: SparkSession, topics: Topics) -> None:
    with pytest.raises(SparkCompatError, match="not streaming"):
        sink(spark.range(1), topics.bootstrap, "t", stream=True)
