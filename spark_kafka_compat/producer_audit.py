"""Audits topics by the batch headers of every producer id, in parallel with Spark.

Spark reads splits of offset ranges, and sorts the headers by partition, producer and offset. One `Trail` follows each
producer, so memory does not grow with the topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_compat.batch_reader import BatchRow, Split, plan_splits, read_split
from spark_kafka_compat.sequence_audit import Finding, Kind, OffsetTrail, SequencedBatch, Trail

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

NO_PRODUCER_ID = -1
BATCH_SCHEMA = (
    "topic string, partition int, base_offset long, last_offset long, producer_id long, producer_epoch int, "
    "base_sequence int, record_count int, is_transactional boolean, is_control boolean, max_timestamp long, "
    "batch_bytes int"
)
RECORDS_PER_SPLIT = 1_000_000


class ProducerVerdict(NamedTuple):
    """The verdict about one producer id in one partition. `producer_id` -1: records without idempotence, only counted."""

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
        """True when the producer has no gap, duplicate or reordering."""
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
        """True when every offset exists exactly once."""
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


def batch_headers(
    spark: SparkSession, bootstrap: str, topics: Sequence[str], *, records_per_split: int = RECORDS_PER_SPLIT
) -> DataFrame:
    """Return one row per record batch of these topics (see `BatchRow`), for queries of your own.

    Raises `EndpointError` when the endpoint is unreachable or a topic is missing.
    """
    splits = plan_splits(bootstrap, topics, records_per_split)
    return spark.createDataFrame(_read(spark, splits), BATCH_SCHEMA)


def audit_producers(
    spark: SparkSession,
    bootstrap: str,
    topics: Sequence[str],
    *,
    compacted: bool = False,
    records_per_split: int = RECORDS_PER_SPLIT,
) -> AuditReport:
    """Return the gaps, duplicates and reorderings in these topics' batches, per producer id and partition.

    A first sequence other than 0 is a gap if the log still begins at offset 0. With `compacted`, missing records and offsets
    are not counted, because compaction removes records. Raises `EndpointError`.
    """
    splits = plan_splits(bootstrap, topics, records_per_split)
    log_starts = {(split.topic, split.partition): split.log_start_offset for split in splits}
    tasks = max(1, min(len(splits), spark.sparkContext.defaultParallelism))
    keyed = _read(spark, splits).flatMap(_keyed)
    in_order = keyed.repartitionAndSortWithinPartitions(tasks, _task_of, keyfunc=_sort_key)
    verdicts = in_order.mapPartitions(lambda rows: _judged_groups(rows, log_starts, compacted)).collect()
    return AuditReport(
        producers=tuple(sorted(row for row in verdicts if isinstance(row, ProducerVerdict))),
        offsets=tuple(sorted(row for row in verdicts if isinstance(row, OffsetVerdict))),
    )


_Key = tuple[str, int, int, int]
"""(topic, partition, producer id or _WHOLE_PARTITION, base offset)"""
_WHOLE_PARTITION = -1 << 63


def _read(spark: SparkSession, splits: Sequence[Split]) -> RDD[BatchRow]:
    return spark.sparkContext.parallelize(splits, max(1, len(splits))).flatMap(read_split)


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
        if producer_id == _WHOLE_PARTITION:
            yield _judged_offsets(topic, partition, batches, log_start_offset, compacted)
        else:
            yield _judged_producer(topic, partition, producer_id, batches, log_start_offset, compacted)


def _judged_producer(
    topic: str,
    partition: int,
    producer_id: int,
    batches: Iterable[BatchRow],
    log_start_offset: int,
    compacted: bool,
) -> ProducerVerdict:
    trail = Trail(complete_from_start=log_start_offset == 0 and not compacted)
    counted = records = 0
    for batch in batches:
        if not batch.is_control:
            counted, records = counted + 1, records + batch.record_count
        if producer_id != NO_PRODUCER_ID and not batch.is_control and batch.base_sequence >= 0:
            trail.observe(
                SequencedBatch(
                    batch.producer_epoch, batch.base_sequence, batch.sequence_count, batch.base_offset
                )
            )
    findings = [finding for finding in trail.finish() if not (compacted and finding.kind is Kind.GAP)]
    return ProducerVerdict(
        topic=topic,
        partition=partition,
        producer_id=producer_id,
        producer_epoch=trail.producer_epoch,
        batches=counted,
        records=records,
        first_sequence=trail.first_sequence,
        last_sequence=trail.last_sequence,
        missing_records=0 if compacted else trail.missing_records,
        duplicate_records=trail.duplicate_records,
        reordered_batches=trail.reordered_batches,
        findings=tuple(findings),
    )


def _judged_offsets(
    topic: str, partition: int, batches: Iterable[BatchRow], log_start_offset: int, compacted: bool
) -> OffsetVerdict:
    trail = OffsetTrail()
    for batch in batches:
        trail.observe(batch.base_offset, batch.last_offset)
    return OffsetVerdict(
        topic=topic,
        partition=partition,
        log_start_offset=log_start_offset,
        end_offset=trail.next_offset,
        missing_offsets=0 if compacted else trail.missing_offsets,
        overlapping_offsets=trail.overlapping_offsets,
    )
