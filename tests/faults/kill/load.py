"""Producers under load as the tests see them: processes with ledgers, and the partitions read back."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

from seqgate.gateway.testing.broker_process import ServeProcess
from tests.faults.kill.checker import Ledger, RecordName
from tests.support.gateway_process import REPOSITORY, START_TIMEOUT_S, GatewayProcess, kept_port
from tests.support.kafka_tools import java_command
from tests.support.wire import Wire

LIBRARIES = ("kafka-python", "aiokafka", "confluent-kafka", "jvm")
JVM_SOURCE = Path(__file__).with_name("LoadProducer.java")
REQUEST_TIMEOUT_MS = 30_000
POLL_S = 0.002
PROGRESS_TIMEOUT_S = 180.0
FINISH_TIMEOUT_S = 180.0


def fixed_port() -> int:
    """Return a free port below the range that the system assigns. The port need not be reproducible, so no
    seed chooses it.

    A client that dials a port of that range while nobody listens can connect to itself and keep the port
    taken.
    """
    while True:
        with contextlib.suppress(OSError):
            return kept_port(SystemRandom().randrange(10_000, 32_000))


class KillableGateway(GatewayProcess):
    """A gateway that a test can also kill during its start."""

    _ticks_to_live: int | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the gateway was started and has not exited by itself."""
        return self._process is not None and not self._process.has_ended

    def kill_while_starting(self, processor_ticks: int) -> None:
        """Start the gateway, and kill it once it has used this processor time, or answers before that."""
        self._ticks_to_live = processor_ticks
        try:
            self.start()
        finally:
            self._ticks_to_live = None
            self.kill()

    def _await_ready(self, process: ServeProcess) -> str:
        if self._ticks_to_live is None:
            return super()._await_ready(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.processor_ticks() < self._ticks_to_live and time.monotonic() < deadline:
            if process.prints_within(POLL_S):
                break
        return ""

    def processor_ticks(self) -> int:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


class ProducerProcess:
    """A process that sends records with one client library, `rate` per second (0: without a pause). `ledger`
    collects the records that it sent, and their answers.
    """

    def __init__(
        self,
        library: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        directory: Path,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        rate: int = 0,
    ) -> None:
        self.ledger = Ledger(library)
        self.sessions_lost: list[str] = []
        self._ended = False
        self._changed = threading.Condition()
        self._stderr_path = directory / f"{library}.stderr"
        self._arguments = (library, bootstrap, topic, str(partitions), str(request_timeout_ms), str(rate))
        self._process = self._start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self) -> subprocess.Popen[str]:
        with self._stderr_path.open("ab") as stderr:
            return subprocess.Popen(
                self._command(),
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def _command(self) -> list[str]:
        if self.ledger.producer == "jvm":
            return [*java_command(str(JVM_SOURCE), heap="64m"), *self._arguments]
        return [sys.executable, "-m", "tests.faults.kill.producers", *self._arguments]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def acknowledged(self) -> int:
        return len(self.ledger.acknowledged)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._take(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _take(self, line: str) -> None:
        kind, *fields = line.split(maxsplit=4)
        if kind == "A":
            incarnation, partition, number, offset = map(int, fields)
            self.ledger.acknowledged[RecordName(self.ledger.producer, incarnation, partition, number)] = (
                offset
            )
        elif kind == "F":
            incarnation, partition, number = map(int, fields[:3])
            self.ledger.failed[RecordName(self.ledger.producer, incarnation, partition, number)] = fields[3]
        elif kind == "S":
            incarnation, partition, count = map(int, fields)
            self.ledger.sent[incarnation, partition] = count
        elif kind == "G":
            self.sessions_lost.append(line.strip())
        elif kind == "E":
            self._ended = True

    def await_acknowledged(self, count: int) -> None:
        """Return once `count` records were acknowledged in total."""
        self._await(lambda: self.acknowledged >= count, f"{count} acknowledged records", PROGRESS_TIMEOUT_S)

    def stop_sending(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def await_end(self) -> None:
        """Return once all records are answered and the process has ended."""
        self._await(lambda: self._ended, "the end", FINISH_TIMEOUT_S)
        assert self._process.wait(FINISH_TIMEOUT_S) == 0, self._told()

    def _await(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                dead = not self._reader.is_alive() and not condition()
                assert left > 0, f"no {what} within {timeout_s} s: {self._told()}"
                assert not dead, f"the process ended before {what}: {self._told()}"
                self._changed.wait(min(left, 0.5))

    def _told(self) -> str:
        lost = "; ".join(self.sessions_lost[-3:])
        errors = self._stderr_path.read_text(errors="replace")[-3000:]
        return f"{self.ledger.producer}, {self.acknowledged} acknowledged, sessions lost: [{lost}]\n{errors}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Producers:
    """Several client libraries at once on one topic."""

    process: type[ProducerProcess] = ProducerProcess

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        directory: Path,
        libraries: Sequence[str] = LIBRARIES,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        rate: int = 0,
    ) -> None:
        self.all = [
            self.process(library, bootstrap, topic, partitions, directory, request_timeout_ms, rate=rate)
            for library in libraries
        ]

    @property
    def ledgers(self) -> list[Ledger]:
        return [producer.ledger for producer in self.all]

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.all)

    def await_further(self, count: int) -> None:
        """Return once each producer has had roughly its share of `count` more records acknowledged, at least
        one.
        """
        share = -(-count // len(self.all))
        for producer, before in [(producer, producer.acknowledged) for producer in self.all]:
            producer.await_acknowledged(before + share)

    def finish(self) -> None:
        for producer in self.all:
            producer.stop_sending()
        for producer in self.all:
            producer.await_end()

    def summary(self) -> str:
        lines = []
        for producer in self.all:
            ledger = producer.ledger
            lines.append(
                f"{ledger.producer}: {sum(ledger.sent.values())} sent, {producer.acknowledged} acknowledged, "
                f"{len(ledger.failed)} given up, {ledger.incarnations} incarnations"
            )
            lines += [f"  {line}" for line in producer.sessions_lost[:5]]
            lines += [f"  {name}: {error}" for name, error in list(ledger.failed.items())[:3]]
        return "\n".join(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for producer in self.all:
            producer.kill()


def create_topic(bootstrap: str, topic: str, partitions: int, **configs: int | str) -> None:
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()],
    }
    with Wire(bootstrap) as wire:
        created = wire.call("create_topics", 7, topics=[wanted], timeout=10_000).fields["topics"][0]
    assert created["error_code"] == 0, created
