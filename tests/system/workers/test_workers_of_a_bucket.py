"""`seqgate serve --workers N --cluster`: gateways of one bucket on one machine, started and stopped by one
command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.gateway_cluster import leaders_at
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.workers.scene import (
    TOPIC,
    assert_all_there,
    await_that,
    consecutive_ports,
    create_topic,
    is_running,
    kill,
    listed,
    load,
    pids,
    stored,
    workers,
)


def bucket_workers(directory: Path, count: int, port: int) -> GatewayProcess:
    (directory / "bucket").mkdir(exist_ok=True)
    settings = {"seqgate.cluster": f"file://{directory / 'bucket'}", "seqgate.cluster.balance.delay.ms": "0"}
    return workers(directory / "data", count, port, settings)


def seqgate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqgate", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def create_everywhere(port: int, count: int) -> None:
    """Create the topic, and wait until all workers have read so in the bucket."""
    create_topic(f"127.0.0.1:{port}")
    ports = range(port, port + count)
    await_that(lambda: all(map(leaders, ports)), "every worker knows the topic")


def leaders(port: int) -> set[int]:
    """Return the leaders of the topic, as the gateway on this port knows them; none where the topic is
    unknown.
    """
    return set(leaders_at(f"127.0.0.1:{port}", TOPIC))


def test_a_killed_worker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with bucket_workers(tmp_path, 3, consecutive_ports(3)) as gateway:
        create_everywhere(gateway.port, 3)
        assert leaders(gateway.port) == {1, 2, 3}
        with load(gateway.bootstrap) as running:
            running.await_progress()
            for pid in pids(gateway)[:2]:
                kill(pid)
                running.await_progress()
        assert not running.errors
        assert_all_there(running.acknowledged, stored(gateway.bootstrap))
        status = listed(tmp_path / "data", "status")
        assert [row["node_id"] for row in status["workers"]] == [1, 2, 3]
        assert {row["pid"] for row in status["workers"]} & set(pids(gateway)) == {pids(gateway)[2]}
        assert status["data_dir"] == str(tmp_path / "data" / "caches")
        assert status["bucket"]["unwritten_max_bytes"] == 3 * (64 << 20)
        processes = pids(gateway)
    assert not any(map(is_running, processes))


def test_any_number_goes_on_with_what_another_wrote(tmp_path: Path) -> None:
    port = consecutive_ports(3)
    acknowledged: dict[int, list[int]] = {}
    for count in (2, 3, 2):
        with bucket_workers(tmp_path, count, port) as gateway:
            if not acknowledged:
                create_everywhere(port, count)
            assert_all_there(acknowledged, stored(gateway.bootstrap))
            if acknowledged:
                continue
            with load(gateway.bootstrap) as running:
                running.await_progress()
            acknowledged = running.acknowledged
            assert acknowledged
    assert status_names(tmp_path) == ["1", "2", "3", "count"]


def status_names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "data" / "caches").iterdir())


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    gateway = bucket_workers(tmp_path, 2, consecutive_ports(2)).start()
    processes = pids(gateway)
    os.kill(gateway.pid, signal.SIGKILL)
    await_that(lambda: not any(map(is_running, processes)), "the workers have ended")
    gateway.kill()


def test_directories_of_another_kind_are_refused(tmp_path: Path) -> None:
    port = consecutive_ports(2)
    with bucket_workers(tmp_path, 2, port):
        pass
    bucket = ["--cluster", f"file://{tmp_path / 'bucket'}"]
    listen = ["--listen", f"127.0.0.1:{port}"]
    data = ["--data-dir", str(tmp_path / "data")]
    without_bucket = seqgate("serve", *listen, *data)
    assert without_bucket.returncode == 1
    assert "has the caches of workers of a bucket; start with --cluster" in without_bucket.stderr
    one_gateway = seqgate("serve", *listen, *data, *bucket)
    assert one_gateway.returncode == 1
    assert "name an empty directory" in one_gateway.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").touch()
    other = seqgate("serve", *listen, "--data-dir", str(tmp_path / "other"), *bucket, "--workers", "2")
    assert other.returncode == 1
    assert "holds meta.properties, and several workers of a bucket have their caches in" in other.stderr
