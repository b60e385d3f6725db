"""Files of a partition that Apache Kafka wrote: Seqgate reads the same transactions from them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from seqgate.log import LogConfig, PartitionLog
from tests.log.support import open_log
from tests.support.kafka_peer import KafkaPeer
from tests.support.wire import Wire

TOPIC = "transactions-on-disk"
PRODUCERS = 3
ROUNDS = 40


class Writer:
    """A transactional producer, and whether it has begun a transaction."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "batch.size": 20_000}
        )
        self.producer.init_transactions(30)
        self.is_open = False

    def send(self, count: int) -> None:
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open = True
        for _ in range(count):
            self.producer.produce(TOPIC, b"v" * 15_000, partition=0)
        assert self.producer.flush(30) == 0

    def end(self, *, commit: bool) -> None:
        if self.is_open:
            (self.producer.commit_transaction if commit else self.producer.abort_transaction)(30)
        self.is_open = False


def write(kafka: KafkaPeer) -> None:
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(1 << 20)})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[TOPIC].result(30)
    chance = random.Random(5)
    writers = [Writer(kafka.bootstrap, f"on-disk-{number}") for number in range(PRODUCERS)]
    for _ in range(ROUNDS):
        writer = chance.choice(writers)
        writer.send(chance.randint(1, 6))
        if chance.random() < 0.4:
            writer.end(commit=chance.random() < 0.4)
    for number, writer in enumerate(writers):
        writer.end(commit=number == 0)
    writers[1].send(2)
    writers[2].send(1)


def ask(wire: Wire, offset: int, max_bytes: int) -> Any:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    answer = wire.call(
        "fetch",
        12,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 24,
        isolation_level=1,
        session_epoch=-1,
        topics=[{"topic": TOPIC, "partitions": [partition]}],
    )
    return answer.fields["responses"][0]["partitions"][0]


def told(log: PartitionLog, offset: int, max_bytes: int) -> list[tuple[int, int]]:
    return log.aborted_in(offset, log.find(offset, max_bytes, upper_bound=log.last_stable_offset))


def test_what_kafka_wrote_says_the_same_here(kafka: KafkaPeer, tmp_path: Path) -> None:
    write(kafka)
    copied = tmp_path / "flights-0"
    shutil.copytree(kafka.directory / "data" / f"{TOPIC}-0", copied)
    written = {path.name: path.read_bytes() for path in copied.glob("*.txnindex")}
    config = LogConfig(segment_bytes=1 << 20)
    log = open_log(copied, config)
    assert len(log.segments) > 2
    with Wire(kafka.bootstrap) as wire:
        compared = 0
        for offset in range(log.log_end_offset):
            for max_bytes in (1, 60_000, 1 << 24):
                theirs = ask(wire, offset, max_bytes)
                assert theirs["last_stable_offset"] == log.last_stable_offset
                aborted = [
                    (row["producer_id"], row["first_offset"]) for row in theirs["aborted_transactions"]
                ]
                assert aborted == told(log, offset, max_bytes), (offset, max_bytes)
                compared += len(aborted)
        assert compared > 100
    log.close(clean=True)
    assert {path.name: path.read_bytes() for path in copied.glob("*.txnindex")} == {
        name: content for name, content in written.items() if content
    }
