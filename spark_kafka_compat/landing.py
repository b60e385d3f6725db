"""Lands topics as Parquet, exactly once.

Spark's file sink keeps a log of finished micro batches beside the files (`_spark_metadata`). The checkpoint
stores the offsets of each micro batch before it runs. An interrupted micro batch runs again with the same
offsets. Readers that use the log, such as Spark, never see the files of the interrupted attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from seqgate.spark_kafka_compat.checkpoint_topics import CheckpointTopics, subscribed
from seqgate.spark_kafka_compat.endpoints import source, unwatched_source
from seqgate.spark_kafka_compat.options import COMMITTED, OptionValue, Use, checked_options
from seqgate.spark_kafka_compat.session import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITION_COLUMNS = ("topic", "date", "hour", "partition")
CHECKPOINT_FOLDER = "_checkpoint"


def landing_frame(records: DataFrame, *, text: bool = True, schema: str | None = None) -> DataFrame:
    """Return Kafka records with `date` and `hour` of their timestamp (UTC); with `text`, keys and values
    become text.

    With `schema` (Spark's DDL, such as "carrier string, distance int") the column `record` holds the value
    parsed as JSON, or null for a value that is not JSON. The text of the value stays in `value`.
    """
    from pyspark.sql import functions

    # Spark's own `to_date` and `hour` use the time zone of the session.
    days, hours = "floor(unix_seconds(`timestamp`) / 86400)", "floor(unix_seconds(`timestamp`) / 3600)"
    frame = records.withColumn("date", functions.expr(f"date_from_unix_date(cast({days} as int))"))
    frame = frame.withColumn("hour", functions.expr(f"cast(pmod({hours}, 24) as int)"))
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
    kept: CheckpointTopics | None = None,
) -> StreamingQuery:
    """Start a query that lands topics as partitioned Parquet under `path`, resuming from its checkpoint.

    Without `every` the query reads the present records and ends (`Trigger.AvailableNow`); with `every`, such
    as "10 seconds", the query runs until it is stopped. The default checkpoint is `path/_checkpoint`. Keep
    the checkpoint with the files: a path whose files are ahead of the checkpoint is refused, because Spark
    would skip micro batches. Use one path for one checkpoint. `options` are the source's; without
    `kafka.isolation.level` only committed records are landed. The ids of the topics are kept in the
    checkpoint. So a topic that was recreated since the last run is refused. A topic that is recreated while
    the query runs brings a warning; pass `kept`, from `checkpoint_topics` with the same arguments, to check
    the topics yourself instead.

    Raises `SparkCompatError` for unknown partition columns, and for files of another checkpoint;
    `UnknownOptionError`; `RecreatedTopicError`; `EndpointError`.
    """
    check_partition_columns(partition_by)
    options = {**COMMITTED, **(options or {})}
    if kept is None:
        records = source(spark, bootstrap, topics, stream=True, options=options)
        kept = checkpoint_topics(spark, bootstrap, path, checkpoint=checkpoint, options=options)
    else:
        records = unwatched_source(spark, bootstrap, topics, stream=True, options=options)
    kept.check_sink(path)
    named = topics.split(",") if isinstance(topics, str) else topics
    kept.check_start(subscribed(kept.options) if named is None else named)
    writer = (
        landing_frame(records, text=text, schema=schema)
        .writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", kept.checkpoint)
        .partitionBy(*partition_by)
        .queryName(_query_name(path, kept.checkpoint))
    )
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return trigger.start()


def _query_name(path: str, checkpoint: str) -> str:
    """Return the name of the query of a checkpoint; the last folders of two paths may be the same.

    Spark refuses a second query of one name. With another name, a second query of the same checkpoint would
    stop the first one without an error.
    """
    return f"land {PurePosixPath(path).name} {sha256(checkpoint.encode()).hexdigest()[:8]}"


def check_partition_columns(columns: Sequence[str]) -> None:
    """Raise `SparkCompatError` for a column that files can't be partitioned by."""
    unknown = [column for column in columns if column not in PARTITION_COLUMNS]
    if unknown:
        raise SparkCompatError(
            f"Files can't be partitioned by {', '.join(unknown)}; choose from {', '.join(PARTITION_COLUMNS)}."
        )


def checkpoint_topics(
    spark: SparkSession,
    bootstrap: str,
    path: str,
    *,
    checkpoint: str | None = None,
    options: Mapping[str, OptionValue] | None = None,
) -> CheckpointTopics:
    """Return the topics of the checkpoint of files under `path`. Raises `UnknownOptionError`."""
    folder = checkpoint or f"{path.rstrip('/')}/{CHECKPOINT_FOLDER}"
    checked = checked_options(Use.STREAM_READ, {**COMMITTED, **(options or {})})
    return CheckpointTopics(spark, bootstrap, folder, checked)
