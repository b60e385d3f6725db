"""A gateway moves from its local disk into a bucket, and its clients go on where they were."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program
from tests.system.cluster.test_lost_disk import DEADLINE_S, Acknowledged, create, produce, read_all

COUNT = 2_000
NAMED = 50
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
ADDRESS = f"s3://{BUCKET}/moved"


@pytest.fixture(params=[MotoServer, Versitygw] if versitygw_program() else [MotoServer])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as store:
        yield store.endpoint


def command(endpoint: str, *words: str) -> tuple[int, str]:
    """Run `seqgate cluster`; return the exit code and the output."""
    there = ["--cluster", ADDRESS, "--set", f"seqgate.cluster.endpoint={endpoint}"]
    done = subprocess.run(
        [sys.executable, "-m", "seqgate", "cluster", *words, *there],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
        env=os.environ | KEYS,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def send_named(gateway: GatewayProcess, sequences: Sequence[int]) -> None:
    """Send records with a producer name, as an application does again after its restart."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
    for sequence in sequences:
        headers = [("dedup.name", b"loader"), ("dedup.sequence", str(sequence).encode())]
        producer.produce("lines", f"{sequence}".encode(), partition=sequence % 2, headers=headers)
    assert producer.flush(DEADLINE_S) == 0


def commit(gateway: GatewayProcess, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("flights", 0, offset)], asynchronous=False)
    consumer.close()


def committed(gateway: GatewayProcess) -> int:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    (place,) = consumer.committed([TopicPartition("flights", 0)], DEADLINE_S)
    consumer.close()
    return int(place.offset)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_clients_go_on_in_the_bucket(tmp_path: Path, endpoint: str, is_killed: bool) -> None:
    acknowledged = Acknowledged()
    gateway = GatewayProcess(tmp_path / "data")
    gateway.start()
    try:
        create(gateway, "flights", **{"internal.segment.bytes": "16384"})
        create(gateway, "lines", **{"message.deduplication.enable": "true"})
        produce(gateway, "flights", 0, COUNT, acknowledged)
        send_named(gateway, range(NAMED))
        commit(gateway, 7)
    finally:
        if is_killed:
            gateway.kill()
        else:
            gateway.stop()
    assert command(endpoint, "import", str(gateway.data_dir))[0] == 0
    assert command(endpoint, "verify")[0] == 0
    moved = GatewayProcess(
        tmp_path / "cache",
        settings={"seqgate.cluster": ADDRESS, "seqgate.cluster.endpoint": endpoint},
        environment=KEYS,
    )
    with moved:
        assert read_all(moved, "flights", COUNT) == acknowledged.records
        assert committed(moved) == 7
        send_named(moved, range(NAMED + 10))
        assert sorted(int(value) for value in read_all(moved, "lines", NAMED + 10).values()) == list(
            range(NAMED + 10)
        )
        produce(moved, "flights", COUNT, COUNT, acknowledged)
        assert read_all(moved, "flights", 2 * COUNT) == acknowledged.records
        code, told = command(endpoint, "verify")
        assert code == 0, told
        assert "all sound" in told
        assert "runs, or has crashed" in command(endpoint, "status")[1]
    assert command(endpoint, "import", str(gateway.data_dir))[0] == 1
