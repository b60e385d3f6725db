"""`seqgate` commands on a data directory with several workers: while they run, after a stop, and after all
were killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer

from tests.system.workers.scene import (
    PARTITIONS,
    TOPIC,
    await_that,
    consecutive_ports,
    create_topic,
    is_running,
    kill,
    listed,
    load,
    pids,
    seqgate,
    workers,
)


def test_lists_have_what_every_worker_knows(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with workers(data_dir, 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            running.await_progress()
        groups = [f"group-{number}" for number in range(4)]
        for group in groups:
            consumer = KafkaConsumer(
                TOPIC, bootstrap_servers=gateway.bootstrap, group_id=group, auto_offset_reset="earliest"
            )
            next(consumer)
            consumer.commit()
            consumer.close()
        assert sorted(row["group"] for row in listed(data_dir, "groups", "list")["groups"]) == groups
        for group in groups:
            assert listed(data_dir, "groups", "describe", group)["group"] == group
        producers = listed(data_dir, "producers")["producers"]
        assert {row["partition"] for row in producers} == set(range(PARTITIONS))
        seqgate(data_dir, "users", "add", "alice", "--password-stdin", code=2)  # no such option
        assert "worker on node 2" in seqgate(data_dir, "status")
        assert seqgate(data_dir, "sweep")


def test_a_worker_that_is_being_started_again_is_waited_for(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with workers(data_dir, 2, consecutive_ports(2)) as gateway:
        kill(pids(gateway)[1])
        status = listed(data_dir, "status")
        assert [row["node_id"] for row in status["workers"]] == [1, 2]
        assert status["missing_workers"] == []


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_directory_without_workers_is_read(tmp_path: Path, is_killed: bool) -> None:
    data_dir = tmp_path / "data"
    gateway = workers(data_dir, 2, consecutive_ports(2)).start()
    create_topic(gateway.bootstrap)
    with load(gateway.bootstrap) as running:
        running.await_progress()
    claimed = listed(data_dir, "pids", "list")
    left = pids(gateway)
    if is_killed:
        gateway.kill()
        await_that(lambda: not any(map(is_running, left)), "a worker is still there")
    else:
        gateway.stop()
    assert len(listed(data_dir, "pids", "list")["blocks"]) == len(claimed["blocks"])
    seqgate(data_dir, "status", code=1)
    seqgate(data_dir, "repair")
    seqgate(data_dir, "repair", "--apply")
    with gateway:
        assert len(listed(data_dir, "status")["workers"]) == 2
