"""The rows of the comparison: their loads, durabilities and amounts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tests.performance.brokers import Broker
from tests.performance.loads import (
    EVERY_MESSAGE,
    PAGE_CACHE,
    Sample,
    choose_durability,
    create_topic,
    delete_topic,
    run_consumer_performance,
    run_plan,
    run_producer_performance,
    write_commit_plan,
    write_fetch_plan,
    write_produce_plan,
)
from tests.performance.secured_client import Client
from tests.performance.transactions import STATE_TOPIC, begin_transactions, run_transactions

DURABILITIES = {"page cache": PAGE_CACHE, "flush": EVERY_MESSAGE}
PARTITIONS = 4
OFFSETS_TOPIC = "__consumer_offsets"
GROUPS = 40
FETCH_FILL_REQUESTS = 1000
FETCH_FILL_RECORDS = 200
FETCH_FILL_RECORD_BYTES = 1000


@dataclass(frozen=True)
class Extent:
    """The length of a load: seconds for the load generator, a share of the usual count for
    ProducerPerformance.
    """

    seconds: float
    share: float


class ClientSecurity(Protocol):
    """The settings with which clients connect to secured listeners."""

    def client(self, protocol: str) -> Client: ...


@dataclass(frozen=True)
class Bench:
    """The tools of a row: the load generator, a directory for plans, the flush policy of the topics, and the
    security of the brokers.
    """

    program: list[str]
    directory: Path
    flush_messages: str = PAGE_CACHE
    security: ClientSecurity | None = None


Load = Callable[[Bench, Broker, str, Extent], Sample]


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    load: Load
    durabilities: tuple[str, ...] = tuple(DURABILITIES)

    def run(self, bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        """Run one load on a new topic, and delete the topic afterwards."""
        sample = self.load(bench, broker, topic, extent)
        delete_topic(broker, topic)
        return sample


def rows_of(kind: type[Broker]) -> tuple[Row, ...]:
    """Return the rows that a kind of brokers can serve, each with the durabilities that it has."""
    rows = ROWS if kind.rows is None else [row for row in ROWS if row.name in kind.rows]
    if kind.can_flush:
        return tuple(rows)
    return tuple(replace(row, durabilities=("page cache",)) for row in rows)


def _producer_performance(
    *,
    count: int,
    size: int,
    batch_size: int,
    rate: int = -1,
    at_least: int = 1000,
    commit_interval_ms: int | None = None,
    compression_type: str = "producer",
    sent_in: str = "none",
) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        create_topic(
            broker,
            topic,
            partitions=PARTITIONS,
            flush_messages=bench.flush_messages,
            compression_type=compression_type,
        )
        wanted = max(at_least, int(count * extent.share))
        if commit_interval_ms is not None:
            begin_transactions(broker, topic)
            choose_durability(broker, STATE_TOPIC, bench.flush_messages)
        return run_producer_performance(
            broker,
            topic,
            count=wanted,
            size=size,
            batch_size=batch_size,
            rate=rate,
            commit_interval_ms=commit_interval_ms,
            codec=sent_in,
        )

    return load


def _recompressed(compression_type: str, sent_in: str) -> Load:
    return _producer_performance(
        count=300_000, size=1000, batch_size=262_144, compression_type=compression_type, sent_in=sent_in
    )


def _one_record_requests(connections: int) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        partitions = min(PARTITIONS, connections)
        create_topic(broker, topic, partitions=partitions, flush_messages=bench.flush_messages)
        plan = bench.directory / "produce.plan"
        write_produce_plan(
            plan, broker, topic, partitions=partitions, connections=connections, record_count=1, size=100
        )
        return run_plan(bench.program, broker, plan, "produce", seconds=extent.seconds)

    return load


def _commits(groups: int) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        create_topic(broker, topic, partitions=1, flush_messages=PAGE_CACHE)
        plan = bench.directory / "commit.plan"
        write_commit_plan(plan, broker, topic, groups=groups)
        choose_durability(broker, OFFSETS_TOPIC, bench.flush_messages)
        return run_plan(bench.program, broker, plan, "ask", seconds=extent.seconds)

    return load


def _consume(*, count: int, size: int) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        requests = max(PARTITIONS, int(count * extent.share) // FETCH_FILL_RECORDS)
        fill(bench, broker, topic, requests=requests, size=size)
        return run_consumer_performance(broker, topic, count=requests * FETCH_FILL_RECORDS)

    return load


def _apart(load: Load) -> Load:
    """Return the load with the broker on one core and the client on another, so that the client takes nothing
    of the broker's.
    """

    def apart(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        whole = os.sched_getaffinity(0)
        first, *_, last = sorted(whole)
        try:
            broker.run_on({first})
            os.sched_setaffinity(0, {last})
            return load(bench, broker, topic, extent)
        finally:
            os.sched_setaffinity(0, whole)
            broker.run_on(whole)

    return apart


def fill(
    bench: Bench,
    broker: Broker,
    topic: str,
    *,
    requests: int = FETCH_FILL_REQUESTS,
    size: int = FETCH_FILL_RECORD_BYTES,
) -> Sample:
    """Produce batches of 200 records of `size` bytes, spread over the partitions."""
    create_topic(broker, topic, partitions=PARTITIONS, flush_messages=bench.flush_messages)
    plan = bench.directory / "fill.plan"
    write_produce_plan(
        plan,
        broker,
        topic,
        partitions=PARTITIONS,
        connections=PARTITIONS,
        record_count=FETCH_FILL_RECORDS,
        size=size,
    )
    return run_plan(bench.program, broker, plan, "produce", seconds=20, depth=5, max_requests=requests)


def _transactions(connections: int) -> Load:
    def load(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
        return run_transactions(
            broker,
            topic,
            connections=connections,
            seconds=extent.seconds,
            flush_messages=bench.flush_messages,
        )

    return load


def _committed_every(interval_ms: int) -> Load:
    return _producer_performance(
        count=500_000, size=100, batch_size=16_384, commit_interval_ms=interval_ms, at_least=20_000
    )


def _fetch(bench: Bench, broker: Broker, topic: str, extent: Extent) -> Sample:
    fill(bench, broker, topic)
    plan = bench.directory / "fetch.plan"
    write_fetch_plan(plan, topic, partitions=PARTITIONS)
    return run_plan(bench.program, broker, plan, "fetch", seconds=extent.seconds)


ROWS = (
    Row(
        "jvm-100",
        "ProducerPerformance, 100 B, batch.size 16,384",
        _producer_performance(count=1_000_000, size=100, batch_size=16_384),
    ),
    Row(
        "jvm-1000",
        "ProducerPerformance, 1,000 B, batch.size 262,144",
        _producer_performance(count=300_000, size=1000, batch_size=262_144),
    ),
    Row("jvm-lz4", "ProducerPerformance, 1,000 B, lz4, stored as sent", _recompressed("producer", "lz4")),
    Row(
        "jvm-5000",
        "ProducerPerformance, 100 B at 5,000 records/s",
        _producer_performance(count=20_000, size=100, batch_size=16_384, rate=5_000, at_least=10_000),
    ),
    Row(
        "jvm-paced",
        "ProducerPerformance, 100 B at 20,000 records/s",
        _producer_performance(count=80_000, size=100, batch_size=16_384, rate=20_000, at_least=30_000),
    ),
    Row("none-zstd", "ProducerPerformance, 1,000 B, uncompressed into zstd", _recompressed("zstd", "none")),
    Row("none-lz4", "ProducerPerformance, 1,000 B, uncompressed into lz4", _recompressed("lz4", "none")),
    Row("zstd-lz4", "ProducerPerformance, 1,000 B, zstd into lz4", _recompressed("lz4", "zstd")),
    Row(
        "zstd-zstd",
        "ProducerPerformance, 1,000 B, zstd into zstd, stored as sent",
        _recompressed("zstd", "zstd"),
    ),
    Row("one-1", "one-record requests, 1 connection", _one_record_requests(1)),
    Row("one-64", "one-record requests, 64 connections", _one_record_requests(64)),
    Row("one-500", "one-record requests, 500 connections", _one_record_requests(500)),
    Row("one-1-apart", "one-record requests, 1 connection, a core each", _apart(_one_record_requests(1))),
    Row("one-64-apart", "one-record requests, 64 connections, a core each", _apart(_one_record_requests(64))),
    Row(
        "one-500-apart",
        "one-record requests, 500 connections, a core each",
        _apart(_one_record_requests(500)),
    ),
    Row("commit", f"offset commits of {GROUPS} groups", _commits(GROUPS)),
    Row("txn-10", "ProducerPerformance, 100 B, a commit every 10 ms", _committed_every(10)),
    Row("txn-100", "ProducerPerformance, 100 B, a commit every 100 ms", _committed_every(100)),
    Row("txn-1000", "ProducerPerformance, 100 B, a commit every 1,000 ms", _committed_every(1000)),
    Row("txn-1", "transactions of two records, 1 producer (p99 of EndTxn)", _transactions(1)),
    Row("txn-16", "transactions of two records, 16 producers (p99 of EndTxn)", _transactions(16)),
    Row("fetch", "fetch, 4 partitions, 1 MiB each", _fetch, durabilities=("page cache",)),
    Row(
        "consume-100",
        "ConsumerPerformance, 100 B",
        _consume(count=3_000_000, size=100),
        durabilities=("page cache",),
    ),
    Row(
        "consume-1000",
        "ConsumerPerformance, 1,000 B",
        _consume(count=600_000, size=1000),
        durabilities=("page cache",),
    ),
)
