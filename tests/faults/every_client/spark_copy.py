"""A Spark job: copies topics to Parquet as they grow, and prints what it has copied in the end.

    python -m tests.faults.every_client.spark_copy BOOTSTRAP TOPICS DIRECTORY

It goes on until the file DIRECTORY/stop is there. Then it copies up to the present end, and prints JSON: for
each topic and partition the number of rows, of different offsets, and the sum of the CRC-32s of the values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.spark_session import small_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 1
BETWEEN_BATCHES = "2 seconds"


def main() -> None:
    bootstrap, topics, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = small_session(directory / "warehouse")
    restarts = 0
    while not (directory / "stop").exists():
        query = _start(spark, bootstrap, topics, directory, {"processingTime": BETWEEN_BATCHES})
        try:
            while not (directory / "stop").exists() and not query.awaitTermination(LOOK_S):
                pass
        except Exception as error:
            print(f"the query is started again: {str(error)[:300]}", file=sys.stderr)
            restarts += 1
        query.stop()
    _start(spark, bootstrap, topics, directory, {"availableNow": True}).awaitTermination()
    copied = spark.read.parquet(str(directory / "copy"))
    copied.createOrReplaceTempView("copied")
    found = spark.sql(
        "select topic, partition, count(*), count(distinct offset), sum(crc32(value)) from copied group by "
        "topic, partition"
    ).collect()
    print(json.dumps({"rows": [list(row) for row in found], "restarts": restarts}))


def _start(
    spark: SparkSession, bootstrap: str, topics: str, directory: Path, trigger: dict[str, object]
) -> StreamingQuery:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    return (
        records.select("topic", "partition", "offset", "value")
        .writeStream.format("parquet")
        .option("path", str(directory / "copy"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger)  # type: ignore[arg-type] # one keyword of several
        .start()
    )


if __name__ == "__main__":
    main()
