"""Spark reads a topic through all gateways of a cluster, with as many tasks as the topic has partitions."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.compat.spark.read_history import read
from tests.compat.spark.test_history import TOPIC, fill
from tests.support.gateway_process import GatewayProcess
from tests.system.cluster.test_history import COUNT
from tests.system.workers.scene import consecutive_ports, listed, workers

GATEWAYS = 3
TASKS = 16


def requests_of(gateway: GatewayProcess) -> list[int]:
    """Return how many requests each gateway has answered."""
    return [row["requests"] for row in listed(gateway.data_dir, "status")["workers"]]


def test_sixteen_tasks_read_through_three_gateways(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = {"seqgate.cluster": f"file://{tmp_path / 'bucket'}"}
    with workers(tmp_path / "data", GATEWAYS, consecutive_ports(GATEWAYS), settings) as gateway:
        expected = {"records": COUNT, "checksums": fill(gateway.bootstrap, TASKS)}
        before = requests_of(gateway)
        assert read(spark, gateway.bootstrap, TOPIC) == expected
        assert all(
            after - earlier >= TASKS // GATEWAYS
            for earlier, after in zip(before, requests_of(gateway), strict=True)
        ), "every gateway was read from"
