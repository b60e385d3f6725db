"""How the pipelines begin: with an endpoint that answers, and then with Spark, which takes many seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_compat.session import installed_pyspark_version, session
from spark_kafka_compat.wire import check_reachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def begin(app_name: str, bootstrap: str, master: str | None) -> SparkSession:
    """Return a quiet session once a broker accepts connections. Raises `SparkCompatError`."""
    installed_pyspark_version()
    check_reachable(bootstrap)
    return session(app_name, master=master, quiet=True)
