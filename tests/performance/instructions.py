"""Counts the processor's instructions that one request costs a gateway: `python -m
tests.performance.instructions`, with other checkouts as arguments to compare.

The gateway runs under valgrind's callgrind, which counts the instructions of all its threads. Each kind of
request is counted in several rounds, and the cheapest counts, because background jobs only add work. The load
of the machine changes nothing, so that this compares two checkouts where times can't.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.compat.differential.peer import Peer
from tests.compat.differential.share_member import ACCEPT, ShareMember, member_of_its_own, said
from tests.performance.loads import PAGE_CACHE, new_producer_id
from tests.performance.transactions import PARTITIONS, TransactionalProducer
from tests.performance.walks import Client
from tests.support.batches import Batch, records
from tests.support.gateway_cluster import await_true
from tests.support.gateway_process import REPOSITORY, free_port, module_of
from tests.support.wire import Plain, Wire

ROUNDS: Final = 5
REQUESTS: Final = 60
"""The requests of a round."""
LIMIT_S: Final = 600.0
STRICT: Final = 1
"""The mode of ShareFetch that acquires no more records than the request names."""
PAIRS: Final = "pairs"
"""The topic of the transactions."""
UNFLUSHED: Final = "unflushed"
LARGE: Final = "large"
"""The topic of the large batches."""
LARGE_BATCHES: Final = 12
LARGE_BATCH_BYTES: Final = 200_000
FETCH_BYTES: Final = 1 << 20


class CountedGateway:
    """A gateway of a checkout under callgrind, which counts only when it is told to."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        self.port = free_port()
        self._dumps = directory / "dump"
        counter = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"]
        serve = [sys.executable, "-m", module_of(checkout), "serve", "--listen", f"127.0.0.1:{self.port}"]
        for name in ("group.share.max.session.timeout.ms", "group.share.session.timeout.ms"):
            serve += ["--set", f"{name}={LIMIT_S * 1000:.0f}"]  # the member sends no heartbeats
        path = os.pathsep.join((str(checkout / "src"), str(checkout)))
        self._log = (directory / "log").open("w+b")
        self.process = subprocess.Popen(
            [*counter, f"--callgrind-out-file={self._dumps}", *serve, "--data-dir", str(directory / "data")],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": path},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def await_ready(self) -> None:
        """Wait until the gateway says that it serves."""
        log = Path(str(self._log.name))
        await_true(lambda: b" ready on " in log.read_bytes(), f"gateway ready: {log}", LIMIT_S)

    def counted(self, work: Callable[[], None]) -> float:
        """Return the thousands of instructions that one call of `work` costs the gateway."""
        self._control("--instr=on")
        _, *rounds = [self._round(work) for _ in range(1 + ROUNDS)]
        self._control("--instr=off")
        return min(rounds) / REQUESTS / 1000

    def _round(self, work: Callable[[], None]) -> int:
        before = self._dumped()
        for _ in range(REQUESTS):
            work()
        self._control("--dump")  # and count from zero
        texts = [Path(name).read_text("utf-8") for name in self._dumped() - before]
        totals = [re.search(r"^totals: (\d+)", text, re.MULTILINE) for text in texts]
        return sum(int(total[1]) for total in totals if total)

    def _dumped(self) -> set[str]:
        return {str(path) for path in self._dumps.parent.glob(f"{self._dumps.name}.*")}

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self.process.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)

    def close(self) -> None:
        """Kill the gateway."""
        self.process.kill()
        self.process.wait(LIMIT_S)
        self._log.close()


@contextmanager
def counted_gateway(checkout: Path) -> Iterator[CountedGateway]:
    """Run a gateway of a checkout in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        gateway = CountedGateway(checkout, Path(directory))
        try:
            gateway.await_ready()
            yield gateway
        finally:
            gateway.close()


def measure(checkout: Path) -> dict[str, float]:
    """Return the thousands of instructions of each kind of request."""
    with counted_gateway(checkout) as gateway, asyncio.Runner() as runner:
        client = Client(f"127.0.0.1:{gateway.port}")
        client.create_topics()
        with Wire(f"127.0.0.1:{gateway.port}", timeout_s=LIMIT_S) as wire:
            pairs = {"name": PAIRS, "num_partitions": PARTITIONS, "replication_factor": 1}
            wire.call("create_topics", 7, topics=[pairs], timeout=60_000)
        transactional = TransactionalProducer("127.0.0.1", gateway.port, PAIRS, "tx")
        idempotent = IdempotentProducer(f"127.0.0.1:{gateway.port}")
        kinds: dict[str, Callable[[], None]] = {
            "Produce that repeats the last one": client.produce,
            "Produce with a new prefix": client.produce_first,
            "Produce of an idempotent producer, without a flush": idempotent.produce,
            "Fetch of one partition": client.fetch,
            "Metadata of one topic": client.metadata,
            "OffsetCommit": client.commit,
        }
        counts = {kind: gateway.counted(work) for kind, work in kinds.items()}
        runner.run(transactional.connect())
        counts["transaction of two records"] = gateway.counted(
            lambda: assert_one(runner.run(transactional.run(0.0, 1)))
        )
        with Wire(f"127.0.0.1:{gateway.port}", timeout_s=LIMIT_S) as wire:
            reader = LargeReader(wire)
            counts["Fetch of 1 MiB from the page cache"] = gateway.counted(reader.read)
        client.close()
        idempotent.close()
        peer = Peer(f"127.0.0.1:{gateway.port}", "instructions-", timeout_s=LIMIT_S)
        share_reader = ShareReader(member_of_its_own(peer))
        counts["ShareFetch and ShareAcknowledge of one record"] = gateway.counted(share_reader.read)
        peer.close()
        return counts


class LargeReader:
    """A consumer that fetches as much as Kafka's consumers do by default from one partition."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        topic = {"name": LARGE, "num_partitions": 1, "replication_factor": 1}
        wire.call("create_topics", 7, topics=[topic], timeout=60_000)
        partition = {"index": 0, "records": Batch(records(1, LARGE_BATCH_BYTES)).encode()}
        topic_data = [{"name": LARGE, "partition_data": [partition]}]
        for _ in range(LARGE_BATCHES):
            answer = wire.call("produce", 9, {"acks": -1, "timeout": 60_000, "topic_data": topic_data}).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def read(self) -> None:
        """Fetch from a batch in the middle of the segment, so that its position must be found."""
        partition = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": FETCH_BYTES}
        topics = [{"topic": LARGE, "partitions": [partition]}]
        limits: Plain = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 26}
        answer = self._wire.call("fetch", 12, limits, session_epoch=-1, topics=topics).fields
        (row,) = answer["responses"][0]["partitions"]
        assert row["error_code"] == 0, row
        assert len(row["records"]) == FETCH_BYTES, "the answer is not as large as the limit"


class IdempotentProducer:
    """Sends a batch of one record after the other to a topic whose records are not flushed."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap, timeout_s=LIMIT_S)
        configs = [{"name": "flush.messages", "value": PAGE_CACHE}]
        topic = {"name": UNFLUSHED, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        self._wire.call("create_topics", 7, topics=[topic], timeout=60_000)
        self._producer_id = new_producer_id(self._wire)
        self._sequence = 0

    def produce(self) -> None:
        """Send the next batch."""
        batch = Batch(records(1, 100)).of(self._producer_id, 0, self._sequence).encode()
        self._sequence += 1
        topic = {"name": UNFLUSHED, "partition_data": [{"index": 0, "records": batch}]}
        request = {"acks": -1, "timeout": 60_000, "topic_data": [topic]}
        answer = self._wire.call("produce", 9, request).fields
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


class ShareReader:
    """The only member of a share group, which accepts one record after the other."""

    def __init__(self, member: ShareMember) -> None:
        self._member = member
        self._offset = 0
        partition = {"index": 0, "records": Batch(records(1)).encode()}
        topic_data = [{"name": member.topics[0].name, "partition_data": [partition]}]
        for _ in range((1 + ROUNDS) * REQUESTS):
            request = {"acks": -1, "timeout": 60_000, "topic_data": topic_data}
            answer = member.peer.wire.call("produce", 9, request).fields
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def read(self) -> None:
        """Acquire a record, and accept it."""
        limits: dict[str, Any] = {"max_records": 1, "share_acquire_mode": STRICT, "max_wait": 60_000}
        (row,) = self._call("share_fetch", self._member.fetch_request(partitions={0: ()}, **limits))
        offsets = [(each["first_offset"], each["last_offset"]) for each in row["acquired_records"]]
        assert offsets == [(self._offset, self._offset)], row
        batches = [said(self._offset, self._offset, ACCEPT)]
        self._offset += 1
        self._call(
            "share_acknowledge",
            {
                "group_id": self._member.group_id,
                "member_id": self._member.member_id,
                "share_session_epoch": self._member.session_epoch,
                "topics": self._member.acknowledged({0: batches}),
            },
        )

    def _call(self, api: str, request: Plain) -> list[Plain]:
        """Send a request of the session; return the rows of its partitions."""
        answer = self._member.peer.wire.call(api, 2, request).fields
        assert answer["error_code"] == 0, answer
        self._member.session_epoch += 1
        rows: list[Plain] = answer["responses"][0]["partitions"]
        assert not any(row["error_code"] for row in rows), answer
        return rows


def assert_one(count: int) -> None:
    """Check that one transaction was committed."""
    assert count == 1


def table(columns: dict[str, dict[str, float]]) -> str:
    """Return thousands of instructions a request, a column for each checkout, as a table in Markdown."""
    lines = [f"| thousand instructions | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for kind in next(iter(columns.values())):
        cells = [f"{column[kind]:,.0f}" for column in columns.values()]
        lines += [f"| {kind} | {' | '.join(cells)} |"]
    return "\n".join(lines)


def main() -> None:
    """Print the table of this checkout and of those that the command names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, help="other checkouts to compare with this one")
    checkouts = [REPOSITORY, *(path.resolve() for path in parser.parse_args().checkouts)]
    sys.stdout.write(table({path.name: measure(path) for path in checkouts}) + "\n")


if __name__ == "__main__":
    main()
