"""Measures how a full read of old data slows producers, on Seqgate and on Apache Kafka: `python -m
tests.performance.catchup`.

Each broker gets a log of old data, which is then dropped from the page cache. So a reader's pass over it
reads every byte from the disk, as with a log larger than the cache. Meanwhile a producer sends small requests
at a fixed pace to another topic; a latency counts from the moment at which the request was due, so that a
stalled broker is charged for all waiting requests. The same pace without the reader is measured right before.
Then a second reader reads the same data, alone: what it reads from the disk, the broker has not kept cached.
Both brokers run all the time, but only one is under load, and their order is swapped after each round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import selectors
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.performance.brokers import Broker, KafkaBroker, SeqgateBroker
from tests.performance.compare import workspace
from tests.performance.loads import (
    FETCH_MAX_BYTES,
    PAGE_CACHE,
    create_topic,
    delete_topic,
    load_program,
    run_plan,
    write_fetch_plan,
    write_produce_plan,
)
from tests.performance.report import describe_run
from tests.performance.rows import (
    DURABILITIES,
    FETCH_FILL_RECORD_BYTES,
    FETCH_FILL_RECORDS,
    PARTITIONS,
    Bench,
)
from tests.support.batches import Batch, records
from tests.support.setup_peers import PROJECT
from tests.support.wire import Wire, encode

OLD = "old"
PAUSE_S = 1.0
ANSWER_TIMEOUT_S = 30.0
REQUESTS_PER_FILL = 5000
PASS = 0.97
"""The share of the old data that a pass reads. Less than all, so that no connection begins a second pass from
the cache.
"""
BATCH_BYTES = FETCH_FILL_RECORDS * FETCH_FILL_RECORD_BYTES


@dataclass
class Latencies:
    """Latencies from the moment at which each request was due to its answer, in ms."""

    all_ms: list[float] = field(default_factory=list)

    def quantile_ms(self, part: float) -> float:
        ordered = sorted(self.all_ms)
        return ordered[int(part * (len(ordered) - 1))] if ordered else 0.0


@dataclass(frozen=True)
class Pass:
    """The costs of one read of the old data to the broker."""

    disk_mb: float
    """Megabytes read from the disk."""
    cpu_s_per_gb: float


@dataclass(frozen=True)
class Round:
    """The latencies of producing alone and of producing during the read, and the costs of two reads."""

    alone_p50_ms: float
    alone_p99_ms: float
    alone_max_ms: float
    beside_p50_ms: float
    beside_p99_ms: float
    beside_max_ms: float
    read_mb_per_s: float
    read_s: float
    first: Pass
    second: Pass

    @property
    def ratio(self) -> float:
        return self.beside_p99_ms / max(self.alone_p99_ms, 1e-9)


class PacedProducer:
    """Sends a request whenever one is due, even if earlier ones are not answered yet."""

    def __init__(self, broker: Broker, topic: str, *, rate: float, partitions: int) -> None:
        self._wire = Wire(broker.bootstrap)
        self._interval_s = 1 / rate
        self._frames = [_produce_frame(topic, index) for index in range(partitions)]

    def close(self) -> None:
        self._wire.close()

    def run(self, *, seconds: float, reader: subprocess.Popen[str] | None = None) -> Latencies:
        """Produce for `seconds`, or until `reader` has finished if there is one."""
        latencies = Latencies()
        connection = self._wire._socket
        connection.settimeout(ANSWER_TIMEOUT_S)
        due_s: dict[int, float] = {}
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            start_s = time.perf_counter()
            end_s = start_s + seconds
            for number in itertools.count(1):
                next_s = start_s + number * self._interval_s
                over = time.perf_counter() > end_s if reader is None else reader.poll() is not None
                if over:
                    break
                while (left_s := next_s - time.perf_counter()) > 0:
                    if selector.select(left_s):
                        _take_answers(connection.recv(1 << 16), received, due_s, latencies)
                frame = self._frames[number % len(self._frames)]
                due_s[number] = next_s
                connection.sendall(frame[:8] + number.to_bytes(4, "big") + frame[12:])
            deadline_s = time.perf_counter() + ANSWER_TIMEOUT_S
            while due_s:
                assert time.perf_counter() < deadline_s, f"{len(due_s)} requests are not answered"
                if selector.select(1.0):
                    _take_answers(connection.recv(1 << 16), received, due_s, latencies)
        return latencies


def _produce_frame(topic: str, index: int) -> bytes:
    data = [{"index": index, "records": Batch(records(10, 100)).encode()}]
    request = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}
    payload = encode("produce", 9, request)
    return len(payload).to_bytes(4, "big") + payload


def _take_answers(data: bytes, received: bytearray, due_s: dict[int, float], latencies: Latencies) -> None:
    now_s = time.perf_counter()
    assert data, "the broker closed the connection"
    received += data
    while len(received) >= 8 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
        latencies.all_ms.append((now_s - due_s.pop(int.from_bytes(received[4:8], "big"))) * 1000)
        del received[:size]


def make_cold(directory: Path, topic: str) -> int:
    """Persist the topic and drop it from the page cache; return its size in bytes."""
    total = 0
    for path in directory.rglob(f"{topic}-*/*"):
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                total += os.fstat(descriptor).st_size if path.suffix == ".log" else 0
            finally:
                os.close(descriptor)
    return total


@contextmanager
def reading(bench: Bench, broker: Broker, total_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """Read the old topic once, in a process of its own."""
    plan = bench.directory / "catchup.plan"
    write_fetch_plan(plan, OLD, partitions=PARTITIONS)
    requests = int(PASS * total_bytes / BATCH_BYTES) // (FETCH_MAX_BYTES // BATCH_BYTES)
    host, _, port = broker.bootstrap.rpartition(":")
    command = [*bench.program, "fetch", host, port, str(plan), "600", str(requests), "1", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _told(reader: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the reader tells at its end, for which this waits."""
    told: dict[str, Any] = json.loads(reader.stdout.read() if reader.stdout else "")
    return told


class Costs:
    """The resources that a broker has used since the construction."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cpu_s = broker.cpu_s()
        self._disk_bytes = broker.disk_read_bytes()

    def since(self, answer_bytes: int) -> Pass:
        return Pass(
            (self._broker.disk_read_bytes() - self._disk_bytes) / 1e6,
            (self._broker.cpu_s() - self._cpu_s) / (answer_bytes / 1e9),
        )


class CatchUp:
    """The measurement on running brokers."""

    def __init__(self, bench: Bench, brokers: dict[Broker, Path], *, seconds: float, rate: float) -> None:
        self._bench = bench
        self._brokers = brokers
        self._seconds = seconds
        self._rate = rate
        self.rounds: dict[str, dict[str, list[Round]]] = {}

    def fill(self, megabytes: int) -> None:
        for broker in self._brokers:
            create_topic(broker, OLD, partitions=PARTITIONS, flush_messages=PAGE_CACHE)
            fill_more(self._bench, broker, megabytes * 1_000_000 // BATCH_BYTES)

    def warm_up(self) -> None:
        """Load the broker so that the JVM compiles the code it needs; the first seconds are not measured."""
        for broker in self._brokers:
            for durability in DURABILITIES:
                self._round(broker, durability, self._seconds, keep=False)

    def measure(self, durability: str, rounds: int) -> None:
        brokers = list(self._brokers)
        for number in range(rounds):
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                self._round(broker, durability, self._seconds, keep=True)

    def _round(self, broker: Broker, durability: str, seconds: float, *, keep: bool) -> None:
        topic = f"tail-{time.time_ns()}"
        create_topic(broker, topic, partitions=PARTITIONS, flush_messages=DURABILITIES[durability])
        producer = PacedProducer(broker, topic, rate=self._rate, partitions=PARTITIONS)
        try:
            producer.run(seconds=PAUSE_S)
            total_bytes = make_cold(self._brokers[broker], OLD)
            time.sleep(PAUSE_S)
            alone = producer.run(seconds=seconds)
            costs = Costs(broker)
            with reading(self._bench, broker, total_bytes) as reader:
                beside = producer.run(seconds=0, reader=reader)
                told = _told(reader)
            first = costs.since(told["answer_bytes"])
            costs = Costs(broker)
            with reading(self._bench, broker, total_bytes) as reader:
                second = costs.since(_told(reader)["answer_bytes"])
        finally:
            producer.close()
        delete_topic(broker, topic)
        if keep:
            done = Round(
                *(latencies.quantile_ms(part) for latencies in (alone, beside) for part in (0.5, 0.99, 1.0)),
                read_mb_per_s=told["answer_bytes"] / told["seconds"] / 1e6,
                read_s=told["seconds"],
                first=first,
                second=second,
            )
            self.rounds.setdefault(durability, {}).setdefault(broker.name, []).append(done)
            print(f"{broker.name}, {durability}: {done}", file=sys.stderr, flush=True)


def fill_more(bench: Bench, broker: Broker, requests: int) -> None:
    """Append this many batches of 200 records of 1,000 bytes to the old topic."""
    plan = bench.directory / "fill.plan"
    while requests > 0:
        part = min(requests, REQUESTS_PER_FILL)
        requests -= part
        write_produce_plan(
            plan,
            broker,
            OLD,
            partitions=PARTITIONS,
            connections=PARTITIONS,
            record_count=FETCH_FILL_RECORDS,
            size=FETCH_FILL_RECORD_BYTES,
        )
        run_plan(bench.program, broker, plan, "produce", seconds=60, depth=5, max_requests=part)


def markdown(run: dict[str, str], rounds: dict[str, dict[str, list[Round]]]) -> str:
    """Return the medians of the rounds as a table in Markdown."""
    lines = [
        f"{run['date']}, `{run['command']}`, {run['cpu']}, {run['cores']} cores, Linux {run['kernel']}.",
        "",
        (
            "| durability | broker | p99 alone, ms | p99 with the reader | ratio | p50 alone / with the reader | "
            "longest alone / with the reader | MB/s read | MB from the disk, first / second reader | "
            "CPU s/GB of the second |"
        ),
        "| --- | --- |" + " ---: |" * 8,
    ]
    for durability, brokers in rounds.items():
        for name, done in brokers.items():

            def median(what: str, done: list[Round] = done) -> float:
                return float(statistics.median(getattr(one, what) for one in done))

            lines.append(
                f"| {durability} | {name} | {median('alone_p99_ms'):.2f} | {median('beside_p99_ms'):.2f} | "
                f"{median('ratio'):.2f} | {median('alone_p50_ms'):.2f} / {median('beside_p50_ms'):.2f} | "
                f"{median('alone_max_ms'):.1f} / {median('beside_max_ms'):.1f} | "
                f"{median('read_mb_per_s'):.0f} | "
                f"{statistics.median(one.first.disk_mb for one in done):.0f} / "
                f"{statistics.median(one.second.disk_mb for one in done):.0f} | "
                f"{statistics.median(one.second.cpu_s_per_gb for one in done):.2f} |"
            )
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.catchup", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=4000, help="size of the old data on each broker")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of producing without a reader")
    parser.add_argument(
        "--rate", type=float, default=200.0, help="requests per second, of ten records of 100 bytes"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--durability", choices=tuple(DURABILITIES), help="run only this durability instead of all"
    )
    parser.add_argument("--only-seqgate", action="store_true", help="measure only Seqgate")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for Seqgate, NAME=VALUE"
    )
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    arguments = parser.parse_args(given)
    command = " ".join(["python -m tests.performance.catchup", *(sys.argv[1:] if given is None else given)])
    settings = dict(item.split("=", 1) for item in arguments.set)
    with workspace() as directory, ExitStack() as running:
        bench = Bench(load_program(directory), directory)
        brokers: dict[Broker, Path] = {}
        seqgate = running.enter_context(SeqgateBroker(directory / "seqgate", settings))
        brokers[seqgate] = directory / "seqgate"
        if not arguments.only_seqgate:
            kafka = running.enter_context(KafkaBroker(directory / "kafka"))
            brokers[kafka] = directory / "kafka"
        catch_up = CatchUp(bench, brokers, seconds=arguments.seconds, rate=arguments.rate)
        catch_up.fill(arguments.megabytes)
        catch_up.warm_up()
        for durability in DURABILITIES:
            if arguments.durability in {None, durability}:
                catch_up.measure(durability, arguments.rounds)
        run = describe_run(command, bench.program)
        print(markdown(run, catch_up.rounds))
        if arguments.json is not None:
            told = {
                durability: {
                    name: [asdict(one) | {"ratio": one.ratio} for one in done] for name, done in found.items()
                }
                for durability, found in catch_up.rounds.items()
            }
            arguments.json.write_text(json.dumps({"run": run, "rounds": told}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
