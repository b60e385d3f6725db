"""Reads the demo's topic with Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.demo.login import Login
from spark_kafka_compat import source
from spark_kafka_compat.producer_audit import AuditReport, ProducerVerdict, audit_producers
from spark_kafka_compat.record_audit import RecordVerdict, audit_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Findings:
    """The results of one read of the whole topic, counted in three ways.

    `missing_rows` and `duplicate_rows` compare row numbers, 0 to the number of sent rows (exclusive). `verdicts` compares
    the numbers that each producer put into headers. `audit` compares producer ids and sequences in the batch headers; a
    secured topic has none, because only Spark logs in.
    """

    records: int
    records_by_partition: dict[int, int]
    flights_by_carrier: Counter[str]
    missing_rows: int
    duplicate_rows: int
    verdicts: list[RecordVerdict]
    audit: AuditReport | None

    @property
    def _audited(self) -> tuple[ProducerVerdict, ...]:
        return self.audit.producers if self.audit else ()

    @property
    def gaps(self) -> int:
        """The number of missing records: the largest of the three counts."""
        by_producer = sum(row.missing_records for row in self.verdicts)
        by_batch = sum(row.missing_records for row in self._audited)
        return max(self.missing_rows, by_producer, by_batch)

    @property
    def duplicates(self) -> int:
        """The number of duplicate records: the largest of the three counts."""
        by_producer = sum(row.duplicate_records for row in self.verdicts)
        by_batch = sum(row.duplicate_records for row in self._audited)
        return max(self.duplicate_rows, by_producer, by_batch)

    @property
    def reorderings(self) -> int:
        """The number of records that come after a record of the same producer with a higher number, in the same partition."""
        by_batch = sum(row.reordered_batches for row in self._audited)
        return max(sum(row.reordered_records for row in self.verdicts), by_batch)


def read_topic(
    spark: SparkSession, bootstrap: str, topic: str, sent: int, login: Login | None = None
) -> Findings:
    """Read the whole topic with `format("kafka")`; return how many records are lost, duplicated or out of order."""
    from pyspark.sql import functions

    options = login.for_spark() if login else {}
    records = source(spark, bootstrap, topic, options=options, includeHeaders=True).select(
        "topic",
        "partition",
        "offset",
        functions.expr("CAST(headers[0].value AS STRING)").alias("producer"),
        functions.expr("CAST(CAST(headers[1].value AS STRING) AS LONG)").alias("sequence"),
        functions.from_json(functions.col("value").cast("string"), "row long, carrier string").alias(
            "flight"
        ),
    )
    records = records.persist()
    by_partition = {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}
    by_carrier = records.groupBy("flight.carrier").count().collect()
    rows = records.select(functions.col("flight.row").alias("row")).where(
        functions.col("row").between(0, sent - 1)
    )
    distinct = rows.distinct().count()
    total = sum(by_partition.values())
    verdicts = audit_records(records, producer="producer", sequence="sequence", scope="topic")
    records.unpersist()
    return Findings(
        records=total,
        records_by_partition=dict(sorted(by_partition.items())),
        flights_by_carrier=Counter({row["carrier"]: row["count"] for row in by_carrier}),
        missing_rows=sent - distinct,
        duplicate_rows=total - distinct,
        verdicts=verdicts,
        audit=None if login else audit_producers(spark, bootstrap, [topic]),
    )
