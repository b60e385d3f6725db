"""Compaction in a running gateway that is killed at random points; Kafka's own tools check the result."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.log.format.record_batch import whole_batches
from seqgate.log.format.records import iterate_records
from tests.compat.groups.members import await_that
from tests.compat.topics import fresh_topic
from tests.support.batches import Batch, Record
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Closed, Silent, Wire

EAGER = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.05",
    "log.internal.segment.bytes": "20000",
    "log.segment.delete.delay.ms": "0",
}
TIMEOUT_S = 90.0
WORKER = re.compile(r"a process for compaction was started, pid (\d+)")


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path / "data", settings=EAGER) as process:
        yield process


def cleanings(gateway: GatewayProcess) -> int:
    return gateway.stderr_text().count("was compacted because")


class Writer:
    """An idempotent producer that retries each batch until it is answered, and remembers every answer."""

    def __init__(self, gateway: GatewayProcess, topic: str, producer_id: int) -> None:
        self.gateway = gateway
        self.topic = topic
        self.producer_id = producer_id
        self.sequence = 0
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        """The key and the value of each acknowledged record, by offset."""

    def send(self, count: int) -> None:
        pairs = []
        for number in range(self.sequence, self.sequence + count):
            value = None if number % 11 == 0 else f"v{number:06d}".encode() * 20
            pairs.append((f"k{(number * 7) % 40}".encode(), value))
        batch = Batch(tuple(Record(key=key, value=value) for key, value in pairs), codec="zstd")
        base_offset = self._until_answered(batch.of(self.producer_id, 0, self.sequence).encode())
        self.sequence += count
        self.written.update({base_offset + number: pair for number, pair in enumerate(pairs)})

    def _until_answered(self, records: bytes) -> int:
        data = [{"name": self.topic, "partition_data": [{"index": 0, "records": records}]}]
        request: dict[str, Any] = {"acks": -1, "timeout": 5_000, "topic_data": data}
        while True:
            try:
                with Wire(self.gateway.bootstrap) as wire:
                    answer = wire.call("produce", 9, transactional_id=None, **request).fields
            except (Closed, Silent, OSError):
                continue
            row = answer["responses"][0]["partition_responses"][0]
            assert row["error_code"] == 0, row
            return int(row["base_offset"])


def stored_records(
    gateway: GatewayProcess, topic: str, end_offset: int
) -> dict[int, tuple[bytes, bytes | None]]:
    found: dict[int, tuple[bytes, bytes | None]] = {}
    offset = 0
    with Wire(gateway.bootstrap) as wire:
        while offset < end_offset:
            wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            wanted |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
            topics = [{"topic": topic, "partitions": [wanted]}]
            limits = {"replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20}
            answer = wire.call("fetch", 12, limits, topics=topics, session_epoch=-1).fields
            data = answer["responses"][0]["partitions"][0]["records"]
            for position, header in whole_batches(data):
                assert header.base_offset >= offset
                for record in iterate_records(data[position : position + header.size_bytes]):
                    assert record.key is not None
                    assert record.offset not in found
                    found[record.offset] = record.key, record.value
                offset = header.last_offset + 1
    return found


def newest(records: dict[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    table = {}
    for _, (key, value) in sorted(records.items()):
        table[key] = value
    return {key: value for key, value in table.items() if value is not None}


def producers(gateway: GatewayProcess, topic: str) -> dict[int, tuple[int, int]]:
    wanted = [{"name": topic, "partition_indexes": [0]}]
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("describe_producers", 0, topics=wanted).fields
    rows = answer["topics"][0]["partitions"][0]["active_producers"]
    return {row["producer_id"]: (row["producer_epoch"], row["last_sequence"]) for row in rows}


def test_killed_at_random_points(eager: GatewayProcess) -> None:
    """Kill the compacting process and the gateway at random points: each acknowledged record is stored once,
    at its offset."""
    chance = random.Random(6)
    eager.settings["log.cleaner.io.max.bytes.per.second"] = (
        "300000"  # a slow compaction, so that the kill interrupts it
    )
    eager.restart()
    topic = fresh_topic(eager.bootstrap, "killed", configs={"cleanup.policy": "compact"})
    writers = [Writer(eager, topic, producer_id) for producer_id in (1, 2)]
    killed_workers = 0
    for number in range(180):
        writers[number % 2].send(chance.randint(1, 12))
        if number % 13 == 12:
            pids = WORKER.findall(eager.stderr_text())
            if pids and kill_worker(int(pids[-1])):
                killed_workers += 1
        if number % 45 == 44:
            eager.restart(kill=True)
            check(eager, topic, writers)
    assert killed_workers > 0
    before = cleanings(eager)
    await_that(lambda: cleanings(eager) > before or before > 3, "a compaction is over", timeout_s=TIMEOUT_S)
    check(eager, topic, writers)
    eager.restart()
    check(eager, topic, writers)
    with_written = [offset for writer in writers for offset in writer.written]
    assert len(stored_records(eager, topic, max(with_written) + 1)) < len(with_written)
    partition = eager.data_dir / f"{topic}-0"
    eager.stop()
    assert not [path for path in partition.iterdir() if path.suffix in {".cleaned", ".swap"}]
    dump(partition)
    eager.start()


def kill_worker(pid: int) -> bool:
    """Kill the compacting process, unless a later one has taken its place."""
    try:
        if b"seqgate.log.compaction.cleaner" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


def check(gateway: GatewayProcess, topic: str, writers: list[Writer]) -> None:
    written = {offset: pair for writer in writers for offset, pair in writer.written.items()}
    assert sorted(written) == list(range(len(written))), "offsets are not dense, or two batches share one"
    found = stored_records(gateway, topic, len(written))
    assert all(written[offset] == pair for offset, pair in found.items())
    assert newest(found) == newest(written)
    told = producers(gateway, topic)
    assert told == {writer.producer_id: (0, writer.sequence - 1) for writer in writers}


def dump(directory: Path) -> None:
    files = ",".join(map(str, sorted(directory.glob("*.log"))))
    run = run_tool(
        "kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", files
    ).expect_success()
    for bad in ("isvalid: false", "Mismatch", "out of order", "not equal", "xception"):
        assert bad not in run.stdout + run.stderr
    indexes = ",".join(map(str, sorted(directory.glob("*.index")) + sorted(directory.glob("*.timeindex"))))
    for check_of_indexes in ("--verify-index-only", "--index-sanity-check"):
        run = run_tool("kafka-dump-log", check_of_indexes, "--files", indexes).expect_success()
        for bad in ("Mismatch", "out of order", "not equal", "xception"):
            assert bad not in run.stdout + run.stderr


def test_kafkas_log_compaction_tester(eager: GatewayProcess) -> None:
    """The tool produces, waits, consumes with the JVM client, and compares the values of each key."""
    arguments = ["--messages", "8000", "--topics", "1", "--percent-deletes", "20", "--duplicates", "20"]
    run = run_tool(
        "org.apache.kafka.tools.LogCompactionTester",
        *("--bootstrap-server", eager.bootstrap, "--sleep", "2", *arguments),
    ).expect_success()
    assert "0 mismatches" in run.stdout
    produced, consumed = re.findall(r"(\d+) rows of data (?:produced|consumed)", run.stdout)
    assert int(consumed) < int(produced) / 2


def test_a_damaged_partition_is_left_alone(eager: GatewayProcess) -> None:
    """The gateway compacts all partitions but the damaged one, and logs the damage once."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    damaged = fresh_topic(eager.bootstrap, "damaged", configs=settings)
    whole = fresh_topic(eager.bootstrap, "whole", configs=settings)
    for topic in (damaged, whole):
        writer = Writer(eager, topic, 1)
        for _ in range(300):
            writer.send(10)
    first = eager.data_dir / f"{damaged}-0" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[100] ^= 0xFF
    first.write_bytes(content)
    for topic in (damaged, whole):
        alter(eager, topic, "min.cleanable.dirty.ratio", "0.1")
    await_that(
        lambda: f"{whole}-0 was compacted because" in eager.stderr_text(),
        "the other is compacted",
        timeout_s=TIMEOUT_S,
    )
    said = f"{damaged}-0 is not compacted any more until the gateway restarts: CorruptRecord"
    await_that(lambda: said in eager.stderr_text(), said, timeout_s=TIMEOUT_S)
    alter(eager, damaged, "delete.retention.ms", "5")
    before = cleanings(eager)
    writer = Writer(eager, whole, 2)
    for _ in range(300):
        writer.send(10)
    await_that(lambda: cleanings(eager) > before, "a compaction is over", timeout_s=TIMEOUT_S)
    assert eager.stderr_text().count(said) == 1


def alter(gateway: GatewayProcess, topic: str, name: str, value: str) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("incremental_alter_configs", 1, resources=[resource]).fields
    assert answer["responses"][0]["error_code"] == 0
