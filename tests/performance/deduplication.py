"""Measures the cost of deduplication by name: `python -m tests.performance.deduplication`.

The same requests, byte by byte, go to a topic without deduplication, to one with it, and to one with it that
already has every record. (The producers are idempotent, so each batch of duplicates leaves an empty batch.)
The topics take turns, and each round begins with another one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.performance.brokers import SeqgateBroker
from tests.performance.compare import workspace
from tests.performance.loads import (
    Sample,
    create_topic,
    delete_topic,
    load_program,
    run_plan,
    write_produce_plan,
)
from tests.performance.rows import DURABILITIES, Bench

PARTITIONS = 4
WITHOUT, WITH, DUPLICATES = "without the setting", "with it", "with it, all duplicates"
KINDS = (WITHOUT, WITH, DUPLICATES)


@dataclass(frozen=True)
class Row:
    title: str
    connections: int
    depth: int
    record_count: int
    size: int
    is_named: bool = True


ROWS = (
    Row("200 records of 100 B in a request, named", 4, 5, 200, 100),
    Row("200 records of 1,000 B in a request, named", 4, 5, 200, 1000),
    Row("one record of 100 B in a request, 64 connections, named", 64, 1, 1, 100),
    Row("200 records of 100 B in a request, without headers", 4, 5, 200, 100, is_named=False),
)


def measure(
    bench: Bench, broker: SeqgateBroker, row: Row, kind: str, number: int, *, seconds: float
) -> Sample:
    """Run one load on a new topic and return its measurements."""
    topic = f"dedup-{number}"
    create_topic(
        broker,
        topic,
        partitions=PARTITIONS,
        flush_messages=bench.flush_messages,
        message_deduplication_enable="false" if kind == WITHOUT else "true",
    )
    plan = bench.directory / "dedup.plan"
    write_produce_plan(
        plan,
        broker,
        topic,
        partitions=PARTITIONS,
        connections=row.connections,
        record_count=row.record_count,
        size=row.size,
        is_named=row.is_named,
    )
    sending = "repeat" if kind == DUPLICATES else "produce"
    sample = run_plan(bench.program, broker, plan, sending, seconds=seconds, depth=row.depth)
    delete_topic(broker, topic)
    return sample


def table(rows: Sequence[tuple[Row, str, dict[str, list[Sample]]]]) -> str:
    """Return the medians as a table in Markdown."""
    lines = [
        "| load | durability | setting | records/s | of without | broker CPU µs per record | p99 ms |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row, durability, samples in rows:
        rates = {
            kind: statistics.median(sample.records_per_s for sample in found)
            for kind, found in samples.items()
        }
        for kind, found in samples.items():
            cpu_us = statistics.median(1e6 * sample.broker_cpu_s / sample.records for sample in found)
            p99_ms = statistics.median(sample.p99_ms for sample in found)
            lines.append(
                f"| {row.title} | {durability} | {kind} | {rates[kind]:,.0f} | "
                f"{rates[kind] / rates[WITHOUT]:.2f} | {cpu_us:.2f} | {p99_ms:.2f} |"
            )
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Measure all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each load")
    arguments = parser.parse_args(given)
    rows: list[tuple[Row, str, dict[str, list[Sample]]]] = []
    number = 0
    with workspace() as directory, SeqgateBroker(directory / "seqgate") as broker:
        program = load_program(directory)
        for row in ROWS:
            for durability, flush_messages in DURABILITIES.items():
                bench = Bench(program, directory, flush_messages)
                kinds = KINDS if row.is_named else KINDS[:2]
                samples: dict[str, list[Sample]] = {kind: [] for kind in kinds}
                for turn in range(arguments.rounds):
                    for kind in (*kinds[turn % len(kinds) :], *kinds[: turn % len(kinds)]):
                        number += 1
                        samples[kind].append(
                            measure(bench, broker, row, kind, number, seconds=arguments.seconds)
                        )
                rows.append((row, durability, samples))
                print(f"{row.title}, {durability} …", file=sys.stderr, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
