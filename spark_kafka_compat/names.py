"""Writing with Spark effectively once: each row says where its record came from, and the gateway drops what was there before.

Spark's Kafka sink writes at least once: a task, a micro batch or a query that runs again writes its rows again. On a topic with
`message.deduplication.enable` (see docs/deduplication.md) rows that carry a producer name and a sequence id are stored
once. A row that was made from one record of another topic has both: the partition it came from, and its offset there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_compat.errors import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME_HEADER, SEQUENCE_HEADER = "dedup.name", "dedup.sequence"
_PLACE = ("topic", "partition", "offset")


def named_by_source(
    rows: DataFrame, name: str, *, name_header: str = NAME_HEADER, sequence_header: str = SEQUENCE_HEADER
) -> DataFrame:
    """Rows for `sink(..., includeHeaders=True)` that are stored once, however often Spark writes them.

    `rows` has the columns `value`, perhaps `key`, and `topic`, `partition` and `offset` of the record that each row was made from:
    at most one row of a record, in the order of the source. So it may be filtered and changed, not exploded, joined or sorted,
    and `minPartitions` and `maxRecordsPerPartition`, which have several tasks read one partition, must not be used. The rows of
    a partition go to the partition of the same number, which the topic that is written to must have. Each application needs a
    `name` of its own, and keeps it.

    Raises `SparkCompatError` when a column is missing, or for an empty name.
    """
    from pyspark.sql.functions import array, col, concat, lit, struct

    missing = [column for column in (*_PLACE, "value") if column not in rows.columns]
    if missing:
        raise SparkCompatError(f"The rows need {', '.join(missing)} of the record that each was made from.")
    if not name:
        raise SparkCompatError("The application needs a name.")
    source = concat(lit(f"{name}/"), col("topic"), lit("/"), col("partition").cast("string"))
    headers = array(
        struct(lit(name_header).alias("key"), source.cast("binary").alias("value")),
        struct(lit(sequence_header).alias("key"), col("offset").cast("string").cast("binary").alias("value")),
    )
    kept = [col(column) for column in ("key", "value") if column in rows.columns]
    return rows.select(*kept, col("partition"), headers.alias("headers"))
