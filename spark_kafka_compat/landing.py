"""Lands topics as Parquet, exactly once.

Spark's file sink keeps a log of its finished micro batches beside the files (`_spark_metadata`), and the checkpoint keeps
the offsets of each micro batch before it runs. A micro batch that was cut short runs again with the same offsets, and
readers that honour the log, as Spark does, never see the files of the attempt before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from spark_kafka_compat.endpoints import source
from spark_kafka_compat.errors import SparkCompatError
from spark_kafka_compat.options import OptionValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITION_COLUMNS = ("topic", "date", "hour", "partition")
CHECKPOINT_FOLDER = "_checkpoint"


def landing_frame(records: DataFrame, *, text: bool = True, schema: str | None = None) -> DataFrame:
    """Kafka records with `date` and `hour` of their timestamp (UTC), and keys and values as text unless `text` is false.

    With `schema` (Spark's DDL, such as "carrier string, distance int") the value is parsed as JSON into a column
    `record`; a value that is no JSON leaves it null, and the text stays beside it.
    """
    from pyspark.sql import functions

    frame = records.withColumn("date", functions.to_date("timestamp"))
    frame = frame.withColumn("hour", functions.hour("timestamp"))
    if schema is not None:
        value = functions.col("value").cast("string")
        frame = frame.withColumn("record", functions.from_json(value, schema))
    if text or schema is not None:
        frame = frame.withColumn("key", functions.col("key").cast("string"))
        frame = frame.withColumn("value", functions.col("value").cast("string"))
    return frame


def land(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str] | None,
    path: str,
    *,
    checkpoint: str | None = None,
    partition_by: Sequence[str] = ("topic", "date"),
    every: str | None = None,
    text: bool = True,
    schema: str | None = None,
    options: Mapping[str, OptionValue] | None = None,
) -> StreamingQuery:
    """Start landing topics in partitioned Parquet under `path`; the query goes on where its checkpoint left off.

    Without `every` it takes what is there now and ends (`Trigger.AvailableNow`); with `every`, such as "10 seconds", it
    goes on until it is stopped. The checkpoint lies in `path/_checkpoint` unless told; keep it with the files: files
    without their checkpoint would be written a second time. `options` are the source's.

    Raises `SparkCompatError` for partition columns that the records don't have, `UnknownOptionError`.
    """
    unknown = [column for column in partition_by if column not in PARTITION_COLUMNS]
    if unknown:
        raise SparkCompatError(
            f"Can't partition by {', '.join(unknown)}; choose from {', '.join(PARTITION_COLUMNS)}."
        )
    records = source(spark, bootstrap, topics, stream=True, options=options)
    writer = (
        landing_frame(records, text=text, schema=schema)
        .writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", checkpoint or f"{path.rstrip('/')}/{CHECKPOINT_FOLDER}")
        .partitionBy(*partition_by)
        .queryName(f"land {PurePosixPath(path).name}")
    )
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return trigger.start()
