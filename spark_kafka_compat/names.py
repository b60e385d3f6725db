"""Writing with Spark effectively once: each row says where its record came from, and the gateway drops what was there before.

Spark's Kafka sink writes at least once: a task, a micro batch or a query that runs again writes its rows again. On a topic with
`message.deduplication.enable` (see docs/deduplication.md) rows that carry a producer name and a sequence id are stored
once. A row that was made from one record of another topic has both: the partition it came from, and its offset there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_kafka_compat.errors import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME_HEADER, SEQUENCE_HEADER = "dedup.name", "dedup.sequence"
_PLACE = ("topic", "partition", "offset")
_NAMED = "seqgate.named"
_SEND_IN_ORDER = {"kafka.enable.idempotence": "true", "kafka.delivery.timeout.ms": str(2**31 - 1)}
"""A record that is given up while those behind it are stored is taken for a duplicate of them from then on."""
_MULTIPLY = {"Generate", "Join", "LateralJoin", "AsOfJoin", "Expand"}
_REORDER = {
    *(
        "Aggregate",
        "Deduplicate",
        "Distinct",
        "Except",
        "Intersect",
        "Repartition",
        "RepartitionByExpression",
    ),
    *("RebalancePartitions", "Sort", "Window"),
}
_SPLIT = ("minPartitions", "maxRecordsPerPartition")


def named_by_source(
    rows: DataFrame, name: str, *, name_header: str = NAME_HEADER, sequence_header: str = SEQUENCE_HEADER
) -> DataFrame:
    """Rows for `sink(..., includeHeaders=True)` that are stored once, however often Spark writes them.

    `rows` has the columns `value`, perhaps `key`, and `topic`, `partition` and `offset` of the record that each row was made from:
    at most one row of a record, in the order of the source. So it may be filtered and changed, not exploded, joined or sorted,
    and `minPartitions` and `maxRecordsPerPartition`, which have several tasks read one partition, must not be used. The rows of
    a partition go to the partition of the same number, which the topic that is written to must have. Each application needs a
    `name` of its own, and keeps it.

    Raises `SparkCompatError` when a column is missing, for an empty name, and for rows whose query breaks the order, as far as
    it tells: not those made by functions of Python or by `foreachBatch`, and of a batch read not `minPartitions`.
    """
    from pyspark.sql.functions import array, col, concat, lit, struct

    missing = [column for column in (*_PLACE, "value") if column not in rows.columns]
    if missing:
        raise SparkCompatError(f"The rows need {', '.join(missing)} of the record that each was made from.")
    if not name:
        raise SparkCompatError("The application needs a name.")
    _refuse_disorder(rows)
    source = concat(lit(f"{name}/"), col("topic"), lit("/"), col("partition").cast("string"))
    headers = array(
        struct(lit(name_header).alias("key"), source.cast("binary").alias("value")),
        struct(lit(sequence_header).alias("key"), col("offset").cast("string").cast("binary").alias("value")),
    )
    kept = [col(column) for column in ("key", "value") if column in rows.columns]
    return rows.select(*kept, col("partition"), headers.alias("headers", metadata={_NAMED: True}))


def settings_for(rows: DataFrame) -> dict[str, str]:
    """The settings of the Kafka client, as options of the sink, that rows of `named_by_source` need; of others none."""
    is_named = any(field.name == "headers" and _NAMED in (field.metadata or {}) for field in rows.schema)
    return dict(_SEND_IN_ORDER) if is_named else {}


def _refuse_disorder(rows: DataFrame) -> None:
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        # Spark Connect keeps its plans to itself.
        return
    for node in _nodes(frame.queryExecution().analyzed()):
        kind = node.nodeName()
        if kind in _MULTIPLY:
            raise SparkCompatError(
                f"The rows may be several of one record ({kind}): all but the first would be dropped."
            )
        if kind in _REORDER and not (kind == "Repartition" and not node.shuffle()):
            raise SparkCompatError(
                f"The rows are not in the order of their records ({kind}): those that come late would be dropped."
            )
        if kind.startswith("StreamingRelationV2"):
            split = [option for option in _SPLIT if node.extraOptions().containsKey(option)]
            if split:
                raise SparkCompatError(
                    f"With {split[0]} several tasks read one partition: the records of those that are behind would be dropped."
                )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))
