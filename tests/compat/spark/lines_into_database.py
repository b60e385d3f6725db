"""A process that reads a topic into the table `lines` with Spark, and kills itself with SIGKILL at a given
moment.

python -m tests.compat.spark.lines_into_database BOOTSTRAP TOPIC URL CHECKPOINT KIND NUMBER
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from seqgate.spark_kafka_compat import into_database as pipeline
from seqgate.spark_kafka_compat import session
from seqgate.spark_kafka_compat.databases import Database
from tests.support.dying_database import DyingDatabase, Moments

CREATE_LINES = "CREATE TABLE lines (line INTEGER, place INTEGER)"
IN_A_BATCH, AT_ONCE = 400, 100


def lines(records: DataFrame) -> DataFrame:
    return records.selectExpr("CAST(CAST(value AS STRING) AS INT) AS line", "partition AS place")


def read_all(spark: SparkSession, bootstrap: str, topic: str, database: Database, checkpoint: str) -> None:
    """Read the topic to its end."""
    query = pipeline.into_database(
        spark,
        bootstrap,
        topic,
        database,
        pipeline="lines",
        write=pipeline.into_table("lines"),
        rows=lines,
        checkpoint=checkpoint,
        options={"maxOffsetsPerTrigger": IN_A_BATCH},
    )
    query.awaitTermination()


def main(bootstrap: str, topic: str, url: str, checkpoint: str, kind: str, number: str) -> None:
    pipeline.ROWS_AT_ONCE = AT_ONCE
    spark = session("lines", master="local[1]", quiet=True, conf={"spark.driver.memory": "512m"})
    read_all(spark, bootstrap, topic, DyingDatabase(url, Moments((kind, int(number)))), checkpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
