"""The gateway is killed during a stream: the stream continues from its checkpoint, and no record is lost or
duplicated."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seqgate.spark_kafka_compat.landing import land
from tests.compat.spark.topics import Topics, landed
from tests.support.gateway_process import GatewayProcess

PATIENCE_S = 180
PARTITIONS = 2


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


def fill(topics: Topics, topic: str, first: int, end: int) -> None:
    for partition in range(PARTITIONS):
        topics.fill(topic, range(first + partition, end, PARTITIONS), partition=partition)


def test_killed_between_two_runs(spark: SparkSession, gateway: GatewayProcess, tmp_path: Path) -> None:
    topics, path = Topics(gateway.bootstrap), tmp_path / "landed"
    topic = topics.fresh(partitions=PARTITIONS)
    fill(topics, topic, 0, 1_000)
    finish(land(spark, gateway.bootstrap, topic, str(path)))

    fill(topics, topic, 1_000, 2_000)
    gateway.restart(kill=True)
    fill(topics, topic, 2_000, 3_000)

    finish(land(spark, gateway.bootstrap, topic, str(path)))
    assert landed(spark, path) == list(range(3_000))


def test_killed_while_it_runs(spark: SparkSession, gateway: GatewayProcess, tmp_path: Path) -> None:
    topics, path = Topics(gateway.bootstrap), tmp_path / "landed"
    topic = topics.fresh(partitions=PARTITIONS)
    fill(topics, topic, 0, 1_000)
    slowly = {"maxOffsetsPerTrigger": 100, "kafka.reconnect.backoff.max.ms": 100}
    query = land(spark, gateway.bootstrap, topic, str(path), every="0 seconds", options=slowly)
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < 3:
            assert not query.awaitTermination(0.05)
        gateway.restart(kill=True)
        fill(topics, topic, 1_000, 1_500)
        query.processAllAvailable()
    except StreamingQueryException:
        pass  # a query may fail while the gateway is down; only its checkpoint matters
    finally:
        query.stop()
    finish(land(spark, gateway.bootstrap, topic, str(path)))
    assert landed(spark, path) == list(range(1_500))
