"""Several workers over one data directory, as processes: clients, deaths, other numbers of workers, stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Plain, Wire
from tests.system.workers.scene import (
    DEADLINE_S,
    PARTITIONS,
    QUICK,
    TOPIC,
    assert_all_there,
    await_that,
    consecutive_ports,
    create_topic,
    is_running,
    kill,
    load,
    pids,
    stored,
    workers,
)

REBOOTSTRAP = 129
"""The error code of REBOOTSTRAP_REQUIRED."""


def ends_of(data_dir: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "seqgate", "status", "--json", "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def produce(bootstrap: str, begin: int, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    for number in range(begin, begin + count):
        producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    producer.flush()
    producer.close()


def numbers(found: dict[int, list[bytes]]) -> list[int]:
    return sorted(int(value) for values in found.values() for value in values)


def greet(port: int, meant: Plain) -> int:
    """Send ApiVersions to a worker as a client that means another one, maybe; return the error code."""
    with Wire(f"127.0.0.1:{port}") as wire:
        software = {"client_software_name": "wire", "client_software_version": "1"}
        return int(wire.call("api_versions", 5, {**software, **meant}).fields["error_code"])


def test_clients_see_one_cluster(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 3, consecutive_ports(3)) as gateway:
        create_topic(gateway.bootstrap)
        admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
        cluster = admin.describe_cluster()
        brokers = cluster["brokers"]
        assert [(broker["broker_id"], broker["port"]) for broker in brokers] == [
            (1, gateway.port),
            (2, gateway.port + 1),
            (3, gateway.port + 2),
        ]
        meant = {"cluster_id": cluster["cluster_id"], "node_id": 2}
        assert [greet(gateway.port + index, meant) for index in range(3)] == [REBOOTSTRAP, 0, REBOOTSTRAP]
        leaders = {row["leader_id"] for row in admin.describe_topics([TOPIC])[0]["partitions"]}
        assert leaders == {1, 2, 3}
        admin.close()
        produce(gateway.bootstrap, 0, 60)
        consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=gateway.bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        found = [int(next(consumer).value) for _ in range(60)]
        assert sorted(found) == list(range(60))
        consumer.commit()
        consumer.close()
        other = Consumer({"bootstrap.servers": f"127.0.0.1:{gateway.port + 2}", "group.id": "g"})
        other.subscribe([TOPIC])
        produce(gateway.bootstrap, 60, 1)
        message = other.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"60"
        other.close()
        status = ends_of(tmp_path / "data")
        rows = status["workers"]
        assert isinstance(rows, list)
        assert [(row["node_id"], row["pid"]) for row in rows] == [*enumerate(pids(gateway), 1)]
        assert all(row["partitions"] for row in rows)
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert "workers" not in names
    assert ".kafka_cleanshutdown" in names


def test_a_killed_worker_serves_again(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            running.await_progress()
            for pid in pids(gateway):
                kill(pid)
                running.await_progress()
        assert not running.errors
        assert_all_there(running.acknowledged, stored(gateway.bootstrap))
        admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap)
        assert {row["leader_epoch"] for row in admin.describe_topics([TOPIC])[0]["partitions"]} == {1}
        admin.close()
    # far above the second that it takes: other tests share the cores
    assert max(running.longest_gap_s.values()) < DEADLINE_S / 2


@pytest.mark.parametrize("counts", [(2, 3, 1, 2), (1, 2, 1, 3)], ids=str)
def test_any_number_opens_what_another_wrote(tmp_path: Path, counts: tuple[int, ...]) -> None:
    port = consecutive_ports(3)
    for step, count in enumerate(counts):
        gateway = workers(tmp_path / "data", count, port).start()
        if not step:
            create_topic(gateway.bootstrap)
        produce(gateway.bootstrap, step * 30, 30)
        assert numbers(stored(gateway.bootstrap)) == [*range((step + 1) * 30)]
        everybody = [gateway.pid, *pids(gateway)]
        if step % 2:
            gateway.stop()
        else:
            for pid in everybody[1:]:
                os.kill(pid, signal.SIGSTOP)  # nobody stops cleanly when the supervisor is gone
            gateway.kill()
            for pid in everybody[1:]:
                kill(pid)
    # an ordinary gateway, without the setting
    with GatewayProcess(tmp_path / "data", settings=QUICK, port=port) as gateway:
        assert numbers(stored(gateway.bootstrap)) == [*range(len(counts) * 30)]
        produce(gateway.bootstrap, len(counts) * 30, 1)


def test_a_stray_partition_is_put_away_before_topics_can_be_created(tmp_path: Path) -> None:
    port = consecutive_ports(2)
    data_dir = tmp_path / "data"
    with GatewayProcess(data_dir, settings=QUICK, port=port) as gateway:
        create_topic(gateway.bootstrap)
        produce(gateway.bootstrap, 0, 30)
    shutil.copytree(data_dir / f"{TOPIC}-0", data_dir / "gone-0")
    with workers(data_dir, 2, port) as gateway:
        assert [path.name.partition(".")[0] for path in data_dir.glob("*-stray")] == ["gone-0"]
        create_topic(gateway.bootstrap, "gone", 2)
        assert numbers(stored(gateway.bootstrap)) == [*range(30)]
        assert stored(gateway.bootstrap, "gone", 2) == {}


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    port = consecutive_ports(2)
    gateway = workers(tmp_path / "data", 2, port).start()
    create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, 0, 12)
    left = pids(gateway)
    gateway.kill()
    await_that(lambda: not any(map(is_running, left)), "the workers are still there")
    with workers(tmp_path / "data", 2, port):
        assert numbers(stored(gateway.bootstrap)) == [*range(12)]


def test_a_stopped_worker_is_killed_and_serves_again(tmp_path: Path) -> None:
    settings = {"seqgate.workers.timeout.ms": "1000"}
    with workers(tmp_path / "data", 2, consecutive_ports(2), settings) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            running.await_progress()
            os.kill(pids(gateway)[1], signal.SIGSTOP)
            running.await_progress()
        assert not is_running(pids(gateway)[1])
        assert_all_there(running.acknowledged, stored(gateway.bootstrap))
    assert "gave no sign of life" in gateway.stderr_text()


def test_a_worker_that_dies_again_and_again_ends_all(tmp_path: Path) -> None:
    gateway = workers(tmp_path / "data", 2, consecutive_ports(2)).start()
    lock = tmp_path / "data" / "workers" / "2" / ".lock"
    lock.unlink()
    lock.mkdir()  # nobody can lock that
    kill(pids(gateway)[1])
    assert gateway.await_end() == 1
    told = gateway.stderr_text()
    assert "seqgate: worker 2 has died 4 times soon after its start, at last so: the data directory" in told
    assert not any(map(is_running, pids(gateway)))


def test_transactions_span_workers_and_their_deaths(tmp_path: Path) -> None:
    """Each transaction writes to every partition; its coordinator is on either worker. One of the workers
    dies now and then.
    """
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)
        committed: list[int] = []
        current = pids(gateway)
        for producer_number in range(2):
            producer = Producer(
                {
                    "bootstrap.servers": gateway.bootstrap,
                    "transactional.id": f"t{producer_number}",
                    "linger.ms": 0,
                }
            )
            producer.init_transactions(DEADLINE_S)
            for step in range(6):
                number = producer_number * 100 + step
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, str(number).encode(), partition=partition)
                producer.flush(DEADLINE_S)
                if step % 3 == 1:
                    producer.abort_transaction(DEADLINE_S)
                else:
                    producer.commit_transaction(DEADLINE_S)
                    committed.append(number)
                if step == 3:
                    kill(current[producer_number])
        found = stored(gateway.bootstrap)
        assert {
            partition: [int(value) for value in values] for partition, values in found.items()
        } == dict.fromkeys(range(PARTITIONS), committed)
