"""A Spark session small enough to run beside other tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqgate.spark_kafka_compat import session
from tests.support.setup_peers import spark_connector_libs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_session(warehouse: Path) -> SparkSession:
    """Return the only Spark session of this process, with the Kafka connector's jars if they exist."""
    jars = spark_connector_libs()
    return session(
        "seqgate tests",
        master="local[2]",
        jars_dir=jars if jars.is_dir() else None,
        quiet=True,
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(warehouse),
        },
    )
