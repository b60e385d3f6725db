"""The same load on Seqgate and on Apache Kafka, alternately: `python -m tests.performance.compare`.

Both brokers run all the time and only one is under load. A round loads one broker and then the other, on new
topics with the same settings; the order is swapped after each round. The topics' `flush.messages` chooses the
durability on both sides. Kafka's JVM gets a long load before the first measurement, and both get a short one
before each row. With `--beside` another server takes the place of Kafka, in the rows that it can serve.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.performance.brokers import BESIDE, Broker, KafkaBroker, SeqgateBroker
from tests.performance.loads import load_program
from tests.performance.report import Cell, as_json, beside, describe_run, markdown
from tests.performance.rows import DURABILITIES, ROWS, Bench, Extent, Row, rows_of
from tests.performance.secured_rows import SASL_SSL, SECURED_ROWS, SSL, Security
from tests.support.setup_peers import CACHE

MEASURE = Extent(seconds=2.5, share=1.0)
WARM_UP = Extent(seconds=1.0, share=0.2)
FIRST_WARM_UP = Extent(seconds=3.0, share=0.7)
QUICK_MEASURE = Extent(seconds=0.7, share=0.12)
QUICK_WARM_UP = Extent(seconds=0.2, share=0.02)
QUICK_FIRST_WARM_UP = Extent(seconds=1.5, share=0.2)
FIRST_WARM_UP_ROWS = ("jvm-100", "one-64", "fetch")
STARTS = 3
ALIKE = {"offsets.topic.num.partitions": "50", "transaction.state.log.num.partitions": "50"}
"""Settings of both brokers: commits and transactions in one partition share a batch and a flush, so as many
partitions mean as much work.
"""


class Comparison:
    """Runs rows on both brokers and keeps the samples."""

    def __init__(self, bench: Bench, brokers: Sequence[Broker], *, rounds: int, quick: bool) -> None:
        self._bench = bench
        self._brokers = list(brokers)
        self._rounds = rounds
        self._quick = quick
        self._numbers = itertools.count(1)
        self.cells: list[Cell] = []

    def _topic(self, row: Row) -> str:
        return f"bench-{row.name}-{next(self._numbers):04d}"

    def warm_up(self, rows: Sequence[Row]) -> None:
        """Load the broker so that the JVM compiles the code it needs."""
        extent = QUICK_FIRST_WARM_UP if self._quick else FIRST_WARM_UP
        for row in rows:
            for broker in self._brokers:
                row.run(self._bench, broker, self._topic(row), extent)

    def measure(self, row: Row, durability: str) -> Cell:
        bench = replace(self._bench, flush_messages=DURABILITIES[durability])
        for broker in self._brokers:
            row.run(bench, broker, self._topic(row), QUICK_WARM_UP if self._quick else WARM_UP)
        cell = Cell(row.name, row.title, durability, {broker.name: [] for broker in self._brokers})
        extent = QUICK_MEASURE if self._quick else MEASURE
        for number in range(self._rounds):
            for broker in self._brokers if number % 2 == 0 else reversed(self._brokers):
                cell.samples[broker.name].append(row.run(bench, broker, self._topic(row), extent))
        self.cells.append(cell)
        return cell


@contextmanager
def workspace() -> Iterator[Path]:
    """Return a directory on the project's disk, which is deleted afterwards."""
    directory = CACHE / "bench" / f"{time.time_ns()}"
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def start_times(directory: Path, count: int) -> dict[str, list[float]]:
    """Return the seconds from spawn to the first ApiVersions answer, each on an empty data directory."""
    times: dict[str, list[float]] = {SeqgateBroker.name: [], KafkaBroker.name: []}
    for number in range(count):
        for kind in (SeqgateBroker, KafkaBroker):
            with kind(directory / f"start-{kind.name}-{number}") as broker:
                times[broker.name].append(broker.start_s)
    return times


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.compare", description=__doc__)
    parser.add_argument("--rows", help="names of rows, separated by commas (all)")
    parser.add_argument(
        "--security", action="store_true", help="measure the rows with TLS and logins instead of the others"
    )
    parser.add_argument(
        "--durability", choices=tuple(DURABILITIES), help="run only this durability instead of all"
    )
    parser.add_argument("--rounds", type=int, help="rounds per row and broker (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="run short loads, about a minute in all")
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--only-seqgate", action="store_true", help="measure only Seqgate; the table has no ratios"
    )
    others.add_argument(
        "--against", type=Path, help="another checkout, with bytecode, whose Seqgate takes the place of Kafka"
    )
    others.add_argument(
        "--beside", choices=tuple(BESIDE), help="another server, which takes the place of Kafka in its rows"
    )
    parser.add_argument("--json", type=Path, help="also write all measurements to this file")
    arguments = parser.parse_args(given)
    if arguments.beside and arguments.security:
        parser.error("--beside has no rows with TLS and logins: leave out --security")
    rows = SECURED_ROWS if arguments.security else ROWS
    if arguments.beside:
        rows = rows_of(BESIDE[arguments.beside])
    every = [row.name for row in rows]
    names = arguments.rows.split(",") if arguments.rows else every
    unknown = sorted(set(names) - set(every))
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(every)}")
    arguments.rows = [row for row in rows if row.name in names]
    if arguments.durability and not any(arguments.durability in row.durabilities for row in arguments.rows):
        parser.error(f"no row has the durability {arguments.durability}")
    warming = rows if arguments.beside else ROWS
    arguments.warm_up = [row for row in warming if row.name in FIRST_WARM_UP_ROWS]
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def _other(
    arguments: argparse.Namespace, directory: Path, settings: dict[str, str], protocols: Sequence[str]
) -> Broker | None:
    """Return the broker beside which Seqgate runs."""
    if arguments.only_seqgate:
        return None
    if arguments.against:
        return SeqgateBroker(directory, settings, protocols, checkout=arguments.against.resolve())
    if arguments.beside:
        return BESIDE[arguments.beside](directory)
    return KafkaBroker(directory, settings, protocols)


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    command = " ".join(["python -m tests.performance.compare", *(sys.argv[1:] if given is None else given)])
    with workspace() as directory, ExitStack() as running:
        security = Security(directory) if arguments.security else None
        bench = Bench(load_program(directory), directory, security=security)
        settings = ALIKE | (security.settings() if security else {})
        protocols = (SSL, SASL_SSL) if security else ()
        with_kafka = not (arguments.only_seqgate or arguments.against or arguments.beside)
        starts = start_times(directory, 1 if arguments.quick else STARTS) if with_kafka else {}
        brokers: list[Broker] = [
            running.enter_context(SeqgateBroker(directory / "seqgate", settings, protocols))
        ]
        other = _other(arguments, directory / "other", settings, protocols)
        if other is not None:
            brokers.append(running.enter_context(other))
        comparison = Comparison(bench, brokers, rounds=arguments.rounds, quick=arguments.quick)
        comparison.warm_up(arguments.warm_up)
        for row in arguments.rows:
            for durability in row.durabilities:
                if arguments.durability in {None, durability}:
                    print(f"{row.name}, {durability} …", file=sys.stderr, flush=True)
                    comparison.measure(row, durability)
        run = describe_run(command, bench.program)
        if other is not None and not with_kafka:
            run["against"] = other.title
        cells = comparison.cells
        print(beside(run, cells) if arguments.beside else markdown(run, starts, cells))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(as_json(run, starts, cells), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
