"""Spark reads a topic that is ten times as large as the local disk may be, after the disk was lost: its
history is in a bucket.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.spark.read_history import TASKS
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.cluster.test_history import CACHE_BYTES, COUNT, MIB, RECORD_BYTES

TIMEOUT_S = 900.0
TOPIC = "history"


def fill(bootstrap: str, partitions: int = TASKS) -> int:
    """Produce ten times the cache; return the sum of the checksums of all values."""
    topic = NewTopic(TOPIC, partitions, config={"segment.bytes": str(MIB)})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    chance, checksums = random.Random(7), 0
    for number in range(COUNT):
        value = chance.randbytes(RECORD_BYTES)
        checksums += zlib.crc32(value)
        producer.produce(TOPIC, value, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return checksums


def read_at_once(bootstrap: str) -> dict[str, int]:
    """Read the topic with all tasks at once, for which the session of the other tests has too few threads."""
    command = [sys.executable, "-m", "tests.compat.spark.read_history", bootstrap, TOPIC]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_eight_tasks_read_ten_times_the_cache(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = {
        "seqgate.cluster": f"file://{tmp_path / 'bucket'}",
        "seqgate.cluster.cache.bytes": str(CACHE_BYTES),
        "seqgate.cluster.upload.interval.ms": "300",
    }
    with GatewayProcess(tmp_path / "cache", settings=settings) as gateway:
        expected = {"records": COUNT, "checksums": fill(gateway.bootstrap)}
        wait_until_small(gateway.data_dir)
        gateway.kill()
        shutil.rmtree(gateway.data_dir)
        gateway.start()
        wait_until_small(gateway.data_dir)
        assert read_at_once(gateway.bootstrap) == expected


def wait_until_small(data_dir: Path) -> None:
    """Wait until the segments of the topic take little more of the local disk than the cache may."""
    deadline = time.monotonic() + TIMEOUT_S
    while (size_bytes := _local_bytes(data_dir)) > 2 * CACHE_BYTES + TASKS * MIB:
        assert time.monotonic() < deadline, f"{size_bytes} bytes are on the disk"
        time.sleep(0.05)  # the pause between polls of another process, which offers nothing to wait on


def _local_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in data_dir.glob(f"{TOPIC}-*/*.log"))
