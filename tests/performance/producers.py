"""Measures how long a log with many producers takes to open: `python -m tests.performance.producers --count
1000000`.

Each producer has one batch. After a clean stop the producers come from a snapshot, and after a crash that
left no snapshot from all batches. Each start is a process of its own that opens the directory and the log.
Prints a table.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqgate.log import LogConfig, LogDirectory, PartitionLog, Storage
from tests.log.support import flush
from tests.performance.brokers import MOST_RESIDENT, memory_bytes
from tests.performance.compare import workspace
from tests.performance.report import MIB
from tests.support.batches import DEFAULT_TIMESTAMP, Batches
from tests.support.setup_peers import PROJECT

TOPIC = "producers"
BATCH_BYTES = 90
FLUSHED_EVERY = 50_000


class Opened(NamedTuple):
    """The cost of opening a log, and the number of its producers."""

    wall_s: float
    cpu_s: float
    producers: int
    peak_bytes: int


def directory_at(path: Path) -> LogDirectory:
    return LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: DEFAULT_TIMESTAMP, config=LogConfig())


def fill(log: PartitionLog, count: int) -> None:
    """Append a batch of each producer, and make them durable."""
    batches = Batches(BATCH_BYTES)
    for producer_id in range(1, count + 1):
        log.append(batches.encode(0, producer_id), now_ms=DEFAULT_TIMESTAMP)
        if producer_id % FLUSHED_EVERY == 0:
            flush(log)
    flush(log)


def prepare(path: Path, count: int) -> tuple[Path, Path]:
    """Return the directory after a clean stop, and after a crash."""
    stopped, crashed = path / "stopped", path / "crashed"
    directory = directory_at(stopped)
    fill(directory.create(TOPIC, uuid.uuid4(), 0, LogConfig()), count)
    shutil.copytree(stopped, crashed)
    directory.close(clean=True)
    return stopped, crashed


def open_once(path: Path) -> Opened:
    """Open the log in this process, which collects no garbage meanwhile, as a gateway that starts."""
    gc.disable()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    log = directory_at(path).get(TOPIC, 0)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    assert log is not None
    return Opened(wall_s, cpu_s, len(log.producers), memory_bytes(os.getpid(), MOST_RESIDENT))


def opened(path: Path, copy: Path) -> Opened:
    """Open a copy of the directory in a new process: opening changes it."""
    shutil.copytree(path, copy)
    command = [sys.executable, "-m", "tests.performance.producers", "--open", str(copy)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT).stdout
    shutil.rmtree(copy)
    return Opened(*json.loads(told))


def row(title: str, count: int, found: Sequence[Opened]) -> str:
    assert {one.producers for one in found} == {count}
    wall_s = statistics.median(one.wall_s for one in found)
    cpu_s = statistics.median(one.cpu_s for one in found)
    peak = max(one.peak_bytes for one in found)
    return f"| {count:,} producers, {title} | {wall_s:.2f} | {cpu_s:.2f} | {peak / MIB:.0f} |"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.producers", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="producers (1000000)")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each kind (3)")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.open is not None:
        print(json.dumps(open_once(arguments.open)))
        return 0
    with workspace() as path:
        stopped, crashed = prepare(path, arguments.count)
        print("| the log of | wall s | CPU s | peak MiB |\n| --- | ---: | ---: | ---: |")
        for title, directory in (("after a clean stop", stopped), ("after a crash, no snapshot", crashed)):
            found = [opened(directory, path / "copy") for _ in range(arguments.rounds)]
            print(row(title, arguments.count, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
