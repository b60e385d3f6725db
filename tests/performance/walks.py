"""Counts what one request costs in Python calls, files and rooms: `python -m tests.performance.walks`.

A gateway runs in this process on a loop of its own, and a client sends it one request at a time from another
thread. Between the request and its answer a profiler records every Python function that the loop's thread
enters. Each walk is repeated, and the repetition with the fewest calls counts, because background jobs only
add calls. Calls are counted with those of libraries; files and rooms are those of the five packages. A room
is a folder, at most two levels deep.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import uvloop

from seqgate import gateway
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from tests.support.batches import Batch, records
from tests.support.wire import Plain, Wire

ROOT: Final = Path(gateway.__file__).parents[1]
PACKAGES: Final = ("gateway", "log", "pid_allocator", "seq_validator")
REPETITIONS: Final = 30
TOPIC: Final = "walks"
LIMITED_TOPIC: Final = "walks-limited"
"""A topic that limits timestamps."""
TIMEOUT_MS: Final = 5000
WAIT_S: Final = 60.0


@dataclass(frozen=True)
class Walk:
    """The project files that a request runs through, in the order of the calls, and the number of all calls."""

    calls: int
    files: Sequence[str]

    @property
    def row(self) -> tuple[int, int, int, int, int]:
        """Return the numbers of calls, files, changes of file, changes of room and changes of package."""
        return (
            self.calls,
            len(set(self.files)),
            _changes(self.files),
            _changes([_room(file, 2) for file in self.files]),
            _changes([_room(file, 1) for file in self.files]),
        )


def _changes(places: Sequence[str]) -> int:
    return sum(one != other for one, other in pairwise(places))


def _room(file: str, levels: int) -> str:
    return "/".join(file.split("/")[:-1][:levels])


class CallCounter:
    """Records the functions that the thread of a loop enters while another thread does the work."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entered: list[CodeType] = []

    def during(self, work: Callable[[], None]) -> Walk:
        """Return the walk of the requests that `work` sends to the gateway."""
        self._in_loop(self._begin)
        work()
        self._in_loop(self._end)
        entered, self._entered = self._entered, []
        own = [code for code in entered if code.co_filename != __file__]
        paths = [Path(code.co_filename) for code in own]
        files = [path.relative_to(ROOT).as_posix() for path in paths if path.is_relative_to(ROOT)]
        return Walk(len(own), [file for file in files if file.split("/")[0] in PACKAGES])

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._entered.append(frame.f_code)

    def _begin(self, done: threading.Event) -> None:
        done.set()
        sys.setprofile(self._note)

    def _end(self, done: threading.Event) -> None:
        sys.setprofile(None)
        done.set()

    def _in_loop(self, action: Callable[[threading.Event], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(action, done)
        assert done.wait(WAIT_S)


class Client:
    """Sends the requests of the walks, each one checked to have no error."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap, timeout_s=WAIT_S)
        self._batch = Batch(records(1)).encode()
        self._timeout_ms = TIMEOUT_MS

    def create_topics(self) -> None:
        """Create the topics; the answer comes when they have leaders."""
        limit = {"name": "message.timestamp.after.max.ms", "value": "3600000"}
        alike = {"num_partitions": 1, "replication_factor": 1}
        topics = [{"name": TOPIC, **alike}, {"name": LIMITED_TOPIC, **alike, "configs": [limit]}]
        answer = self._wire.call("create_topics", 7, topics=topics, timeout=10_000).fields
        assert not any(created["error_code"] for created in answer["topics"]), answer

    def produce_limited(self) -> None:
        """Send a Produce to the topic that limits timestamps."""
        self.produce(LIMITED_TOPIC)

    def produce(self, name: str = TOPIC) -> None:
        """Send a Produce that differs from the last one only in its records."""
        partition = {"index": 0, "records": self._batch}
        topic = {"name": name, "partition_data": [partition]}
        request: Plain = {"acks": -1, "timeout": self._timeout_ms, "topic_data": [topic]}
        answer = self._wire.call("produce", 9, request).fields
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer

    def produce_first(self) -> None:
        """Send a Produce whose prefix differs from all earlier ones."""
        self._timeout_ms += 1
        self.produce()

    def fetch(self) -> None:
        """Fetch the first record of the topic, at once and without a session."""
        partition = {
            "partition": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1,
            "current_leader_epoch": -1,
            "log_start_offset": -1,
        }
        topics = [{"topic": TOPIC, "partitions": [partition]}]
        limits: Plain = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1}
        answer = self._wire.call(
            "fetch", 12, limits, isolation_level=0, session_id=0, session_epoch=-1, topics=topics
        )
        rows = answer.fields["responses"][0]["partitions"]
        assert rows[0]["error_code"] == 0, answer
        assert rows[0]["records"], answer

    def metadata(self) -> None:
        """Ask for the metadata of the topic."""
        topics = [{"name": TOPIC, "topic_id": None}]
        answer = self._wire.call("metadata", 12, topics=topics, allow_auto_topic_creation=False)
        assert answer.fields["topics"][0]["error_code"] == 0, answer

    def init_producer_id(self) -> None:
        """Send InitProducerId for an idempotent producer."""
        answer = self._wire.call(
            "init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1
        )
        assert answer.fields["error_code"] == 0, answer

    def commit(self) -> None:
        """Commit one offset of a group without members."""
        while self._commit() in (14, 15, 16):  # until the coordinator's log exists and is loaded
            self._wire.call("find_coordinator", 3, key=TOPIC, key_type=0)

    def _commit(self) -> int:
        partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        group: Plain = {"group_id": TOPIC, "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = self._wire.call("offset_commit", 8, group, topics=topics).fields
        error: int = answer["topics"][0]["partitions"][0]["error_code"]
        assert error in (0, 14, 15, 16), answer
        return error

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


def measure(bootstrap: str, loop: asyncio.AbstractEventLoop) -> dict[str, Walk]:
    """Return the walks by their titles. The first repetitions of each walk warm it up."""
    client, counter = Client(bootstrap), CallCounter(loop)
    client.create_topics()
    walks = {
        "Produce that repeats the last one, with other records": client.produce,
        "Produce with a new prefix": client.produce_first,
        "Produce that repeats the last one, to a topic that limits timestamps": client.produce_limited,
        "Fetch of one partition": client.fetch,
        "Metadata of one topic": client.metadata,
        "InitProducerId v4, block at hand": client.init_producer_id,
        "OffsetCommit v8 that repeats the last one, with another offset": client.commit,
    }
    client.produce_first()
    try:
        return {title: _shortest(counter, work) for title, work in walks.items()}
    finally:
        client.close()


def _shortest(counter: CallCounter, work: Callable[[], None]) -> Walk:
    work()
    return min((counter.during(work) for _ in range(REPETITIONS)), key=lambda walk: walk.calls)


async def run() -> dict[str, Walk]:
    """Start a gateway in a temporary directory, and measure the walks."""
    with tempfile.TemporaryDirectory() as directory:
        served = Gateway(
            load_config(
                overrides=[
                    f"log.dirs={directory}",
                    "listeners=PLAINTEXT://127.0.0.1:0",
                    # A quick disk would be flushed in the event loop, with more calls than a slow one.
                    "seqgate.flush.inline.max.ms=0",
                ]
            )
        )
        await served.start()
        try:
            endpoint = served.services.node.brokers.advertised["PLAINTEXT"]
            bootstrap = f"{endpoint.host}:{endpoint.port}"
            return await asyncio.to_thread(measure, bootstrap, asyncio.get_running_loop())
        finally:
            await served.stop()


def table(walks: dict[str, Walk]) -> str:
    """Return the walks as a table in Markdown."""
    lines = [
        "| walk | calls | files | changes of file | changes of room | changes of package |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [f"| {title} | {' | '.join(map(str, walk.row))} |" for title, walk in walks.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table(uvloop.run(run())) + "\n")
