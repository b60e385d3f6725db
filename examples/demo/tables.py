"""The result of the demo as tables, and the comparison of its counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from examples.demo.proxy import Fault, ProxyReport
from examples.demo.security import Attempt, Login
from seqgate.spark_kafka_compat import source
from seqgate.spark_kafka_compat.sequence_audit import (
    AuditReport,
    ProducerVerdict,
    RecordVerdict,
    audit_producers,
    audit_records,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Outcome:
    """All counts of the demo: flights sent, faults of the proxy, duplicates of the gateway, findings of
    Spark.

    `attempts` are those of an intruder; an open demo has none. Several gateways have no proxy before them;
    `kills` counts how often one was killed.
    """

    sent: int
    flights_by_carrier: Counter[str]
    findings: Findings
    proxy: ProxyReport | None = None
    duplicates_rejected: int = 0
    attempts: tuple[Attempt, ...] = ()
    kills: int = 0

    def disagreements(self) -> list[str]:
        """Return the counts that contradict each other, as sentences; empty when everything adds up."""
        found, wrong = self.findings, []
        if found.records != self.sent:
            wrong.append(f"{self.sent:,} flights were sent, but Spark reads {found.records:,}.")
        if found.gaps:
            wrong.append(f"Spark finds {found.gaps:,} flights missing.")
        if found.duplicates:
            wrong.append(f"Spark finds {found.duplicates:,} flights more than once.")
        if found.reorderings:
            wrong.append(f"Spark finds {found.reorderings:,} flights out of order.")
        if found.audit is not None:
            wrong += _complaints(found.audit)
        if found.flights_by_carrier != self.flights_by_carrier:
            wrong.append("Flights per carrier differ from those in the file.")
        if self.proxy is None and not self.kills:
            wrong.append("All flights were sent before a gateway was killed.")
        if self.proxy is not None and self.duplicates_rejected != self.proxy.duplicate_answers:
            wrong.append(
                f"The gateway counts {self.duplicates_rejected:,} duplicates, but the proxy saw answers to "
                f"{self.proxy.duplicate_answers:,}."
            )
        wrong += [
            f"The gateway let an intruder {row.what}: {row.answer}."
            for row in self.attempts
            if not row.refused
        ]
        return wrong


def _complaints(audit: AuditReport) -> list[str]:
    wrong = []
    if not audit.is_clean:
        wrong.append("The audit of the batch headers finds gaps, duplicates or reorderings.")
    if audit.records_without_producer_id:
        wrong.append(f"{audit.records_without_producer_id:,} records were sent without a producer id.")
    return wrong


def show(console: Console, outcome: Outcome) -> None:
    """Print the demo's tables of producers and records."""
    for table in (_partitions(outcome), _carriers(outcome), _faults(outcome), _spark(outcome)):
        console.print(table)
    if outcome.attempts:
        console.print(_intruder(outcome))


def _intruder(outcome: Outcome) -> Table:
    table = _table("What an intruder tried", "attempt", "answer")
    for row in outcome.attempts:
        table.add_row(row.what, f"[bold green]{row.answer}" if row.refused else f"[bold red]{row.answer}")
    return table


def _partitions(outcome: Outcome) -> Table:
    table = _table("Records per partition", "partition", "records")
    for partition, records in outcome.findings.records_by_partition.items():
        table.add_row(str(partition), f"{records:,}")
    table.add_section()
    table.add_row("all", f"{outcome.findings.records:,}")
    return table


def _faults(outcome: Outcome) -> Table:
    if outcome.proxy is None:
        return _kills(outcome)
    table = _table("Injected faults, and how the gateway handled them", "", "batches")
    proxy = outcome.proxy
    table.add_row("Produce requests through the proxy", f"{proxy.produce_requests:,}")
    table.add_row("connections closed in place of an answer", f"{proxy.faults[Fault.LOSE_ACKNOWLEDGEMENT]:,}")
    table.add_row("connections closed right after a request", f"{proxy.faults[Fault.DROP_CONNECTION]:,}")
    table.add_row("batches stored whose acknowledgement was lost", f"{proxy.unknown_to_clients:,}")
    table.add_section()
    rejected = f"[bold]{outcome.duplicates_rejected:,}"
    table.add_row("duplicates rejected by the gateway (retries answered with their first offset)", rejected)
    return table


def _kills(outcome: Outcome) -> Table:
    table = _table("Faults of the cluster", "", "times")
    table.add_row("a gateway was killed (SIGKILL), and started again later", f"{outcome.kills:,}")
    return table


def _spark(outcome: Outcome) -> Table:
    findings = outcome.findings
    table = _table("Found by Spark", "", "records")
    for what, count in (
        ("duplicates", findings.duplicates),
        ("gaps", findings.gaps),
        ("out of order", findings.reorderings),
    ):
        table.add_row(what, f"[bold red]{count:,}" if count else "[bold green]none")
    return table


def _carriers(outcome: Outcome) -> Table:
    table = _table("Flights per carrier", "carrier", "in the file", "in Spark", "equal")
    found = outcome.findings.flights_by_carrier
    for carrier, flights in outcome.flights_by_carrier.most_common():
        equal = "[green]yes" if found[carrier] == flights else "[bold red]no"
        table.add_row(carrier, f"{flights:,}", f"{found[carrier]:,}", equal)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


# Reads the demo's topic with Spark.


@dataclass(frozen=True)
class Findings:
    """The results of one read of the whole topic, counted in three ways.

    `missing_rows` and `duplicate_rows` compare row numbers, 0 to the number of sent rows (exclusive).
    `verdicts` compares the numbers that each producer put into headers. `audit` compares producer ids and
    sequences in the batch headers; a secured topic has none, because only Spark logs in.
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
        """The number of records that come after a record of the same producer with a higher number, in the
        same partition.
        """
        by_batch = sum(row.reordered_batches for row in self._audited)
        return max(sum(row.reordered_records for row in self.verdicts), by_batch)


def read_topic(
    spark: SparkSession, bootstrap: str, topic: str, sent: int, login: Login | None = None
) -> Findings:
    """Read the whole topic with `format("kafka")`; return how many records are lost, duplicated or out of
    order.
    """
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
