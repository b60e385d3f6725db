"""What several workers serve on several cores: the same load on one worker and on more, bound by the
gateway's CPU.

    python -m tests.performance.workers                     # 1 and 2 workers, ten seconds each
    python -m tests.performance.workers --workers 1 2 4 --seconds 20 --rows spread

Each worker leads one topic, and a load generator of its own drives it, so that the generators do not wait for
each other. With as many cores as workers and generators the column *times one* is what a further core brings;
on fewer cores the generators take their share, which the column *client CPU* shows. It is small in the row
`spread`, where the gateway appends 32 batches for each request.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.performance.brokers import SeqgateBroker, await_api_versions
from tests.performance.loads import (
    PAGE_CACHE,
    Sample,
    load_program,
    run_plan,
    write_fetch_plan,
    write_produce_plan,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire
from tests.system.workers.scene import consecutive_ports

CONNECTIONS = 16


@dataclass(frozen=True)
class Row:
    """A load: what each request has, on CONNECTIONS connections of each generator."""

    says: str
    partitions: int = 4
    batches: int = 1
    """The batches of one record that a request has, each for another partition."""
    fetches: bool = False


ROWS = {
    "one": Row("produce: one-record requests"),
    "spread": Row("produce: requests with a record for each of 32 partitions", partitions=32, batches=32),
    "fetch": Row("fetch: 1,000 B, four fetches at once", fetches=True),
}
FETCHED_RECORD_BYTES = 1000
FETCHED_BATCH_RECORDS = 200
FILL_REQUESTS = 300


class WorkerBroker(SeqgateBroker):
    """A gateway with several workers; each can be asked for as a broker of its own."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory)
        self.count = count
        self._gateway = GatewayProcess(
            directory / "data", settings={"seqgate.workers": str(count)}, port=consecutive_ports(count)
        )

    def worker(self, number: int) -> OneWorker:
        """Return one of the workers, counted from 1."""
        listed = re.findall(r"worker \d+ (\d+)", self._gateway.ready_line)
        pid = int(listed[number - 1]) if listed else self.pid
        return OneWorker(self.directory, f"127.0.0.1:{self._gateway.port + number - 1}", pid)


class OneWorker(SeqgateBroker):
    """One worker, which another object starts and stops."""

    def __init__(self, directory: Path, bootstrap: str, pid: int) -> None:
        super().__init__(directory)
        self.bootstrap, self.pid = bootstrap, pid


@dataclass(frozen=True)
class Result:
    """The sums over all workers."""

    row: Row
    workers: int
    records_per_s: float
    p99_ms: float
    broker_cpu_s: float
    client_cpu_s: float
    seconds: float


def create_led_topic(bootstrap: str, name: str, partitions: int, node_id: int) -> None:
    """Create a topic whose partitions one worker leads."""
    assignments = [{"partition_index": index, "broker_ids": [node_id]} for index in range(partitions)]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
        "configs": [{"name": "flush.messages", "value": PAGE_CACHE}],
    }
    with Wire(bootstrap) as wire:
        created = wire.call("create_topics", 7, topics=[topic], timeout=10_000).fields["topics"][0]
        assert created["error_code"] == 0, created


def measure(directory: Path, program: list[str], row: Row, count: int, seconds: float) -> Result:
    """Drive all workers at once."""
    with WorkerBroker(directory, count) as broker, ThreadPoolExecutor(count) as threads:
        loads = [
            _Load(directory, program, row, broker.worker(number), number) for number in range(1, count + 1)
        ]
        for load in loads:
            load.prepare()
        samples = list(threads.map(lambda load: load.drive(seconds), loads))
    return Result(
        row,
        count,
        sum(sample.records_per_s for sample in samples),
        max(sample.p99_ms for sample in samples),
        sum(sample.broker_cpu_s for sample in samples),
        sum(sample.client_cpu_s for sample in samples) / count,  # each generator sees the CPU of all
        seconds,
    )


@dataclass(frozen=True)
class _Load:
    """The load of one worker."""

    directory: Path
    program: list[str]
    row: Row
    worker: OneWorker
    number: int

    @property
    def topic(self) -> str:
        return f"bench-{self.number}"

    def prepare(self) -> None:
        """Create the topic that the worker leads, with records where they are fetched."""
        await_api_versions(self.worker.bootstrap)
        create_led_topic(self.worker.bootstrap, self.topic, self.row.partitions, self.number)
        if self.row.fetches:
            plan = self._produce_plan(FETCHED_BATCH_RECORDS, FETCHED_RECORD_BYTES)
            run_plan(self.program, self.worker, plan, "produce", seconds=20, max_requests=FILL_REQUESTS)

    def drive(self, seconds: float) -> Sample:
        if not self.row.fetches:
            return run_plan(self.program, self.worker, self._produce_plan(1, 100), "produce", seconds=seconds)
        plan = self.directory / f"{self.number}.fetch.plan"
        write_fetch_plan(plan, self.topic, partitions=self.row.partitions)
        return run_plan(self.program, self.worker, plan, "fetch", seconds=seconds)

    def _produce_plan(self, record_count: int, size: int) -> Path:
        plan = self.directory / f"{self.number}.plan"
        write_produce_plan(
            plan,
            self.worker,
            self.topic,
            partitions=self.row.partitions,
            connections=CONNECTIONS,
            record_count=record_count,
            size=size,
            batches=self.row.batches,
        )
        return plan


def table(results: Sequence[Result]) -> str:
    lines = [
        "| load | workers | records/s | times one | p99 ms | gateway CPU % | client CPU % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    first: dict[Row, Result] = {}
    for result in results:
        times = result.records_per_s / first.setdefault(result.row, result).records_per_s
        gateway, client = (100 * used / result.seconds for used in (result.broker_cpu_s, result.client_cpu_s))
        lines.append(
            f"| {result.row.says} | {result.workers} | {result.records_per_s:,.0f} | {times:.2f} | "
            f"{result.p99_ms:.1f} | {gateway:.0f} | {client:.0f} |"
        )
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.workers", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers (1 2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each load (10)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="loads (all)")
    arguments = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="seqgate-workers-") as scratch:
        root = Path(scratch)
        program = load_program(root)
        results = [
            measure(root / f"{name}-{count}", program, ROWS[name], count, arguments.seconds)
            for name in arguments.rows
            for count in arguments.workers
        ]
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
