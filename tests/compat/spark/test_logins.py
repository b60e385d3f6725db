"""Spark's source and sink over TLS with every way to authenticate itself, and without rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.spark_kafka_compat import sink, source
from tests.compat.security.matrix.endpoint import Account, Endpoint, Way, running_endpoint
from tests.compat.security.matrix.jvm import properties_of

PATIENCE_S = 180
REFUSED = "TopicAuthorizationException|Not authorized to access topics"
WAYS = [way for way in Way if way is not Way.DELEGATION_TOKEN]
WRITTEN = ["0", "1", "2", "3", "4"]
TOPIC, DESCRIBE, READ, WRITE = ResourceType.TOPIC, Operation.DESCRIBE, Operation.READ, Operation.WRITE


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_endpoint(tmp_path_factory.mktemp("logins")) as endpoint:
        yield endpoint


class Pipelines:
    """Jobs of one account on the topics `lines` and `copies` of its own."""

    def __init__(self, spark: SparkSession, account: Account, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = account.bootstrap
        self._folder = folder
        self.lines, self.copies = f"lines-of-{account.login}", f"copies-of-{account.login}"
        properties = properties_of(account)
        del properties["bootstrap.servers"]
        self._options = {f"kafka.{name}": value for name, value in properties.items()}
        for topic in (self.lines, self.copies):
            account.endpoint.create_topic(topic)

    def write(self) -> None:
        numbers = self._spark.range(5).selectExpr("CAST(id AS STRING) AS value")
        sink(numbers, self._bootstrap, self.lines, options=self._options).save()

    def read(self, topic: str) -> list[str]:
        rows = source(self._spark, self._bootstrap, topic, options=self._options)
        return sorted(row.value.decode() for row in rows.collect())

    def copy(self) -> None:
        """Copy all lines in a streaming query."""
        records = source(self._spark, self._bootstrap, self.lines, stream=True, options=self._options)
        copies = records.select("key", "value")
        query = (
            sink(copies, self._bootstrap, self.copies, stream=True, options=self._options)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()


@pytest.mark.parametrize("way", WAYS)
def test_batches_and_streams(spark: SparkSession, endpoint: Endpoint, tmp_path: Path, way: Way) -> None:
    account = endpoint.account(way)
    pipelines = Pipelines(spark, account, tmp_path)
    for topic in (pipelines.lines, pipelines.copies):
        account.allow(TOPIC, topic, READ, WRITE)
    pipelines.write()
    pipelines.copy()
    assert pipelines.read(pipelines.copies) == WRITTEN


@pytest.mark.parametrize(
    ("may_read", "may_write", "job"),
    [
        pytest.param((), (), Pipelines.write, id="write a hidden topic"),
        pytest.param((), (DESCRIBE,), Pipelines.write, id="write"),
        pytest.param((), (WRITE,), lambda jobs: jobs.read(jobs.lines), id="read a hidden topic"),
        pytest.param((DESCRIBE,), (WRITE,), lambda jobs: jobs.read(jobs.lines), id="read"),
        pytest.param((DESCRIBE,), (WRITE,), Pipelines.copy, id="read in a stream"),
        pytest.param((READ,), (), Pipelines.copy, id="write in a stream"),
    ],
)
def test_a_job_without_the_right_fails(
    spark: SparkSession,
    endpoint: Endpoint,
    tmp_path: Path,
    may_read: tuple[Operation, ...],
    may_write: tuple[Operation, ...],
    job: Callable[[Pipelines], object],
) -> None:
    account = endpoint.account(Way.SCRAM_SHA_512)
    pipelines = Pipelines(spark, account, tmp_path)
    endpoint.store(pipelines.lines, b"stored")
    written = pipelines.lines if job is Pipelines.write else pipelines.copies
    account.allow(TOPIC, "another", WRITE)  # who may write no topic at all gets no producer id
    account.allow(TOPIC, pipelines.lines, *may_read)
    account.allow(TOPIC, written, *may_write)
    # A failed stream raises Spark's own exception, a failed batch job one of the JVM.
    with pytest.raises((Py4JJavaError, PySparkException), match=REFUSED):
        job(pipelines)
