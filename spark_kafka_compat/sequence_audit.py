"""Audits topics by the batch headers of every producer id, and records by numbers of their own.

Kafka's rule (KIP-98): within a producer epoch every batch begins where the previous batch ended, sequences
wrap from 2^31-1 to 0, and a new epoch begins at 0. A log that follows the rule has no gap, duplicate or
reordering. The audit reads only the log, and needs no state of the broker: Spark reads splits of offset
ranges, and sorts the headers by partition, producer and offset. One `Trail` follows each producer, so memory
does not grow with the topic.

The audit of records finds what batch headers can't show: records that the application lost or sent twice
before a client numbered them.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seqgate.spark_kafka_compat.batch_reader import BatchRow, plan_splits, read_split
from seqgate.spark_kafka_compat.session import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


SEQUENCE_SPAN = 1 << 31
FINDINGS_KEPT = 20
"""The number of findings of each kind that a trail keeps; further findings are only counted."""


class FindingKind(StrEnum):
    """The kinds of breaches in a producer's batches of one partition."""

    GAP = "gap"
    DUPLICATE = "duplicate"
    REORDERING = "reordering"


class Finding(NamedTuple):
    """One breach: `records` sequences from `first_sequence` to `last_sequence` (inclusive, wrapping).
    `offset` is the base offset of a duplicate or late batch, or of the batch before a gap (-1: none).
    """

    kind: FindingKind
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    records: int
    offset: int


@dataclass
class Trail:
    """The trail of one producer through one partition: `observe` each batch in offset order, then `finish`.

    With `complete_from_start` the log still holds its very first record, so a first sequence other than 0 is
    a gap too. A `compacted` topic has no gaps, because compaction removes records. Counts are exact;
    `findings` holds the first 20 findings of each kind.
    """

    complete_from_start: bool = True
    compacted: bool = False
    missing_records: int = 0
    duplicate_records: int = 0
    reordered_batches: int = 0
    first_sequence: int = -1
    last_sequence: int = -1
    producer_epoch: int = -1
    findings: list[Finding] = field(default_factory=list)
    _seen: list[tuple[int, int]] = field(default_factory=list)
    _offset_before: dict[int, int] = field(default_factory=dict)
    _next: int = 0
    _last_base_offset: int = -1

    def observe(self, batch: BatchRow) -> None:
        first, records, offset = batch.base_sequence, batch.sequence_count, batch.base_offset
        if batch.producer_epoch < self.producer_epoch:
            self.reordered_batches += 1
            self._report(FindingKind.REORDERING, batch.producer_epoch, first, records, offset)
            return
        if batch.producer_epoch > self.producer_epoch:
            self._begin_epoch(batch)
        else:
            first = self._next + _distance(self._next, first)
        self._place(first, first + records, offset)
        self.last_sequence = (self._next - 1) % SEQUENCE_SPAN

    def finish(self) -> None:
        """Find the gaps of the present epoch. Only now is known which gaps no late batch filled."""
        for (_, low), (high, _) in pairwise(() if self.compacted else self._seen):
            self.missing_records += high - low
            before = self._offset_before.get(high, -1)
            self._report(FindingKind.GAP, self.producer_epoch, low, high - low, before)
        self._seen = []

    def _begin_epoch(self, batch: BatchRow) -> None:
        is_first = self.producer_epoch < 0
        self.finish()
        self.producer_epoch = batch.producer_epoch
        if is_first:
            self.first_sequence = batch.base_sequence
        self._next = batch.base_sequence if is_first and not self.complete_from_start else 0
        self._seen = [(self._next, self._next)]
        self._offset_before = {}
        self._last_base_offset = -1

    def _place(self, first: int, end: int, base_offset: int) -> None:
        repeated = 0
        for low, high in self._seen:
            both = range(max(low, first), min(high, end))
            if both:
                repeated += len(both)
                self._report(FindingKind.DUPLICATE, self.producer_epoch, both.start, len(both), base_offset)
        self.duplicate_records += repeated
        if first < self._next and repeated < end - first:
            self.reordered_batches += 1
            self._report(FindingKind.REORDERING, self.producer_epoch, first, end - first, base_offset)
        if first > self._next:
            self._offset_before[first] = self._last_base_offset
        self._seen = _merged(self._seen, first, end)
        self._next = max(self._next, end)
        self._last_base_offset = base_offset

    def _report(self, kind: FindingKind, producer_epoch: int, first: int, records: int, offset: int) -> None:
        if sum(finding.kind == kind for finding in self.findings) < FINDINGS_KEPT:
            last = (first + records - 1) % SEQUENCE_SPAN
            self.findings.append(Finding(kind, producer_epoch, first % SEQUENCE_SPAN, last, records, offset))


def _distance(expected: int, sequence: int) -> int:
    """Return by how much a sequence exceeds the expected one; of both ways around the smaller counts."""
    ahead = (sequence - expected) % SEQUENCE_SPAN
    return ahead if ahead < SEQUENCE_SPAN // 2 else ahead - SEQUENCE_SPAN


def _merged(ranges: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    position = bisect_right(ranges, (first, end))
    merged: list[tuple[int, int]] = []
    for low, high in [*ranges[:position], (first, end), *ranges[position:]]:
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def judge_offsets(spans: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
    """Return the end offset, the missing and the overlapping offsets of batches, each with its first and last
    offset, in offset order. Offsets are dense without compaction.
    """
    end, missing, overlapping = -1, 0, 0
    for base_offset, last_offset in spans:
        if end >= 0:
            missing += max(0, base_offset - end)
            overlapping += max(0, end - base_offset)
        end = max(end, last_offset + 1)
    return end, missing, overlapping


NO_PRODUCER_ID = -1


class ProducerVerdict(NamedTuple):
    """The verdict about a producer id in a partition; -1: records without idempotence, only counted."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    batches: int
    records: int
    first_sequence: int
    last_sequence: int
    missing_records: int
    duplicate_records: int
    reordered_batches: int
    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        return not (self.missing_records or self.duplicate_records or self.reordered_batches)


class OffsetVerdict(NamedTuple):
    """The verdict about the offsets of a partition from `log_start_offset` to `end_offset` (exclusive)."""

    topic: str
    partition: int
    log_start_offset: int
    end_offset: int
    missing_offsets: int
    overlapping_offsets: int

    @property
    def is_clean(self) -> bool:
        return not (self.missing_offsets or self.overlapping_offsets)


@dataclass(frozen=True)
class AuditReport:
    """The verdicts of all producers and partitions, sorted by topic, partition, producer id."""

    producers: tuple[ProducerVerdict, ...]
    offsets: tuple[OffsetVerdict, ...]

    @property
    def is_clean(self) -> bool:
        """True when no producer has a gap, duplicate or reordering, and all offsets are dense."""
        return all(row.is_clean for row in self.producers) and all(row.is_clean for row in self.offsets)

    @property
    def records_without_producer_id(self) -> int:
        """The number of records without a producer id, which can't be audited."""
        return sum(row.records for row in self.producers if row.producer_id == NO_PRODUCER_ID)


def audit_producers(
    spark: SparkSession,
    bootstrap: str,
    topics: Sequence[str],
    *,
    compacted: bool = False,
    records_per_split: int = 1_000_000,
) -> AuditReport:
    """Return the gaps, duplicates and reorderings in these topics' batches, per producer id and partition.

    A first sequence other than 0 is a gap if the log still begins at offset 0. With `compacted`, missing
    records and offsets are not counted, because compaction removes records. Raises `EndpointError`.
    """
    splits = plan_splits(bootstrap, topics, records_per_split)
    log_starts = {(split.topic, split.partition): split.log_start_offset for split in splits}
    tasks = max(1, min(len(splits), spark.sparkContext.defaultParallelism))
    rows = spark.sparkContext.parallelize(splits, max(1, len(splits))).flatMap(read_split)
    keyed = rows.flatMap(_keyed)
    in_order = keyed.repartitionAndSortWithinPartitions(tasks, _task_of, keyfunc=_sort_key)
    verdicts = in_order.mapPartitions(lambda rows: _judged_groups(rows, log_starts, compacted)).collect()
    return AuditReport(
        producers=tuple(sorted(row for row in verdicts if isinstance(row, ProducerVerdict))),
        offsets=tuple(sorted(row for row in verdicts if isinstance(row, OffsetVerdict))),
    )


_Key = tuple[str, int, int, int]
"""(topic, partition, producer id or _WHOLE_PARTITION, base offset)"""
_WHOLE_PARTITION = -1 << 63


def _keyed(row: BatchRow) -> Iterator[tuple[_Key, BatchRow]]:
    yield (row.topic, row.partition, _WHOLE_PARTITION, row.base_offset), row
    yield (row.topic, row.partition, row.producer_id, row.base_offset), row


def _task_of(key: _Key) -> int:
    return zlib.crc32(repr(key[:3]).encode())


def _sort_key(key: _Key) -> Any:
    return key


def _judged_groups(
    rows: Iterable[tuple[_Key, BatchRow]], log_starts: Mapping[tuple[str, int], int], compacted: bool
) -> Iterator[ProducerVerdict | OffsetVerdict]:
    for (topic, partition, producer_id), group in groupby(rows, key=lambda row: row[0][:3]):
        batches = (batch for _, batch in group)
        log_start_offset = log_starts[topic, partition]
        if producer_id != _WHOLE_PARTITION:
            trail = Trail(log_start_offset == 0 and not compacted, compacted)
            yield _judged_producer(topic, partition, producer_id, batches, trail)
            continue
        end, missing, overlapping = judge_offsets((batch.base_offset, batch.last_offset) for batch in batches)
        missing = 0 if compacted else missing
        yield OffsetVerdict(topic, partition, log_start_offset, end, missing, overlapping)


def _judged_producer(
    topic: str, partition: int, producer_id: int, batches: Iterable[BatchRow], trail: Trail
) -> ProducerVerdict:
    counted = records = 0
    for batch in batches:
        if batch.is_control:
            continue
        counted, records = counted + 1, records + batch.record_count
        if producer_id != NO_PRODUCER_ID and batch.base_sequence >= 0:
            trail.observe(batch)
    trail.finish()
    return ProducerVerdict(
        topic,
        partition,
        producer_id,
        trail.producer_epoch,
        counted,
        records,
        trail.first_sequence,
        trail.last_sequence,
        trail.missing_records,
        trail.duplicate_records,
        trail.reordered_batches,
        tuple(trail.findings),
    )


Scope = Literal["partition", "topic"]
_HEADER, _JSON = re.compile(r"header:(.+)", re.DOTALL), re.compile(r"json:(.+)", re.DOTALL)


class RecordVerdict(NamedTuple):
    """The verdict about a producer's own numbers, in one partition or (-1) in the whole topic."""

    topic: str
    partition: int
    producer: str
    records: int
    first_sequence: int
    last_sequence: int
    missing_records: int
    duplicate_records: int
    reordered_records: int

    @property
    def is_clean(self) -> bool:
        return not (self.missing_records or self.duplicate_records or self.reordered_records)


def field_column(expression: str) -> Column:
    """Return a column of a record: `header:NAME`, `json:$.path` of the value, or SQL on Spark's columns."""
    from pyspark.sql import functions

    if header := _HEADER.fullmatch(expression):
        name = header[1].replace("'", "\\'")
        return functions.expr(f"CAST(get(filter(headers, h -> h.key = '{name}'), 0).value AS STRING)")
    if path := _JSON.fullmatch(expression):
        return functions.get_json_object(functions.col("value").cast("string"), path[1])
    return functions.expr(expression)


def audit_records(
    df: DataFrame,
    *,
    producer: str = "header:producer",
    sequence: str = "header:sequence",
    scope: Scope = "partition",
    compacted: bool = False,
) -> list[RecordVerdict]:
    """Return the gaps, duplicates and reorderings of records that carry a producer's name and a number.

    `df` has Spark's Kafka columns (with headers when an expression needs them); see `field_column` for the
    expressions. With scope "partition" a producer numbers the records of each partition separately; with
    "topic" the numbers continue over all partitions. Order is always judged within a partition, since a topic
    has no order. A gap is a missing number between the first and the last number of a producer; with
    `compacted`, missing records are not counted, because compaction removes records. Raises
    `SparkCompatError` when a record carries no number.
    """
    from pyspark.sql import Window, functions

    rows = df.select(
        "topic",
        "partition",
        "offset",
        field_column(producer).cast("string").alias("producer"),
        field_column(sequence).try_cast("long").alias("sequence"),
    )
    earlier = (
        Window.partitionBy("topic", "partition", "producer")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    marked = rows.withColumn("is_late", functions.col("sequence") < functions.max("sequence").over(earlier))
    where = functions.col("partition") if scope == "partition" else functions.lit(-1)
    found = (
        marked.groupBy("topic", where.alias("place"), "producer")
        .agg(
            functions.count("*").alias("records"),
            functions.count("sequence").alias("numbered"),
            functions.min("sequence").alias("first"),
            functions.max("sequence").alias("last"),
            functions.countDistinct("sequence").alias("distinct"),
            functions.coalesce(functions.sum(functions.col("is_late").cast("long")), functions.lit(0)).alias(
                "late"
            ),
        )
        .orderBy("topic", "place", "producer")
        .collect()
    )
    verdicts = []
    for topic, place, name, records, numbered, first, last, distinct, late in found:
        if numbered < records or name is None:
            raise SparkCompatError(
                f"Some records of {topic} carry no producer in {producer!r} or no number in {sequence!r}; "
                "choose other expressions."
            )
        missing = 0 if compacted else last - first + 1 - distinct
        duplicates = records - distinct
        verdicts.append(RecordVerdict(topic, place, name, records, first, last, missing, duplicates, late))
    return verdicts
