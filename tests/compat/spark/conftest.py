"""One Spark session for the whole run, and the endpoint that Spark connects to.

With SEQGATE_TEST_BOOTSTRAP=HOST:PORT in the environment the tests run against that endpoint instead, such as
Apache Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.compat.spark.topics import Topics
from tests.support.spark_session import small_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = small_session(tmp_path_factory.mktemp("warehouse"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SEQGATE_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("shared_gateway").bootstrap)


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)
