"""Counts and reads the named records of a topic with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgate.spark_kafka_compat import source
from tests.faults.deduplication.checker import Row
from tests.faults.deduplication.task import NAME_HEADER, SEQUENCE_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def named_records(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the committed records with their names and sequence ids as columns."""
    options = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    records = source(spark, bootstrap, topic, options=options)
    return records.selectExpr(
        "partition",
        "offset",
        f"CAST(filter(headers, h -> h.key = '{NAME_HEADER}')[0].value AS STRING) AS name",
        f"CAST(CAST(filter(headers, h -> h.key = '{SEQUENCE_HEADER}')[0].value AS STRING) AS BIGINT) AS "
        "sequence",
        "value",
    )


def how_often(records: DataFrame) -> dict[int, int]:
    """Return how many lines are stored once, how many twice, and so on, as Spark counts them."""
    times = records.groupBy("name", "sequence").count().withColumnRenamed("count", "times")
    return {row["times"]: row["count"] for row in times.groupBy("times").count().collect()}


def rows_of(records: DataFrame) -> list[Row]:
    return [
        Row(row["partition"], row["offset"], row["name"], row["sequence"], bytes(row["value"]))
        for row in records.collect()
    ]
