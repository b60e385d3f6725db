"""Reads a whole topic with many tasks at once; the last line is JSON.

python -m tests.compat.spark.read_history BOOTSTRAP TOPIC [TASKS]
"""

from __future__ import annotations

import json
import sys

from seqgate import spark_kafka_compat

TASKS = 8


def main(bootstrap: str, topic: str, tasks: str = str(TASKS)) -> None:
    spark = spark_kafka_compat.session(master=f"local[{tasks}]", quiet=True)
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    found = rows.selectExpr("count(*) AS records", "sum(crc32(value)) AS checksums").first()
    assert found is not None
    print(json.dumps(found.asDict()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
