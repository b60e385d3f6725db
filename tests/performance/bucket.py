"""The same load on a gateway with a local disk and on one with a bucket that is far away: `python -m
tests.performance.bucket`.

The store is versitygw on this machine's disk, behind a proxy that delays each answer (`delayed_store.py`).
Both gateways run all the time and only one is under load; the order is swapped after each round. The proxy
counts requests, and from these come the costs at the list prices of Amazon S3 Standard in us-east-1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.performance.bare_puts import bare_put_us, touch
from tests.performance.brokers import SeqgateBroker
from tests.performance.catchup import PacedProducer
from tests.performance.compare import workspace
from tests.performance.delayed_store import Counts, DelayedStore
from tests.performance.loads import (
    EVERY_MESSAGE,
    Sample,
    create_topic,
    delete_topic,
    load_program,
    run_plan,
    write_produce_plan,
)
from tests.performance.report import describe_run
from tests.performance.transactions import run_transactions
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw

MEDIAN_MS: Final = 30.0
P99_MS: Final = 100.0
PUT_PRICE: Final = 5.0 / 1e6
"""Dollars for a put or a list."""
GET_PRICE: Final = 0.4 / 1e6
"""Dollars for a get."""
PARTITIONS = 8
MB = 1e6
HEADINGS = (
    "load",
    "records/s",
    "MB/s",
    "p50 ms",
    "p99 ms",
    "gateway CPU µs per record",
    "ratio",
    "put p50 ms",
    "puts/s",
    "KB per put",
    "$ for a million records",
)

Load = Callable[["Distance", SeqgateBroker, str], Sample]


@dataclass(frozen=True)
class Row:
    """A load, and the bytes of each of its records."""

    name: str
    title: str
    load: Load
    record_bytes: int


@dataclass(frozen=True)
class Distance:
    """The tools and the length of a load."""

    program: list[str]
    directory: Path
    seconds: float
    touched_gib: float = 0.0
    """The memory that is written to before each load."""


@dataclass(frozen=True)
class Measured:
    """One load on one gateway, and what the store got meanwhile."""

    sample: Sample
    store: Counts


def produce(connections: int, *, record_count: int, size: int, depth: int, rate: float = 0.0) -> Load:
    """Return a load of requests with acks=all, `depth` in flight on each connection, and `rate` per second on
    all of them.
    """

    def load(at: Distance, gateway: SeqgateBroker, topic: str) -> Sample:
        partitions = min(PARTITIONS, connections)
        create_topic(gateway, topic, partitions=partitions, flush_messages=EVERY_MESSAGE)
        plan = at.directory / "produce.plan"
        write_produce_plan(
            plan,
            gateway,
            topic,
            partitions=partitions,
            connections=connections,
            record_count=record_count,
            size=size,
        )
        return run_plan(at.program, gateway, plan, "produce", seconds=at.seconds, depth=depth, rate=rate)

    return load


def paced(rate: float) -> Load:
    """Return a load of requests of ten records, so many per second, over one connection."""

    def load(at: Distance, gateway: SeqgateBroker, topic: str) -> Sample:
        create_topic(gateway, topic, partitions=1, flush_messages=EVERY_MESSAGE)
        producer = PacedProducer(gateway, topic, rate=rate, partitions=1)
        before_s = gateway.cpu_s()
        took = producer.run(seconds=at.seconds * 3)
        producer.close()
        return Sample(
            records=10 * len(took.all_ms),
            requests=len(took.all_ms),
            records_per_s=10 * rate,
            p99_ms=took.quantile_ms(0.99),
            broker_cpu_s=gateway.cpu_s() - before_s,
            client_cpu_s=0.0,
            resident_bytes=gateway.resident_bytes(),
            p50_ms=took.quantile_ms(0.5),
        )

    return load


def transactions(connections: int) -> Load:
    """Return a load of transactions of two records."""

    def load(at: Distance, gateway: SeqgateBroker, topic: str) -> Sample:
        return run_transactions(
            gateway, topic, connections=connections, seconds=at.seconds, flush_messages=EVERY_MESSAGE
        )

    return load


ROWS = (
    Row("paced", "requests of ten records, 5 per second", paced(5), 100),
    Row("one-1", "one-record requests, 1 connection", produce(1, record_count=1, size=100, depth=1), 100),
    Row("one-64", "one-record requests, 64 connections", produce(64, record_count=1, size=100, depth=1), 100),
    Row(
        "eight",
        "900 records of 1,000 B, 8 producers, 5 requests in flight",
        produce(8, record_count=900, size=1000, depth=5),
        1000,
    ),
    Row(
        "paced-100",
        "900 records of 1,000 B, 8 producers, 100 MB/s",
        produce(8, record_count=900, size=1000, depth=5, rate=100 * MB / 900_000),
        1000,
    ),
    Row("txn-1", "transactions of two records, 1 producer (p99 of EndTxn)", transactions(1), 200),
    Row("txn-16", "transactions of two records, 16 producers (p99 of EndTxn)", transactions(16), 200),
)


@contextmanager
def gateways(directory: Path, *, median_ms: float, p99_ms: float) -> Iterator[Gateways]:
    """Run a store, the proxy before it, and both gateways."""
    with ExitStack() as running:
        store = running.enter_context(Versitygw())
        proxy = running.enter_context(DelayedStore(store.port))
        proxy.delay(median_ms, p99_ms)
        settings = {
            "seqgate.cluster": f"s3://{BUCKET}/bench",
            "seqgate.cluster.endpoint": f"http://127.0.0.1:{proxy.port}",
            "seqgate.cluster.region": REGION,
        }
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        local = running.enter_context(SeqgateBroker(directory / "local"))
        bucket = running.enter_context(SeqgateBroker(directory / "bucket", settings, environment=keys))
        yield Gateways(local, bucket, proxy)


class Gateways:
    """The gateway with a local disk, the one with a bucket, and the proxy before the bucket."""

    def __init__(self, local: SeqgateBroker, bucket: SeqgateBroker, proxy: DelayedStore) -> None:
        self.local = local
        self.bucket = bucket
        self._proxy = proxy
        self._number = 0

    def run(self, row: Row, at: Distance, gateway: SeqgateBroker) -> Measured:
        """Run one load on a new topic of one gateway, and delete the topic afterwards."""
        self._number += 1
        topic = f"bench-{row.name}-{self._number}"
        touch(at.touched_gib)
        before = self._proxy.counts()
        sample = row.load(at, gateway, topic)
        after = self._proxy.counts()
        delete_topic(gateway, topic)
        store = Counts(
            after.puts - before.puts,
            after.gets - before.gets,
            after.others - before.others,
            after.put_bytes - before.put_bytes,
            after.put_ms[len(before.put_ms) :],
        )
        return Measured(sample, store)

    def bare_puts(self, rounds: int) -> str:
        """Return a sentence with the CPU of puts without a gateway."""
        found = [bare_put_us(self._proxy.port, f"bare-{number}") for number in range(rounds)]
        return f"Bare puts of the same bytes by the client alone: {statistics.median(found):.2f} µs of CPU per 1,000 B."

    def measure(self, row: Row, at: Distance, rounds: int) -> Mapping[str, list[Measured]]:
        """Return the samples of both gateways after a warm-up."""
        both = {"local": self.local, "bucket": self.bucket}
        found: dict[str, list[Measured]] = {name: [] for name in both}
        for number in range(rounds + 1):
            for name in both if number % 2 == 0 else reversed(both):
                measured = self.run(row, at, both[name])
                if number:
                    found[name].append(measured)
        return found


def table(row: Row, found: Mapping[str, list[Measured]]) -> list[str]:
    """Return two lines of the table: the gateway with a local disk, and the one with a bucket."""
    lines = []
    local_us = _median(found["local"], _cpu_us)
    for name, measured in found.items():
        rate = _median(measured, lambda one: one.sample.records_per_s)
        p50 = [one.sample.p50_ms for one in measured if one.sample.p50_ms is not None]
        cpu_us = _median(measured, _cpu_us)
        cells = [
            f"{row.title}, {name}",
            f"{rate:,.0f}",
            f"{rate * row.record_bytes / MB:.1f}",
            f"{statistics.median(p50):.1f}" if p50 else "-",
            f"{_median(measured, lambda one: one.sample.p99_ms):.1f}",
            f"{cpu_us:.1f}",
            f"{cpu_us / local_us:.2f}",
        ]
        cells += _store_cells(measured) if name == "bucket" else ["-"] * 4
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _store_cells(measured: Sequence[Measured]) -> list[str]:
    puts_per_s = _median(
        measured, lambda one: one.store.puts / (one.sample.records / one.sample.records_per_s)
    )
    kb = _median(measured, lambda one: one.store.put_bytes / max(1, one.store.puts) / 1000)
    price = _median(measured, lambda one: dollars(one.store) / one.sample.records * 1e6)
    put_ms = statistics.median(number for one in measured for number in one.store.put_ms)
    return [f"{put_ms:.1f}", f"{puts_per_s:.1f}", f"{kb:,.0f}", f"{price:.4f}"]


def dollars(counts: Counts) -> float:
    """Return the price of the requests at S3's list prices; deletes cost nothing."""
    return counts.puts * PUT_PRICE + counts.gets * GET_PRICE


def _cpu_us(one: Measured) -> float:
    return one.sample.broker_cpu_s * 1e6 / one.sample.records


def _median(measured: Sequence[Measured], of: Callable[[Measured], float]) -> float:
    return float(statistics.median(map(of, measured)))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.bucket", description=__doc__)
    parser.add_argument(
        "--rows", help=f"names of rows, separated by commas ({','.join(r.name for r in ROWS)})"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="the length of a load")
    parser.add_argument("--median-ms", type=float, default=MEDIAN_MS, help="median delay of a put; 0: none")
    parser.add_argument("--p99-ms", type=float, default=P99_MS, help="99th percentile of the delay")
    parser.add_argument(
        "--bare-puts", action="store_true", help="also measure the client of the store without a gateway"
    )
    parser.add_argument(
        "--touch-gib", type=float, default=0.0, help="memory to write to before each load (bare_puts.touch)"
    )
    arguments = parser.parse_args(given)
    names = arguments.rows.split(",") if arguments.rows else [row.name for row in ROWS]
    if unknown := sorted(set(names) - {row.name for row in ROWS}):
        parser.error(f"no row {', '.join(unknown)}")
    command = " ".join(["python -m tests.performance.bucket", *(sys.argv[1:] if given is None else given)])
    with workspace() as directory:
        at = Distance(load_program(directory), directory, arguments.seconds, arguments.touch_gib)
        run = describe_run(command, at.program)
        print(f"Seqgate {run['seqgate']} (Python {run['python']}), {run['date']}, `{command}`.")
        print(
            f"{run['cpu']}, {run['cores']} cores, Linux {run['kernel']}. Gateway, load, store and proxy "
            "share the cores."
        )
        print(f"Puts are delayed by {arguments.median_ms:g} ms (median), {arguments.p99_ms:g} ms (p99).\n")
        print("| " + " | ".join(HEADINGS) + " |\n| --- |" + " ---: |" * (len(HEADINGS) - 1), flush=True)
        with gateways(directory, median_ms=arguments.median_ms, p99_ms=arguments.p99_ms) as both:
            for row in ROWS:
                if row.name in names:
                    print("\n".join(table(row, both.measure(row, at, arguments.rounds))), flush=True)
            if arguments.bare_puts:
                print("\n" + both.bare_puts(arguments.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
