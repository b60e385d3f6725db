"""Spark reads a topic through all gateways of a cluster at once, with as many tasks as the topic has partitions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.compat.spark.test_history import fill, read_by_spark
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.cluster.test_history import COUNT
from tests.system.workers.scene import consecutive_ports, workers

GATEWAYS = 3
TASKS = 16


def requests_of(gateway: GatewayProcess) -> list[int]:
    """Return how many requests each gateway has answered."""
    command = [sys.executable, "-m", "gateway", "status", "--data-dir", str(gateway.data_dir), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    return [row["requests"] for row in json.loads(done.stdout)["workers"]]


def test_sixteen_tasks_read_through_three_gateways(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = {"seqgate.cluster": f"file://{tmp_path / 'bucket'}"}
    with workers(tmp_path / "data", GATEWAYS, consecutive_ports(GATEWAYS), settings) as gateway:
        expected = {"records": COUNT, "checksums": fill(gateway.bootstrap, TASKS)}
        before = requests_of(gateway)
        assert read_by_spark(gateway.bootstrap, TASKS) == expected
        assert all(
            after - earlier >= TASKS // GATEWAYS
            for earlier, after in zip(before, requests_of(gateway), strict=True)
        ), "every gateway was read from"
