"""Measures the memory that many deleted topics leave behind: `python -m tests.performance.deletions --topics
3000`.

It creates topics of one partition, writes one record with its own producer to each, and deletes all topics.
It prints a row for docs/scale.md: the resident memory before, at its peak, and after the last file is
deleted, and the ratio of the last to the first. `--write` puts the row into the page.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from seqgate.gateway.runtime.upkeep.background_jobs import GIVE_BACK_AFTER
from tests.performance.brokers import Broker, SeqgateBroker
from tests.performance.report import MIB
from tests.support.batches import Batch, records
from tests.support.wire import Wire

PER_REQUEST = 100
SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "seqgate.deletion.max.files.per.second": "100000",
}
"""The settings of the measured gateway: it keeps the files of a deleted topic for a second instead of a
minute.
"""
GIVEN_BACK = "giving their memory back"
"""The gateway logs this once many deletions are over."""
POLL_S = 0.1
STEADY_S = 5.0
"""Time (s) without a change of the resident memory after which it counts as steady."""
TIMEOUT_S = 600.0
WARM_UP_TOPICS = 20
"""Topics used before the measurement, because the first requests of each kind build their codecs."""
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SECTION = re.compile(r"(?<=<!-- deletions -->\n).*?(?=<!-- /deletions -->)", re.DOTALL)


def use(wire: Wire, names: list[str]) -> None:
    """Create the topics and produce one record to each."""
    for first in range(0, len(names), PER_REQUEST):
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
            for name in names[first : first + PER_REQUEST]
        ]
        answer = wire.call("create_topics", 7, topics=topics, timeout=60_000).fields
        assert not any(row["error_code"] for row in answer["topics"]), answer
    for number, name in enumerate(names):
        rows = [{"index": 0, "records": Batch(records(1, 100)).of(1_000 + number, 0, 0).encode()}]
        data = [{"name": name, "partition_data": rows}]
        answer = wire.call("produce", 9, acks=-1, timeout=30_000, topic_data=data).fields
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def delete(wire: Wire, names: list[str]) -> None:
    for first in range(0, len(names), PER_REQUEST):
        topics = [{"name": name, "topic_id": None} for name in names[first : first + PER_REQUEST]]
        answer = wire.call("delete_topics", 6, topics=topics, timeout=60_000).fields
        assert not any(row["error_code"] for row in answer["responses"]), answer


def await_until(is_reached: Callable[[], bool], what: str) -> None:
    """Poll the gateway's process and files."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(POLL_S)


class Steady:
    """Observes whether the resident memory of a broker has been unchanged for STEADY_S."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._size_bytes = 0
        self._since_s = 0.0

    def __call__(self) -> bool:
        size_bytes, now_s = self._broker.resident_bytes(), time.monotonic()
        if size_bytes != self._size_bytes:
            self._size_bytes, self._since_s = size_bytes, now_s
        return now_s - self._since_s >= STEADY_S


def measure(broker: SeqgateBroker, topics: int) -> list[float]:
    """Return the resident MiB before, with all topics in use, and after their deletion."""
    data_dir = broker.directory / "data"
    with Wire(broker.bootstrap, timeout_s=120.0) as wire:
        for kind, count in (("warm-up", WARM_UP_TOPICS), ("churn", topics)):
            names = [f"{kind}-{number}" for number in range(count)]
            before = broker.resident_bytes()
            use(wire, names)
            used = broker.resident_bytes()
            delete(wire, names)
            await_until(lambda: not any(data_dir.glob("*-delete")), "the files of deleted topics are gone")
            if count >= GIVE_BACK_AFTER:
                await_until(lambda: GIVEN_BACK in broker.log_text(), "the gateway gives memory back")
            await_until(Steady(broker), "the resident memory is steady")
    return [size_bytes / MIB for size_bytes in (before, used, broker.resident_bytes())]


def row(topics: int, before: float, used: float, after: float) -> str:
    return f"| {topics:,} | {before:.0f} | {used:.0f} | {after:.0f} | {after / before:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, nargs="+", default=[3_000])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = []
    for topics in arguments.topics:
        with (
            TemporaryDirectory(prefix="seqgate-deletions-") as path,
            SeqgateBroker(Path(path), SETTINGS) as broker,
        ):
            found.append(row(topics, *measure(broker, topics)))
    table = "\n".join(
        (
            f"`python -m tests.performance.deletions --topics {' '.join(map(str, arguments.topics))}`:",
            "",
            "| topics created, used, deleted | resident MiB before | in use | after | after : before |",
            "| ---: | ---: | ---: | ---: | ---: |",
            *found,
            "",
        )
    )
    print(table)
    if arguments.write:
        PAGE.write_text(SECTION.sub(lambda _: table, PAGE.read_text()))


if __name__ == "__main__":
    main()
