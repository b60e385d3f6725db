"""Reads a whole topic with many tasks at once; the last line is JSON.

python -m tests.compat.spark.read_history BOOTSTRAP TOPIC
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from seqgate import spark_kafka_compat

TASKS = 8


def read(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, int]:
    """Return how many records the topic has, and the sum of the checksums of all values."""
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    found = rows.selectExpr("count(*) AS records", "sum(crc32(value)) AS checksums").first()
    assert found is not None
    return dict(found.asDict())


def main(bootstrap: str, topic: str) -> None:
    spark = spark_kafka_compat.session(master=f"local[{TASKS}]", quiet=True)
    print(json.dumps(read(spark, bootstrap, topic)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
