"""`seqgate producers`, `status` and `reopen` against real gateways and clients."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.log import Storage
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.clients import create_topic, described_producers, next_producer_id, produce
from tests.system.commands.conftest import seqgate

OUT_OF_ORDER = 45
STORAGE_ERROR = 56


class TestProducers:
    def test_tells_what_describe_producers_answers_and_more(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "orders", 2)
        ids = [next_producer_id(gateway.bootstrap) for _ in range(3)]
        for producer_id in ids:
            assert produce(gateway.bootstrap, "orders", 0, producer_id, 0, 4)[0] == 0
        produce(gateway.bootstrap, "orders", 0, ids[1], 4, 2)
        produce(gateway.bootstrap, "orders", 1, ids[2], 7, 1)
        rows = seqgate("producers", "--json", "--data-dir", gateway.data_dir).json["producers"]
        assert [(row["partition"], row["producer_id"]) for row in rows] == [
            (0, ids[0]),
            (0, ids[1]),
            (0, ids[2]),
            (1, ids[2]),
        ]
        second = rows[1]
        assert (second["last_sequence"], second["last_offset"], second["retained_batches"]) == (5, 13, 2)
        for partition in (0, 1):
            wanted = described_producers(gateway.bootstrap, "orders", partition)
            told = [row for row in rows if row["partition"] == partition]
            assert [
                {name: row[name] for name in described} for row, described in zip(told, wanted, strict=True)
            ] == wanted
            assert all(row["age_ms"] >= 0 for row in told)

    def test_counts_duplicates_and_refusals(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "orders", 1)
        assert produce(gateway.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
        assert produce(gateway.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
        assert produce(gateway.bootstrap, "orders", 0, 77, 50, 1)[0] == OUT_OF_ORDER
        counters = seqgate("producers", "--json", "--data-dir", gateway.data_dir).json["counters"]
        assert (counters["duplicates"], counters["rejections"], counters["remembered"]) == (1, 1, 1)
        shown = seqgate("producers", "--data-dir", gateway.data_dir).stdout
        assert "1 duplicate answered with the offset" in shown
        assert "1 batch refused" in shown

    def test_counts_what_the_limit_did(self, tmp_path: Path) -> None:
        settings = {"seqgate.producer.max.per.partition": "2", "seqgate.producer.min.idle.ms": "0"}
        with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
            create_topic(gateway.bootstrap, "orders", 1)
            for producer_id in (1, 2, 3):
                assert produce(gateway.bootstrap, "orders", 0, producer_id, 0, 1)[0] == 0
            told = seqgate("producers", "--json", "--data-dir", gateway.data_dir).json
            assert [row["producer_id"] for row in told["producers"]] == [2, 3]
            assert (told["counters"]["evictions"], told["counters"]["refusals"]) == (1, 0)

    def test_of_one_topic_or_partition(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "a", 2)
        create_topic(gateway.bootstrap, "b", 1)
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            produce(gateway.bootstrap, topic, partition, 5, 0, 1)
        here = ("--json", "--data-dir", gateway.data_dir)
        rows = seqgate("producers", "--topic", "a", *here).json["producers"]
        assert [(row["topic"], row["partition"]) for row in rows] == [("a", 0), ("a", 1)]
        rows = seqgate("producers", "--topic", "a", "--partition", "1", *here).json["producers"]
        assert [(row["topic"], row["partition"]) for row in rows] == [("a", 1)]
        assert "no topic nothing" in seqgate("producers", "--topic", "nothing", *here, code=1).stderr
        assert "--topic" in seqgate("producers", "--partition", "1", *here, code=2).stderr

    @pytest.mark.parametrize("library", ["kafka-python", "confluent-kafka"])
    def test_of_real_clients(self, gateway: GatewayProcess, library: str) -> None:
        send = {"kafka-python": _send_kafka_python, "confluent-kafka": _send_confluent}[library]
        send(gateway.bootstrap, "orders", 20)
        (row,) = seqgate("producers", "--json", "--data-dir", gateway.data_dir).json["producers"]
        assert (row["topic"], row["producer_id"], row["producer_epoch"]) == ("orders", 0, 0)
        assert (row["last_sequence"], row["last_offset"]) == (19, 19)

    def test_survive_a_restart(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "orders", 1)
        for base_sequence in (0, 2, 4):
            produce(gateway.bootstrap, "orders", 0, 9, base_sequence, 2)
        gateway.restart(kill=True)
        (row,) = seqgate("producers", "--json", "--data-dir", gateway.data_dir).json["producers"]
        assert (row["last_sequence"], row["last_offset"], row["retained_batches"]) == (5, 5, 3)

    def test_fits_a_terminal(self, gateway: GatewayProcess) -> None:
        create_topic(gateway.bootstrap, "a-topic-with-a-name-of-some-length-" * 3, 1)
        produce(gateway.bootstrap, "a-topic-with-a-name-of-some-length-" * 3, 0, 2**62, 0, 3)
        shown = seqgate("producers", "--data-dir", gateway.data_dir).stdout
        assert str(2**62) in shown


def _send_kafka_python(bootstrap: str, topic: str, count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush(20)
    producer.close()


def _send_confluent(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0


def test_status(gateway: GatewayProcess) -> None:
    create_topic(gateway.bootstrap, "orders", 3)
    next_producer_id(gateway.bootstrap)
    status = seqgate("status", "--json", "--data-dir", gateway.data_dir).json
    assert (status["pid"], status["topics"], status["partitions"]) == (gateway.pid, 1, 3)
    assert status["producer_ids_left"] == 999
    assert status["listeners"] == {"PLAINTEXT": gateway.bootstrap}
    assert status["requests"] >= 2
    assert status["flush_rounds"] > 0
    assert status["offline_partitions"] == []
    assert gateway.bootstrap in seqgate("status", "--data-dir", gateway.data_dir).stdout


@pytest.mark.parametrize("command", [["producers"], ["status"], ["reopen", "orders", "0"]])
def test_commands_that_need_a_running_gateway_say_so(tmp_path: Path, command: list[str]) -> None:
    refused = seqgate(*command, "--data-dir", tmp_path, code=1)
    assert f"no gateway is running on {tmp_path}" in refused.stderr


class FullDisk(Storage):
    """A disk that refuses writes to one partition's data files while it is full."""

    full = False

    def write(self, file: Any, buffers: Sequence[Any], position: int) -> int:
        if self.full and "/orders-0/" in file.path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(file, buffers, position)

    def free_bytes(self, path: str) -> int:
        # a gateway that sees free disk space reopens the partition by itself
        raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_partition_comes_back_after_the_disk_was_full(tmp_path: Path) -> None:
    disk = FullDisk()
    data_dir = tmp_path / "data"
    gateway = Gateway(
        load_config(overrides=[f"log.dirs={data_dir}", "listeners=PLAINTEXT://127.0.0.1:0"]),
        Machine(storage=disk),
    )
    await gateway.start()
    endpoint = gateway.services.node.brokers.advertised["PLAINTEXT"]
    bootstrap = f"{endpoint.host}:{endpoint.port}"
    here = ("--data-dir", data_dir)
    try:
        await asyncio.to_thread(create_topic, bootstrap, "orders", 2)
        assert await asyncio.to_thread(produce, bootstrap, "orders", 0, 5, 0, 3) == (0, 0)
        disk.full = True
        assert (await asyncio.to_thread(produce, bootstrap, "orders", 0, 5, 3, 2))[0] == STORAGE_ERROR
        status = await asyncio.to_thread(seqgate, "status", *here, code=1)
        assert "orders-0: " in status.stdout
        assert "No space left on device" in status.stdout
        assert await asyncio.to_thread(produce, bootstrap, "orders", 1, 5, 0, 1) == (0, 0)
        disk.full = False
        back = await asyncio.to_thread(seqgate, "reopen", "orders", "0", *here)
        assert "orders-0 is back: offsets 0 up to 3." in back.stdout
        assert await asyncio.to_thread(produce, bootstrap, "orders", 0, 5, 3, 2) == (0, 3)
        await asyncio.to_thread(seqgate, "status", *here)
    finally:
        await gateway.stop()
