"""One gateway with small limits, a witness that uses the gateway during attacks, and a view of the process's
resources.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.support.batches import Batch, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire, encode

DEADLINE_S = 60.0
SETTINGS = {
    "queued.max.request.bytes": "8000000",
    "socket.request.max.bytes": "4000000",
    "seqgate.response.backlog.max.bytes": "16000000",
    "seqgate.fetch.session.max.partitions": "2000",
    "max.incremental.fetch.session.cache.slots": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "seqgate.group.max": "200",
    "seqgate.group.members.max.bytes": "4000000",
    "seqgate.group.offsets.max": "5000",
    "seqgate.transactional.id.max": "200",
    "seqgate.producer.max.per.partition": "500",
    "seqgate.max.partitions": "20000",
}
"""Small limits, so that an attack reaches them at once."""
GROWTH_BYTES = 96 << 20
"""The most memory that an attack may take: the limits above together, and the freed memory that Python and
malloc keep.
"""


def frame(payload: bytes) -> bytes:
    """Return a request with its size before it."""
    return struct.pack(">i", len(payload)) + payload


def versions_frame(correlation_id: int = 1) -> bytes:
    """Return the smallest request that has an answer."""
    return frame(encode("api_versions", 0, {}, correlation_id=correlation_id))


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        pause.wait(0.01)  # polling more often would take processor time from the gateway


def receive_exactly(reader: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or fewer when the gateway closes the connection."""
    received = bytearray()
    while len(received) < size:
        part = reader.recv(min(1 << 20, size - len(received)))
        if not part:
            break
        received += part
    return bytes(received)


def is_closed(client: socket.socket) -> bool:
    """Return whether the gateway closes the connection, perhaps after some last bytes."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


class Witness:
    """A client that produces, fetches and commits, over and over, and must never get an error."""

    def __init__(self, gateway: GatewayProcess, topic: str) -> None:
        self.gateway = gateway
        self.topic = topic
        self.answers = 0
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"witness of {topic}")

    def _run(self) -> None:
        try:
            with Wire(self.gateway.bootstrap, timeout_s=DEADLINE_S) as wire:
                sequence = 0
                while not self._stopping.is_set():
                    self._turn(wire, sequence)
                    sequence += 1
                    self._stopping.wait(0.005)  # leave most of the processor to the attack
        except BaseException as failure:
            with self._news:
                self.failure = failure
                self._news.notify_all()

    def _turn(self, wire: Wire, sequence: int) -> None:
        batch = Batch(records(1, 40_000, prefix=f"{sequence}-")).of(7, 0, sequence)
        entry = {"index": 0, "records": batch.encode()}
        produced = wire.call(
            "produce",
            9,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": self.topic, "partition_data": [entry]}],
        ).fields["responses"][0]["partition_responses"][0]
        assert (produced["error_code"], produced["base_offset"]) == (0, sequence), produced
        position = {"partition": 0, "fetch_offset": sequence, "partition_max_bytes": 1 << 20}
        fetched = wire.call(
            "fetch",
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[{"topic": self.topic, "partitions": [position]}],
        ).fields["responses"][0]["partitions"][0]
        assert fetched["error_code"] == 0, fetched
        assert fetched["high_watermark"] == sequence + 1, fetched
        with self._news:
            self.answers += 2
            self._news.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def wait_for(self, more: int) -> None:
        """Wait until `more` requests are answered: the gateway serves other clients during the attack."""
        with self._news:
            wanted = self.answers + more
            done = self._news.wait_for(lambda: self.answers >= wanted or self.failure is not None, DEADLINE_S)
        assert done, f"never: {more} more answers"
        assert self.failure is None, repr(self.failure)

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._thread.join()
        if exc_info[0] is None:
            assert self.failure is None, repr(self.failure)


class Scene:
    """A running gateway, with ways to attack and to watch it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self._topics = 0

    def create(self, count: int = 1, **configs: object) -> str:
        """Create a topic."""
        self._topics += 1
        topic = f"hostile-{self._topics}"
        rows = [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()]
        new = {"name": topic, "num_partitions": count, "replication_factor": 1, "configs": rows}
        with Wire(self.gateway.bootstrap, timeout_s=DEADLINE_S) as wire:
            answer = wire.call("create_topics", 5, topics=[new], timeout=30_000, validate_only=False).fields
        assert answer["topics"][0]["error_code"] == 0, answer
        return topic

    def connect(self, *, receive_bytes: int = 0) -> socket.socket:
        """Return a raw connection."""
        client = socket.socket()
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(DEADLINE_S)
        client.connect(("127.0.0.1", self.gateway.port))
        return client

    @contextlib.contextmanager
    def connections(self, count: int, *, receive_bytes: int = 0) -> Iterator[list[socket.socket]]:
        """Return `count` raw connections."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.connect(receive_bytes=receive_bytes)) for _ in range(count)]

    def wire(self) -> Wire:
        """Return a client that sends well-formed requests."""
        return Wire(self.gateway.bootstrap, timeout_s=DEADLINE_S)

    def witness(self) -> Witness:
        """Return another client, in a topic of its own."""
        return Witness(self.gateway, self.create())

    def resident_bytes(self) -> int:
        """Return the memory of the gateway's process."""
        status = Path(f"/proc/{self.gateway.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def processor_s(self) -> float:
        """Return the processor time (s) that the gateway's process has used."""
        user, system = Path(f"/proc/{self.gateway.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """Return the number of the gateway's open files and sockets."""
        return len(list(Path(f"/proc/{self.gateway.pid}/fd").iterdir()))

    def open_sockets(self) -> int:
        """Return the number of the gateway's sockets. Files are left out, because segments stay open for a
        while.
        """
        count = 0
        for file in Path(f"/proc/{self.gateway.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += str(file.readlink()).startswith("socket:")
        return count

    def log_bytes(self) -> int:
        """Return the size of the gateway's log output."""
        return self.gateway.stderr_path.stat().st_size

    def log_has(self, text: str) -> bool:
        """Whether a log line contains the text."""
        return text in self.gateway.stderr_text()

    @contextlib.contextmanager
    def bounded(self, *, growth_bytes: int = GROWTH_BYTES, log_bytes: int = 1 << 20) -> Iterator[None]:
        """Check that the `with` block makes memory and log grow by less than this, and that all its sockets
        are closed."""
        memory, sockets, logged = self.resident_bytes(), self.open_sockets(), self.log_bytes()
        yield
        grown = self.resident_bytes() - memory
        assert grown < growth_bytes, f"{grown} bytes more"
        assert self.log_bytes() - logged < log_bytes
        eventually(lambda: self.open_sockets() <= sockets, "its sockets closed")


@contextlib.contextmanager
def running(data_dir: Path, *, also_listen: Sequence[str] = (), **settings: str) -> Iterator[Scene]:
    """Start a gateway for one test."""
    with GatewayProcess(data_dir, settings={**SETTINGS, **settings}, also_listen=also_listen) as gateway:
        yield Scene(gateway)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The gateway of all short attacks: anything that one attack leaves behind would show in the next attack."""
    with running(tmp_path_factory.mktemp("hostile") / "data") as one:
        yield one
