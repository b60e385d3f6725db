"""What a scrape of the metrics costs the clients: `python -m tests.performance.scrape`.

A gateway has many open partitions, and groups if you like. A client sends Produce requests of one record, one
after the other, in turns without and with a scrape each 100 ms. The scrapes come from another process. The
table shows the latencies of both in one run. Records go to the page cache, so that no flush hides the
difference.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.performance.outage import percentile
from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.wire import Plain, Wire, encode

TOPIC: Final = "scraped"
AT_ONCE: Final = 500
"""Partitions that one request opens, and groups whose commits are sent ahead of their answers."""
EVERY_S: Final = 0.1
SHARES: Final = (0.5, 0.99, 0.999, 1.0)
_SCRAPER: Final = """
import sys, time, urllib.request
while True:
    begun_s = time.monotonic()
    size = len(urllib.request.urlopen(sys.argv[1]).read())
    took_s = time.monotonic() - begun_s
    print(took_s, size, flush=True)
    time.sleep(max(0.0, float(sys.argv[2]) - took_s))
"""


@dataclass
class Measured:
    """The latencies of requests, and the durations of scrapes, both in seconds."""

    without_s: list[float] = field(default_factory=list)
    with_s: list[float] = field(default_factory=list)
    scrapes_s: list[float] = field(default_factory=list)
    answer_bytes: int = 0


@contextmanager
def scraper(url: str, measured: Measured) -> Iterator[None]:
    """Scrape until the context ends; add the durations to `measured`."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRAPER, url, str(EVERY_S)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # the first scrape imports modules and reads files
    try:
        yield
    finally:
        process.terminate()
        for line in process.stdout.read().splitlines():
            took_s, size = line.split()
            measured.scrapes_s.append(float(took_s))
            measured.answer_bytes = int(size)
        process.wait()
        process.stdout.close()


def latencies(wire: Wire, frame: bytes, seconds: float) -> list[float]:
    """Send the same request again and again; return how long each answer took."""
    found = []
    ends_s = time.perf_counter() + seconds
    while (begun_s := time.perf_counter()) < ends_s:
        wire.send_frame(frame)
        wire.receive_frame()
        found.append(time.perf_counter() - begun_s)
    return found


def _request(indexes: Sequence[int]) -> Plain:
    batch = Batch(records(1)).encode()
    partitions = [{"index": index, "records": batch} for index in indexes]
    return {"acks": -1, "timeout": 60_000, "topic_data": [{"name": TOPIC, "partition_data": partitions}]}


def open_partitions(wire: Wire, count: int) -> None:
    """Create the topic, and append a record to each partition."""
    topic = {
        "name": TOPIC,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": [{"name": "flush.messages", "value": str(2**63 - 1)}],
    }
    (created,) = wire.call("create_topics", 7, topics=[topic], timeout=60_000).fields["topics"]
    assert not created["error_code"], created
    for first in range(0, count, AT_ONCE):
        indexes = range(first, min(count, first + AT_ONCE))
        answer = wire.call("produce", 9, _request(indexes)).fields
        assert not any(row["error_code"] for row in answer["responses"][0]["partition_responses"])


def commit_groups(wire: Wire, count: int) -> None:
    """Commit an offset of each group."""
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    topics = [{"name": TOPIC, "partitions": [partition]}]

    def request(number: int) -> Plain:
        return {
            "group_id": f"group-{number}",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": topics,
        }

    while wire.call("offset_commit", 8, request(0)).fields["topics"][0]["partitions"][0]["error_code"]:
        wire.call("find_coordinator", 3, key="group-0", key_type=0)
    for first in range(0, count, AT_ONCE):
        sent = [
            wire.send("offset_commit", 8, request(number))
            for number in range(first, min(count, first + AT_ONCE))
        ]
        for correlation_id in sent:
            answer = wire.receive("offset_commit", 8, correlation_id).fields
            assert not answer["topics"][0]["partitions"][0]["error_code"], answer


def measure(directory: Path, *, partitions: int, groups: int, seconds: float, rounds: int) -> Measured:
    """Run the gateway, and measure both in turns."""
    measured, port = Measured(), free_port()
    settings = {
        "seqgate.metrics.listener": f"127.0.0.1:{port}",
        "offsets.topic.num.partitions": "10",
        "seqgate.max.partitions": str(partitions + 100),
    }
    url = f"http://127.0.0.1:{port}/metrics"
    with (
        GatewayProcess(directory / "data", settings=settings) as gateway,
        Wire(gateway.bootstrap, timeout_s=120) as wire,
    ):
        open_partitions(wire, partitions)
        if groups:
            commit_groups(wire, groups)
        frame = encode("produce", 9, _request([0]))
        latencies(wire, frame, seconds / 10)
        for _ in range(rounds):
            measured.without_s += latencies(wire, frame, seconds)
            with scraper(url, measured):
                measured.with_s += latencies(wire, frame, seconds)
    return measured


def table(measured: Measured) -> str:
    """Return the latencies in milliseconds as a table in Markdown."""
    lines = ["| | " + " | ".join([*(_named(share) for share in SHARES), "number"]) + " |"]
    lines.append("| --- |" + " ---: |" * (len(SHARES) + 1))
    rows = {
        "Produce without scrapes, ms": measured.without_s,
        "Produce with a scrape each 100 ms, ms": measured.with_s,
        f"a scrape of {measured.answer_bytes:,} bytes, ms": measured.scrapes_s,
    }
    for title, found in rows.items():
        ordered = sorted(found)
        cells = [f"{percentile(ordered, share) * 1000:.2f}" for share in SHARES]
        lines.append("| " + " | ".join([title, *cells, f"{len(found):,}"]) + " |")
    return "\n".join(lines)


def _named(share: float) -> str:
    return "longest" if share == 1 else f"{share:.1%}".replace(".0%", "%")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.scrape", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="the length of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="the number of turns of each kind")
    arguments = parser.parse_args(given)
    with TemporaryDirectory() as directory:
        measured = measure(Path(directory), **vars(arguments))
    sys.stdout.write(
        f"{arguments.partitions:,} open partitions, {arguments.groups:,} groups\n\n{table(measured)}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
