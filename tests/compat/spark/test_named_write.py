"""Rows that Spark writes more than once are stored once if each row names its source record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from seqgate.spark_kafka_compat import SparkCompatError, sink, source
from seqgate.spark_kafka_compat.endpoints import named_by_source
from tests.compat.spark.topics import Topics, values_of
from tests.support.markdown import blocks

DEDUPLICATED = {"message.deduplication.enable": "true"}


def doubled(rows: DataFrame) -> DataFrame:
    """Return twice the value of each source row, one row per record, and drop every tenth record."""
    return rows.where("CAST(CAST(value AS STRING) AS INT) % 10 != 3").selectExpr(
        "topic", "partition", "offset", "CAST(CAST(CAST(value AS STRING) AS INT) * 2 AS STRING) AS value"
    )


PAGE = Path(__file__).resolve().parents[3] / "docs" / "deduplication.md"
WANTED = [2 * value for value in range(600) if value % 10 != 3]


@pytest.fixture
def incoming(topics: Topics) -> str:
    topic = topics.fresh(partitions=2)
    topics.fill(topic, range(300), partition=0)
    topics.fill(topic, range(300, 600), partition=1)
    return topic


@pytest.mark.tier("test")
def test_batches_that_overlap(spark: SparkSession, topics: Topics, incoming: str) -> None:
    outgoing = topics.fresh(partitions=2, configs=DEDUPLICATED)
    records = source(spark, topics.bootstrap, incoming)
    for part in (records.where("offset < 100"), records, records):
        rows = named_by_source(doubled(part), "doubling")
        sink(rows, topics.bootstrap, outgoing, includeHeaders=True).save()
    stored = source(spark, topics.bootstrap, outgoing)
    assert values_of(stored) == WANTED
    ordered = stored.where("partition = 0").orderBy("offset").selectExpr("CAST(value AS STRING)").collect()
    assert [int(row[0]) for row in ordered] == [value for value in WANTED if value < 600]


def test_a_stream_that_lost_its_checkpoint(
    spark: SparkSession, topics: Topics, incoming: str, tmp_path: Path
) -> None:
    outgoing = topics.fresh(partitions=2, configs=DEDUPLICATED)
    plain = topics.fresh(partitions=2)
    for life in ("first", "second"):
        records = source(spark, topics.bootstrap, incoming, stream=True, maxOffsetsPerTrigger=150)
        for topic in (outgoing, plain):
            writer = sink(
                named_by_source(doubled(records), "doubling"),
                topics.bootstrap,
                topic,
                stream=True,
                includeHeaders=True,
                checkpointLocation=str(tmp_path / life / topic),
            )
            assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert values_of(source(spark, topics.bootstrap, outgoing)) == WANTED
    # the same write without the setting, which stores duplicates
    assert source(spark, topics.bootstrap, plain).count() == 2 * len(WANTED)


Change = Callable[[DataFrame], DataFrame]
OUT_OF_ORDER: dict[str, Change] = {
    "Generate": lambda rows: rows.selectExpr("*", "explode(array(1, 2)) AS one"),
    "Join": lambda rows: rows.join(rows.sparkSession.range(2)),
    "Sort": lambda rows: rows.orderBy("value"),
    "RepartitionByExpression": lambda rows: rows.repartition("value"),
    "Repartition": lambda rows: rows.repartition(3),
    "Deduplicate": lambda rows: rows.dropDuplicates(["value"]),
    "DeduplicateWithinWatermark": lambda rows: rows.dropDuplicatesWithinWatermark(["value"]),
    "Union": lambda rows: rows.where("offset % 2 = 0").union(rows.where("offset % 2 = 1")),
}


@pytest.mark.parametrize("kind", OUT_OF_ORDER)
def test_rows_that_would_be_taken_for_duplicates(
    spark: SparkSession, topics: Topics, incoming: str, kind: str
) -> None:
    records = source(spark, topics.bootstrap, incoming)
    with pytest.raises(SparkCompatError, match=rf"\({kind}\)"):
        named_by_source(OUT_OF_ORDER[kind](records).where("offset > 3"), "a")


GROUPED = (
    *("FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "MapGroups", "CoGroup"),
    *("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState"),
    *("TransformWithState", "TransformWithStateInPandas"),
)


@pytest.mark.parametrize("kind", GROUPED)
def test_groups_are_refused(kind: str) -> None:
    """The plan is a double: a session builds these nodes only with pyarrow, or from Scala."""
    jvm = Mock()
    node = jvm.queryExecution.return_value.analyzed.return_value
    node.nodeName.return_value = kind
    node.children.return_value.size.return_value = 0
    rows = Mock(columns=["topic", "partition", "offset", "value"], _jdf=jvm)
    with pytest.raises(SparkCompatError, match=rf"order of the records \({kind}\)"):
        named_by_source(rows, "a")


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_partitions_that_several_tasks_read(
    spark: SparkSession, topics: Topics, incoming: str, option: str
) -> None:
    records = source(spark, topics.bootstrap, incoming, stream=True, options={option: 10})
    with pytest.raises(SparkCompatError, match=option):
        named_by_source(doubled(records), "a")


def test_rows_in_order_are_taken(spark: SparkSession, topics: Topics, incoming: str) -> None:
    records = source(spark, topics.bootstrap, incoming)
    rows = named_by_source(records.where("length(value) > 1").coalesce(1), "a")
    assert rows.columns == ["key", "value", "partition", "headers"]


def test_sends_of_named_rows_never_give_up(
    spark: SparkSession, topics: Topics, incoming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(DataFrameWriter, "options", lambda writer, **options: given.append(options) or writer)
    records = source(spark, topics.bootstrap, incoming)
    named = named_by_source(records, "a").where("length(value) > 1")
    for rows, options in ((named, {}), (named, {"kafka.delivery.timeout.ms": 5}), (records, {})):
        sink(rows, topics.bootstrap, "t", options=options)
    assert [options.get("kafka.delivery.timeout.ms") for options in given] == [str(2**31 - 1), "5", None]
    assert [options.get("kafka.enable.idempotence") for options in given] == ["true", "true", None]


@pytest.mark.parametrize(("columns", "name"), [(["topic", "partition", "value"], "a"), (None, "")])
def test_rows_that_do_not_say_where_they_come_from(
    spark: SparkSession, topics: Topics, incoming: str, columns: list[str] | None, name: str
) -> None:
    records = source(spark, topics.bootstrap, incoming)
    with pytest.raises(SparkCompatError):
        named_by_source(records if columns is None else records.select(*columns), name)


def test_the_example_of_the_page(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    incoming, outgoing = topics.fresh(), topics.fresh(configs=DEDUPLICATED)
    topics.fill(incoming, [10**99, 5, 10**120, 10**100])
    (example,) = (block.text for block in blocks(PAGE) if "named_by_source(" in block.text)
    for told, own in {
        'spark = session("large orders")\n': "",
        "127.0.0.1:9092": topics.bootstrap,
        '"orders"': repr(incoming),
        '"large"': repr(outgoing),
        "/var/lib/large": str(tmp_path / "checkpoint"),
        ".awaitTermination()": "",
        "writer.option": "query = writer.option",
    }.items():
        assert told in example
        example = example.replace(told, own)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(example, PAGE.name, "exec"), names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert values_of(source(spark, topics.bootstrap, outgoing)) == [10**100, 10**120]
