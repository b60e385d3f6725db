"""Measures many partitions on one node: `python -m tests.performance.scale --partitions 1000 10000 100000`.

Each number of partitions gets a fresh data directory. The steps are: create topics of a thousand partitions,
write a first record into every partition (`--filled`) or into one of a hundred, and load one of a hundred
partitions. During the load a second connection sends ApiVersions all the time: its longest wait is how long
background work can delay any request. Background jobs run every few seconds, far more often than in practice,
or with `--usual-jobs` as often as by default; then let `--idle-seconds` be at least 300, so that each job
runs. Then follow memory, CPU without load, Metadata of one topic and of all topics, open files, a clean stop,
a start, and a start after `kill -9`.

`--kafka` measures Apache Kafka as well, with a heap of 1 GB; `kill` stops it, so its starts are those after a
crash. `--simulated 1000000` builds that many partitions in this process, without a disk, and shows the cost
of the tables.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import threading
import time
import tracemalloc
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import PartitionRecord, TopicRecord
from seqgate.gateway.runtime.partitions.registry import Partitions
from tests.performance.brokers import Broker, KafkaBroker, SeqgateBroker
from tests.performance.report import MIB
from tests.support.batches import Batch, records
from tests.support.setup_peers import CACHE
from tests.support.wire import Wire, encode

PER_TOPIC = 1000
ACTIVE_EVERY = 100
ROWS_PER_REQUEST = 100
LONG_S = 600.0
PACED_PER_S = 200
JOBS_EVERY_MS = "3000"
BUSY_JOBS = {
    "log.retention.check.interval.ms": JOBS_EVERY_MS,
    "log.flush.offset.checkpoint.interval.ms": JOBS_EVERY_MS,
    "producer.id.expiration.check.interval.ms": JOBS_EVERY_MS,
}
COLUMNS = (
    "broker",
    "partitions",
    "with records",
    "created in s",
    "first writes s",
    "clean stop s",
    "start after it s",
    "start after kill -9 s",
    "resident MiB",
    "idle CPU %",
    "loaded CPU %",
    "produce p99 ms",
    "fetch p99 ms",
    "longest wait ms",
    "Metadata of a topic ms",
    "Metadata of all ms",
    "open files",
)


@dataclass
class Figures:
    """A row of the table, by column."""

    cells: dict[str, str] = field(default_factory=dict)

    def put(self, column: str, value: float | str, digits: int = 0) -> None:
        assert column in COLUMNS
        self.cells[column] = value if isinstance(value, str) else f"{value:,.{digits}f}"

    def line(self) -> str:
        return "| " + " | ".join(self.cells.get(column, "") for column in COLUMNS) + " |"


def topics_of(partitions: int) -> list[str]:
    return [f"scale-{number}" for number in range(-(-partitions // PER_TOPIC))]


def create(broker: Broker, partitions: int) -> float:
    """Create all topics, one request each; return the time until the last one is answered and has leaders."""
    begun_s = time.monotonic()
    with Wire(broker.bootstrap, timeout_s=LONG_S) as wire:
        left = partitions
        for name in topics_of(partitions):
            topic = {"name": name, "num_partitions": min(left, PER_TOPIC), "replication_factor": 1}
            answer = wire.call("create_topics", 7, topics=[{**topic, "configs": []}], timeout=600_000)
            assert answer.fields["topics"][0]["error_code"] == 0, answer
            left -= PER_TOPIC
        until_led(wire, name)
    return time.monotonic() - begun_s


def until_led(wire: Wire, name: str) -> None:
    """Wait until the topic's partitions have leaders."""
    deadline = time.monotonic() + LONG_S
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    while True:
        (topic,) = wire.call("metadata", 12, asked).fields["topics"]
        if topic["partitions"] and not any(row["error_code"] for row in topic["partitions"]):
            return
        assert time.monotonic() < deadline, f"topic {name} does not get ready"
        time.sleep(0.05)


def produce_frame(name: str, indexes: Sequence[int]) -> bytes:
    batch = Batch(records(1, 100)).encode()
    rows = [{"index": index, "records": batch} for index in indexes]
    request = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 60_000,
        "topic_data": [{"name": name, "partition_data": rows}],
    }
    return encode("produce", 9, request)


def fetch_frame(name: str, index: int) -> bytes:
    row = {
        "partition": index,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 100_000,
    }
    request = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 100_000,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": [row]}],
        "forgotten_topics_data": [],
    }
    return encode("fetch", 11, request)


def fill(broker: Broker, partitions: int, every: int) -> float:
    """Write a record into every partition, or into one of `every`; return how many seconds that took."""
    begun_s = time.monotonic()
    with Wire(broker.bootstrap, timeout_s=LONG_S) as wire:
        for name, count in _counts(partitions):
            for first in range(0, count, ROWS_PER_REQUEST * every):
                last = min(count, first + ROWS_PER_REQUEST * every)
                wire.send_frame(produce_frame(name, range(first, last, every)))
                wire.receive_frame()
    return time.monotonic() - begun_s


def _counts(partitions: int) -> Iterator[tuple[str, int]]:
    for number, name in enumerate(topics_of(partitions)):
        yield name, min(PER_TOPIC, partitions - number * PER_TOPIC)


class LongestWait:
    """A connection that sends the cheapest request over and over, and its longest wait in ms."""

    def __init__(self, broker: Broker) -> None:
        self.longest_ms = 0.0
        self._wire = Wire(broker.bootstrap, timeout_s=LONG_S)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        frame = encode("api_versions", 3, {"client_software_name": "b", "client_software_version": "1"})
        while not self._stopped.wait(0.002):
            begun_s = time.perf_counter()
            self._wire.send_frame(frame)
            self._wire.receive_frame()
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - begun_s) * 1000)

    @contextmanager
    def measured(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            self._wire.close()


def paced(broker: Broker, partitions: int, seconds: float) -> tuple[list[float], list[float]]:
    """Produce to, and fetch from, one of a hundred partitions in turn; return the time of each request in ms."""
    places = [(name, index) for name, count in _counts(partitions) for index in range(0, count, ACTIVE_EVERY)]
    produced, fetched = [], []
    with Wire(broker.bootstrap, timeout_s=LONG_S) as wire:
        begun_s = time.perf_counter()
        number = 0
        while time.perf_counter() - begun_s < seconds:
            name, index = places[number % len(places)]
            frames = produce_frame(name, [index]), fetch_frame(name, index)
            for frame, times in zip(frames, (produced, fetched), strict=True):
                sent_s = time.perf_counter()
                wire.send_frame(frame)
                wire.receive_frame()
                times.append((time.perf_counter() - sent_s) * 1000)
            number += 1
            time.sleep(max(0.0, begun_s + number / PACED_PER_S - time.perf_counter()))
    return produced, fetched


def p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def metadata_ms(broker: Broker, names: list[str] | None) -> float:
    """Return the shortest of three times: the cost of the request itself, without other work."""
    asked = None if names is None else [{"name": name} for name in names]
    frame = encode("metadata", 9, {"topics": asked, "allow_auto_topic_creation": False})
    best = LONG_S * 1000
    with Wire(broker.bootstrap, timeout_s=LONG_S) as wire:
        for _ in range(3):
            begun_s = time.perf_counter()
            wire.send_frame(frame)
            wire.receive_frame()
            best = min(best, (time.perf_counter() - begun_s) * 1000)
    return best


def cpu_percent(broker: Broker, seconds: float) -> float:
    before = broker.cpu_s()
    time.sleep(seconds)
    return (broker.cpu_s() - before) / seconds * 100


def measure(broker: Broker, partitions: int, *, filled: bool, seconds: float, idle_seconds: float) -> Figures:
    """Measure all phases of one broker. The broker must be running; it is stopped at the end."""
    figures = Figures()
    figures.put("broker", broker.name)
    figures.put("partitions", partitions)
    figures.put("created in s", create(broker, partitions), 2)
    every = 1 if filled else ACTIVE_EVERY
    figures.put("with records", -(-partitions // every))
    figures.put("first writes s", fill(broker, partitions, every), 2)
    figures.put("idle CPU %", cpu_percent(broker, idle_seconds), 1)
    before = broker.cpu_s()
    wait = LongestWait(broker)
    with wait.measured():
        produced, fetched = paced(broker, partitions, 2 * seconds)
    figures.put("loaded CPU %", (broker.cpu_s() - before) / (2 * seconds) * 100, 1)
    figures.put("produce p99 ms", p99(produced), 1)
    figures.put("fetch p99 ms", p99(fetched), 1)
    figures.put("longest wait ms", wait.longest_ms, 1)
    figures.put("Metadata of a topic ms", metadata_ms(broker, topics_of(partitions)[:1]), 1)
    figures.put("Metadata of all ms", metadata_ms(broker, None), 1)
    figures.put("resident MiB", broker.resident_bytes() / MIB)
    figures.put("open files", float(len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))))
    if isinstance(broker, SeqgateBroker):
        begun_s = time.monotonic()
        broker.stop()
        figures.put("clean stop s", time.monotonic() - begun_s, 2)
        broker.start()
        figures.put("start after it s", broker.start_s, 2)
        fill(broker, partitions, ACTIVE_EVERY)
        broker.kill()
        broker.start()
        figures.put("start after kill -9 s", broker.start_s, 2)
    return figures


class _Nothing:
    def open(self, topic: str, index: int) -> None:
        raise AssertionError((topic, index))

    def is_empty(self, topic: str, index: int) -> bool:
        return True


def simulate(partitions: int) -> str:
    """Measure the memory of the tables of this many partitions, and the time of a replay of the metadata."""
    tracemalloc.start()
    begun_s = time.perf_counter()
    image, served = MetadataImage(), Partitions()
    for name, count in _counts(partitions):
        topic_id = uuid.uuid4()
        image.replay(TopicRecord(name, topic_id))
        for index in range(count):
            image.replay(PartitionRecord(index, topic_id, (1,), (1,), 1, 0, 0))
        served.register(name, topic_id, count, _Nothing())
    took_s = time.perf_counter() - begun_s
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(served) == image.partition_count == partitions
    return (
        f"{partitions:,} partitions, simulated: {size_bytes / MIB:,.0f} MiB of tables, "
        f"{size_bytes / partitions:,.0f} bytes each, replayed in {took_s:.1f} s under tracemalloc"
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--filled", action="store_true", help="write a record into every partition")
    parser.add_argument(
        "--kafka",
        type=int,
        nargs="*",
        default=[],
        help="measure Apache Kafka with these numbers of partitions",
    )
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="seconds of measurement without load; with load, twice as long",
    )
    parser.add_argument(
        "--idle-seconds", type=float, help="seconds of measurement without load, if not --seconds"
    )
    parser.add_argument(
        "--usual-jobs", action="store_true", help="run background jobs as often as by default"
    )
    arguments = parser.parse_args(given)
    print("| " + " | ".join(COLUMNS) + " |")
    print("| --- " + "| ---: " * (len(COLUMNS) - 1) + "|")
    jobs = {} if arguments.usual_jobs else BUSY_JOBS
    runs = [(SeqgateBroker, count) for count in arguments.partitions]
    runs += [(KafkaBroker, count) for count in arguments.kafka]
    for kind, count in runs:
        directory = CACHE / "bench" / f"scale-{time.time_ns()}"
        broker = kind(directory, jobs) if kind is SeqgateBroker else kind(directory)
        try:
            with broker:
                found = measure(
                    broker,
                    count,
                    filled=arguments.filled,
                    seconds=arguments.seconds,
                    idle_seconds=arguments.idle_seconds or arguments.seconds,
                )
            print(found.line(), flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    if arguments.simulated:
        print(simulate(arguments.simulated))
    return 0


if __name__ == "__main__":
    sys.exit(main())
