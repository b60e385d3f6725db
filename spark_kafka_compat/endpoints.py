"""The functions `source()` and `sink()`: read a Kafka endpoint as a data frame, and write one to it.

Spark's Kafka sink writes at least once: a task, a micro batch or a query that runs again writes its rows
again. A topic with `message.deduplication.enable` (see docs/deduplication.md) stores rows with a producer
name and a sequence id once. A row that was made from one record of another topic has both: the record's
partition gives the name, its offset the sequence id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from seqgate.spark_kafka_compat.options import OptionValue, Use, checked_options
from seqgate.spark_kafka_compat.session import ConnectorMissingError, SparkCompatError, connector_coordinates

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

    `topics` is one name or several; without `topics`, give `subscribePattern` or `assign`. All other options
    are Spark's (see `seqgate.spark_kafka_compat.options`): pass them as keywords, or in `options` when a name
    has dots. Without an option that begins with `starting`, a stream begins at the earliest offset. Spark's
    own default, latest, misses existing records. The query of a stream keeps the ids of its topics in its
    checkpoint, and a recreated topic brings a warning in Python's log
    (`seqgate.spark_kafka_compat.topic_watch`).

    Raises `UnknownOptionError`; `SparkCompatError` without exactly one choice of topics;
    `ConnectorMissingError`.
    """
    given = {**(options or {}), **named}
    frame = unwatched_source(spark, bootstrap, topics, stream=stream, options=given)
    if stream:
        from seqgate.spark_kafka_compat.topic_watch import watch

        watch(spark)
    return frame


def unwatched_source(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str] | None,
    *,
    stream: bool,
    options: Mapping[str, OptionValue] | None,
) -> DataFrame:
    """Return the data frame of `source`, for a pipeline that compares topic ids itself."""
    checked = source_settings(topics, stream=stream, options=options)
    checked["kafka.bootstrap.servers"] = bootstrap
    try:
        if stream:
            return spark.readStream.format("kafka").options(**checked).load()
        return spark.read.format("kafka").options(**checked).load()
    except Exception as error:
        raise _connector_missing(error) or error from error


def source_settings(
    topics: str | Sequence[str] | None, *, stream: bool, options: Mapping[str, OptionValue] | None
) -> dict[str, str]:
    """Return the options of `source` as Spark gets them. Raises as `source`, but needs no session."""
    checked = checked_options(Use.STREAM_READ if stream else Use.BATCH_READ, options or {})
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
    return checked


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
    """Return a writer of the rows' `key` and `value` (and `topic`, `partition`, `headers`) to a Kafka
    endpoint.

    Call `.save()` on the writer, or with `stream=True` `.start()` after any `.trigger(...)`. The client is
    idempotent, as always since Kafka 3. A Spark task that fails and runs again still writes its rows again,
    so a reader that must not see a row twice needs a key in the row. Rows of `names.named_by_source` are
    stored once; their default delivery timeout is unlimited.

    Raises `UnknownOptionError`; `SparkCompatError` when `stream` does not fit the data frame.
    """
    if df.isStreaming != stream:
        raise SparkCompatError(
            "The data frame is streaming: call sink(..., stream=True)."
            if df.isStreaming
            else "The data frame is not streaming: call sink() without stream=True."
        )
    use = Use.STREAM_WRITE if stream else Use.BATCH_WRITE
    is_named = any(field.name == "headers" and _NAMED in (field.metadata or {}) for field in df.schema)
    needed = _SEND_IN_ORDER if is_named else {}
    checked = {**needed, **checked_options(use, {**(options or {}), **named})}
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
            "This SparkSession has no Kafka connector: create the session with "
            f"seqgate.spark_kafka_compat.session(), or pass --packages {connector_coordinates()} to "
            "spark-submit."
        )
    return None


NAME_HEADER, SEQUENCE_HEADER = "dedup.name", "dedup.sequence"
_PLACE = ("topic", "partition", "offset")
_NAMED = "seqgate.named"
_SEND_IN_ORDER = {"kafka.enable.idempotence": "true", "kafka.delivery.timeout.ms": str(2**31 - 1)}
"""The client keeps records in order: what it gave up and sends later would be taken for a duplicate."""
_MULTIPLY = {"Generate", "Join", "LateralJoin", "AsOfJoin", "Expand"}
_REORDER = {
    *("Aggregate", "CoGroup", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "MapGroups", "Window"),
    *("RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort"),
    *("Except", "Intersect", "Union"),
}
_GROUP = ("FlatMapGroups", "FlatMapCoGroups", "TransformWithState")
"""The beginnings of the names of nodes that call a function for each group of rows, in any language."""
_SPLIT = ("minPartitions", "maxRecordsPerPartition")


def named_by_source(
    rows: DataFrame, name: str, *, name_header: str = NAME_HEADER, sequence_header: str = SEQUENCE_HEADER
) -> DataFrame:
    """Return rows for `sink(..., includeHeaders=True)` that are stored once, however often Spark writes them.

    `rows` has the columns `value`, optionally `key`, and `topic`, `partition` and `offset` of each row's
    source record: at most one row per record, in the order of the source. So `rows` may be filtered and
    changed, but not exploded, joined, sorted, grouped or united: the branches of a union are tasks that write
    under one name. Do not use `minPartitions` and `maxRecordsPerPartition`: with these options several tasks
    read one partition. The rows of a partition go to the partition of the same
    number, which the target topic must have. Each application needs a `name` of its own, and must never
    change it. Give `sink` a `kafka.max.request.size` no larger than the topic's `max.message.bytes`: a row
    that only the endpoint refuses is lost once its cause is mended, because later rows are stored by then.

    Raises `SparkCompatError` when a column is missing, when the name is empty, and when the query plan breaks
    the order. The plan does not show Python functions, `foreachBatch`, or the option `minPartitions` of a
    batch read.
    """
    from pyspark.sql.functions import array, col, concat, lit, struct

    missing = [column for column in (*_PLACE, "value") if column not in rows.columns]
    if missing:
        raise SparkCompatError(
            f"The rows lack the columns {', '.join(missing)}; keep those of each row's source record."
        )
    if not name:
        raise SparkCompatError("The name is empty; give the application a name of its own.")
    _refuse_disorder(rows)
    source = concat(lit(f"{name}/"), col("topic"), lit("/"), col("partition").cast("string"))
    headers = array(
        struct(lit(name_header).alias("key"), source.cast("binary").alias("value")),
        struct(lit(sequence_header).alias("key"), col("offset").cast("string").cast("binary").alias("value")),
    )
    kept = [col(column) for column in ("key", "value") if column in rows.columns]
    return rows.select(*kept, col("partition"), headers.alias("headers", metadata={_NAMED: True}))


def _refuse_disorder(rows: DataFrame) -> None:
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        # Spark Connect does not expose its query plans.
        return
    for node in _nodes(frame.queryExecution().analyzed()):
        kind = node.nodeName()
        if kind in _MULTIPLY:
            raise SparkCompatError(
                f"The query may make several rows of one record ({kind}); the gateway would drop all but the "
                f"first. Remove {kind} from the query."
            )
        is_shuffled = kind.startswith(_GROUP) or kind in _REORDER
        if is_shuffled and not (kind == "Repartition" and not node.shuffle()):
            raise SparkCompatError(
                f"The query breaks the order of the records ({kind}); the gateway would drop late rows. "
                f"Remove {kind} from the query."
            )
        if kind.startswith("StreamingRelationV2"):
            split = [option for option in _SPLIT if node.extraOptions().containsKey(option)]
            if split:
                raise SparkCompatError(
                    f"With {split[0]} several tasks read one partition, and the gateway would drop the rows "
                    f"of slower tasks. Remove the option {split[0]}."
                )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))
