"""One Spark for the whole run, and the endpoint it talks to.

With SEQGATE_TEST_BOOTSTRAP=HOST:PORT in the environment the same tests run against that endpoint, such as Apache Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_kafka_compat import session
from tests.compat.spark.topics import Topics
from tests.support.setup_peers import spark_connector_libs


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = spark_connector_libs()
    running = session(
        "seqgate tests",
        master="local[2]",
        jars_dir=jars if jars.is_dir() else None,
        quiet=True,
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield running
    running.stop()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SEQGATE_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("shared_gateway").bootstrap)


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)
