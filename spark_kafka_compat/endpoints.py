"""The functions `source()` and `sink()`: read a Kafka endpoint as a data frame, and write a data frame to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from spark_kafka_compat.connector import connector_coordinates
from spark_kafka_compat.errors import ConnectorMissingError, SparkCompatError
from spark_kafka_compat.names import settings_for
from spark_kafka_compat.options import OptionValue, Use, checked_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STRATEGIES = ("subscribe", "subscribePattern", "assign")


def source(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str] | None = None,
    *,
    stream: bool = False,
    options: Mapping[str, OptionValue] | None = None,
    **named: OptionValue,
) -> DataFrame:
    """Return the records of topics as a data frame, batch or streaming, with Spark's Kafka columns.

    `topics` is one name or several; without `topics`, give `subscribePattern` or `assign`. All other options are Spark's
    (see `spark_kafka_compat.options`): pass them as keywords, or in `options` when a name has dots. Without an option that
    begins with `starting`, a stream begins at the earliest offset. Spark's own default, latest, misses existing records.
    The query of a stream keeps the ids of its topics in its checkpoint, and a recreated topic brings a warning in Python's log
    (`spark_kafka_compat.topic_watch`).

    Raises `UnknownOptionError`; `SparkCompatError` without exactly one choice of topics; `ConnectorMissingError`.
    """
    frame = unwatched_source(spark, bootstrap, topics, stream=stream, options=options, **named)
    if stream:
        from spark_kafka_compat.topic_watch import watch

        watch(spark)
    return frame


def unwatched_source(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str] | None = None,
    *,
    stream: bool = False,
    options: Mapping[str, OptionValue] | None = None,
    **named: OptionValue,
) -> DataFrame:
    """Return the data frame of `source`, for a pipeline that compares topic ids itself."""
    use = Use.STREAM_READ if stream else Use.BATCH_READ
    checked = checked_options(use, {**(options or {}), **named})
    if topics is not None:
        if "subscribe" in checked:
            raise SparkCompatError(
                "The topics are given twice: pass either the argument topics or the option subscribe."
            )
        checked["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
    chosen = [name for name in _STRATEGIES if name in checked]
    if len(chosen) != 1:
        given = " and ".join(chosen) if chosen else "none of them"
        raise SparkCompatError(
            f"Give exactly one of {', '.join(_STRATEGIES)} (topics are subscribe); got {given}."
        )
    if stream and not any(name.startswith("starting") for name in checked):
        checked["startingOffsets"] = "earliest"
    checked["kafka.bootstrap.servers"] = bootstrap
    try:
        if stream:
            return spark.readStream.format("kafka").options(**checked).load()
        return spark.read.format("kafka").options(**checked).load()
    except Exception as error:
        raise _connector_missing(error) or error from error


@overload
def sink(
    df: DataFrame,
    bootstrap: str,
    topic: str | None = None,
    *,
    stream: Literal[False] = False,
    options: Mapping[str, OptionValue] | None = None,
    **named: OptionValue,
) -> DataFrameWriter: ...
@overload
def sink(
    df: DataFrame,
    bootstrap: str,
    topic: str | None = None,
    *,
    stream: Literal[True],
    options: Mapping[str, OptionValue] | None = None,
    **named: OptionValue,
) -> DataStreamWriter: ...
def sink(
    df: DataFrame,
    bootstrap: str,
    topic: str | None = None,
    *,
    stream: bool = False,
    options: Mapping[str, OptionValue] | None = None,
    **named: OptionValue,
) -> DataFrameWriter | DataStreamWriter:
    """Return a writer of the rows' `key` and `value` (and `topic`, `partition`, `headers`) to a Kafka endpoint.

    Call `.save()` on the writer, or with `stream=True` `.start()` after any `.trigger(...)`. The client is idempotent, as
    always since Kafka 3. A Spark task that fails and runs again still writes its rows again, so a reader that must not see a
    row twice needs a key in the row. Rows of `names.named_by_source` are stored once; their default delivery timeout is
    unlimited.

    Raises `UnknownOptionError`; `SparkCompatError` when `stream` does not fit the data frame.
    """
    if df.isStreaming != stream:
        raise SparkCompatError(
            "The data frame is streaming: call sink(..., stream=True)."
            if df.isStreaming
            else "The data frame is not streaming: call sink() without stream=True."
        )
    use = Use.STREAM_WRITE if stream else Use.BATCH_WRITE
    checked = {**settings_for(df), **checked_options(use, {**(options or {}), **named})}
    if topic is not None:
        checked["topic"] = topic
    checked["kafka.bootstrap.servers"] = bootstrap
    if stream:
        return df.writeStream.format("kafka").options(**checked)
    return df.write.format("kafka").options(**checked).mode("append")


def _connector_missing(error: Exception) -> ConnectorMissingError | None:
    text = str(error)
    if "kafka" in text and ("Failed to find" in text or "DATA_SOURCE_NOT_FOUND" in text):
        return ConnectorMissingError(
            "This SparkSession has no Kafka connector: create the session with spark_kafka_compat.session(), or pass "
            f"--packages {connector_coordinates()} to spark-submit."
        )
    return None
