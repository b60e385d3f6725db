"""The start of a gateway on an empty disk, from a bucket with much that no manifest covers: `python -m
tests.performance.big_start`.

The bucket is prepared once: a gateway creates a topic, then a session of its own writes the write-ahead log
with the gateway's encoders, as a gateway that was killed leaves it. Each batch has a producer id of its own.
Then a gateway starts on an empty directory, several times, until all partitions have answered a Fetch, and is
killed. `--keep DIR` prepares the bucket there, or uses the one that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import SessionFacts, register
from seqgate.gateway.cluster.wal.wal_object import DataRow
from tests.performance.brokers import MOST_RESIDENT, SeqgateBroker, memory_bytes
from tests.performance.compare import workspace
from tests.performance.loads import EVERY_MESSAGE, create_topic
from tests.performance.report import describe_run
from tests.support.batches import Batches
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Versitygw
from tests.support.wire import Wire

TOPIC: Final = "tails"
PREFIX: Final = "bench"
OBJECT_BYTES: Final = 8 << 20
PUTS_IN_FLIGHT: Final = 4
ANSWER_TIMEOUT_S: Final = 120.0
MB: Final = 1e6
NO_UPLOADS: Final = {"seqgate.cluster.wal.max.bytes": str(1 << 40)}
"""No upload begins, so that the next start finds the same bucket."""
SAME_NODE: Final = {"node.id": "1", "seqgate.cluster.lease.ms": "1000"}
"""Each start replaces the killed gateway before it, and waits 1.1 s until the lease of that one is over."""


@dataclass(frozen=True)
class Size:
    """The tails of a bucket: the bytes and the producer ids of all partitions together."""

    total_bytes: int = 1_000_000_000
    producers: int = 1_000_000
    partitions: int = 16


@dataclass(frozen=True)
class Place:
    """The address of a bucket, and how its clients reach it."""

    address: str
    objects: ObjectStore
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def gateway(self, directory: Path) -> SeqgateBroker:
        """Return a gateway that was not started yet, on a directory of its own."""
        settings = {"seqgate.cluster": self.address, **SAME_NODE, **NO_UPLOADS, **self.settings}
        return SeqgateBroker(directory, settings, environment=self.environment)


@dataclass(frozen=True)
class Started:
    """What one start took until all partitions had answered."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def objects_of(
    topic_id: uuid.UUID, size: Size, object_bytes: int
) -> Iterator[tuple[list[DataRow], list[bytes]]]:
    """Yield the rows and data of each object; every object has records of all partitions."""
    batches = Batches(size.total_bytes // size.producers)
    each = size.producers // size.partitions
    at_once = max(1, object_bytes // size.partitions // batches.size_bytes)
    for first in range(0, each, at_once):
        end = min(each, first + at_once)
        rows, data = [], []
        for partition in range(size.partitions):
            content = b"".join(
                batches.encode(offset, partition * each + offset) for offset in range(first, end)
            )
            position = first * batches.size_bytes
            rows.append(DataRow(topic_id, partition, 0, first, end, 0, position, len(content)))
            data.append(content)
        yield rows, data


async def write_tails(
    objects: ObjectStore, topic_id: uuid.UUID, size: Size, object_bytes: int = OBJECT_BYTES
) -> int:
    """Write a session with the tails, and end it as a crash does. Return the number of its objects."""
    facts = SessionFacts("", int(time.time() * 1000), "benchmark", "benchmark")
    wal = SessionWal(objects, await register(objects, 1, facts), puts_in_flight=PUTS_IN_FLIGHT)
    for rows, data in objects_of(topic_id, size, object_bytes):
        wal.put(rows, data, lambda: None)
        if wal.in_flight >= PUTS_IN_FLIGHT:
            await wal.barrier()
    await wal.barrier()
    await wal.close()
    return wal.next_seq


def prepare(place: Place, directory: Path, size: Size, object_bytes: int = OBJECT_BYTES) -> int:
    """Fill the bucket. Return the number of objects that have the tails."""
    with place.gateway(directory) as gateway:
        create_topic(gateway, TOPIC, partitions=size.partitions, flush_messages=EVERY_MESSAGE)
        with Wire(gateway.bootstrap) as wire:
            [topic] = wire.call("metadata", 12, topics=[{"topic_id": None, "name": TOPIC}]).fields["topics"]
    shutil.rmtree(directory)
    return asyncio.run(write_tails(place.objects, uuid.UUID(topic["topic_id"]), size, object_bytes))


def start(place: Place, directory: Path, size: Size) -> Started:
    """Start a gateway on an empty directory, and kill it once every partition has answered with its first
    batch.
    """
    gateway = place.gateway(directory)
    begun_s = time.monotonic()
    try:
        gateway.start()
        with Wire(gateway.bootstrap, timeout_s=ANSWER_TIMEOUT_S) as wire:
            wire.call("metadata", 12, topics=[{"topic_id": None, "name": TOPIC}])
            for partition in range(size.partitions):
                check_first_batch(wire, partition)
            took = Started(
                time.monotonic() - begun_s, gateway.cpu_s(), memory_bytes(gateway.pid, MOST_RESIDENT)
            )
            check_ends(wire, size)
    finally:
        gateway.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return took


def check_first_batch(wire: Wire, partition: int) -> None:
    """Fetch the first batch of a partition."""
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1}
    topics = [{"topic": TOPIC, "partitions": [wanted]}]
    answer = wire.call("fetch", 11, replica_id=-1, max_bytes=1, topics=topics)
    [found] = answer.fields["responses"][0]["partitions"]
    assert found["error_code"] == 0
    assert found["records"], f"partition {partition} answers no records"


def check_ends(wire: Wire, size: Size) -> None:
    """Check that each partition has all of its records and producers: the last producer's batch is a
    duplicate.
    """
    each = size.producers // size.partitions
    again = Batches(size.total_bytes // size.producers)
    for partition in range(size.partitions):
        data = [{"index": partition, "records": again.encode(0, (partition + 1) * each - 1)}]
        topics = [{"name": TOPIC, "partition_data": data}]
        answer = wire.call("produce", 9, acks=-1, timeout=30_000, topic_data=topics)
        [found] = answer.fields["responses"][0]["partition_responses"]
        assert (found["error_code"], found["base_offset"]) == (0, each - 1), found


@contextmanager
def bucket_in(store: str, directory: Path) -> Iterator[Place]:
    """Run a store; its objects are in the directory if it is a directory itself."""
    if store == "file":
        directory.mkdir(parents=True, exist_ok=True)
        yield Place(f"file://{directory}", DirectoryObjects(directory))
        return
    with Versitygw() as running:
        settings = {"seqgate.cluster.endpoint": running.endpoint, "seqgate.cluster.region": REGION}
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        yield Place(f"s3://{BUCKET}/{PREFIX}", running.objects(PREFIX), settings, keys)


def row(store: str, size: Size, started: Sequence[Started]) -> str:
    """Return the line of the table: medians of all starts."""
    cells = [
        (
            f"{size.total_bytes / MB:,.0f} MB, {size.producers:,} producers, {size.partitions} partitions, "
            f"{store}"
        ),
        f"{statistics.median(one.wall_s for one in started):.2f}",
        f"{statistics.median(one.cpu_s for one in started):.2f}",
        f"{max(one.peak_bytes for one in started) / MB:,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.performance.big_start", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--producers", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3, help="the number of starts")
    parser.add_argument("--store", choices=("file", "versitygw"), default="file")
    parser.add_argument(
        "--keep", type=Path, help="the directory of a bucket to use again (only --store file)"
    )
    arguments = parser.parse_args(given)
    if arguments.keep is not None and arguments.store != "file":
        parser.error("--keep needs --store file")
    size = Size(arguments.megabytes * 1_000_000, arguments.producers, arguments.partitions)
    command = " ".join(["python -m tests.performance.big_start", *(sys.argv[1:] if given is None else given)])
    with workspace() as directory:
        kept = None if arguments.keep is None else arguments.keep.resolve()
        is_there = kept is not None and kept.exists()
        with bucket_in(arguments.store, kept or directory / "bucket") as place:
            if not is_there:
                begun_s = time.monotonic()
                objects = prepare(place, directory / "preparing", size)
                print(f"Prepared {objects} objects in {time.monotonic() - begun_s:.1f} s.", file=sys.stderr)
            run = describe_run(command, [])
            print(f"Seqgate {run['seqgate']} (Python {run['python']}), {run['date']}, `{command}`.")
            print(f"{run['cpu']}, {run['cores']} cores, Linux {run['kernel']}.\n")
            print(
                "| tails in the bucket | wall s | CPU s | peak MB |\n| --- | ---: | ---: | ---: |", flush=True
            )
            started = []
            for number in range(arguments.rounds):
                started.append(start(place, directory / f"start-{number}", size))
                print(f"{started[-1]}", file=sys.stderr, flush=True)
            print(row(arguments.store, size, started), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
