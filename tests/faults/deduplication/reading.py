"""Counts and reads the named records of a topic with Spark, once every transaction of the topic has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from seqgate.spark_kafka_compat import source
from tests.faults.deduplication.checker import Row
from tests.faults.deduplication.task import NAME_HEADER, SEQUENCE_HEADER
from tests.support.gateway_cluster import await_true

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECIDED_TIMEOUT_S = 300.0
"""More than the longest timeout of a transaction."""


def await_decided(bootstrap: str, topic: str, partitions: int) -> None:
    """Return once no transaction is open in the topic: readers of committed records wait at one.

    A life that sends only lines that are stored already writes empty batches into its transaction. If it is
    killed, later lives end while its transaction waits for its timeout.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}

    def ends(level: IsolationLevel) -> list[int]:
        found = admin.list_offsets(latest, isolation_level=level)
        return [answer.result(DECIDED_TIMEOUT_S).offset for answer in found.values()]

    await_true(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"every transaction of {topic} has ended",
        DECIDED_TIMEOUT_S,
    )


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
