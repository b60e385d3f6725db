"""Spark passes long runs of batches without records, as a batch query and as a stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from seqgate.spark_kafka_compat import source
from tests.compat.empty_batches import FETCH_BYTES, SparseLog, sparse_log

FEW = {"kafka.max.partition.fetch.bytes": str(FETCH_BYTES)}
OFFSETS_PER_TRIGGER = 700
"""Less than a run, so that some micro-batches contain no record."""


@pytest.fixture(scope="module")
def sparse(bootstrap: str) -> SparseLog:
    return sparse_log(bootstrap)


def _rows(frame: DataFrame) -> list[tuple[int, bytes]]:
    return sorted((row["offset"], bytes(row["value"])) for row in frame.select("offset", "value").collect())


def test_batch(spark: SparkSession, bootstrap: str, sparse: SparseLog) -> None:
    assert _rows(source(spark, bootstrap, sparse.topic, options=FEW)) == sparse.records


def test_batch_of_nothing_but_empty_batches(spark: SparkSession, bootstrap: str, sparse: SparseLog) -> None:
    behind = sparse.records[-1][0] + 1
    only = source(
        spark,
        bootstrap,
        sparse.topic,
        options=FEW,
        startingOffsets=json.dumps({sparse.topic: {"0": behind}}),
        endingOffsets=json.dumps({sparse.topic: {"0": sparse.log_end_offset}}),
    )
    assert _rows(only) == []


def test_stream(spark: SparkSession, bootstrap: str, sparse: SparseLog, tmp_path: Path) -> None:
    stream = source(
        spark, bootstrap, sparse.topic, stream=True, options=FEW, maxOffsetsPerTrigger=OFFSETS_PER_TRIGGER
    )
    table = str(tmp_path / "table")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(table)
    query.awaitTermination()
    assert _rows(spark.read.parquet(table)) == sparse.records
    last = query.lastProgress
    assert last is not None
    assert json.loads(last["sources"][0]["endOffset"]) == {sparse.topic: {"0": sparse.log_end_offset}}
