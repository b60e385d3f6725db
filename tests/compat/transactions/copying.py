"""Shared parts of the consume-transform-produce tests: the copying processes, their input, and their output."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.groups.members import await_that
from tests.compat.transactions.copier import Work, transformed
from tests.support.gateway_process import REPOSITORY
from tests.support.kafka_tools import java_command

PATIENCE_S = 120.0
MESSAGE_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTION_SIZE = 10
TRANSACTION_TIMEOUT_MS = 10_000
"""Not long, because the MessageCopier waits this long after a death: it fetches its position before it aborts
the transaction of its predecessor."""


def python_command(library: str) -> Callable[[Work], list[str]]:
    def command(work: Work) -> list[str]:
        settings = json.dumps(work._asdict())
        return [sys.executable, "-m", "tests.compat.transactions.copier", library, settings]

    return command


def message_copier_command(work: Work, *options: str, first_jars: Path | None = None) -> list[str]:
    """Return the command of Kafka's TransactionalMessageCopier, which ends when it has copied all records
    that existed at its start.
    """
    command = java_command(MESSAGE_COPIER, first_jars=first_jars)
    command += ["--broker-list", work.bootstrap, "--transactional-id", work.name]
    command += ["--input-topic", work.input, "--output-topic", work.output, "--consumer-group", work.group]
    command += [
        "--transaction-size",
        str(TRANSACTION_SIZE),
        "--transaction-timeout",
        str(TRANSACTION_TIMEOUT_MS),
    ]
    return [*command, "--enable-random-aborts", *options]


class CopierProcess:
    """A sequence of copying processes with the same transactional id; each takes over from the one before."""

    def __init__(self, command: list[str], stderr: Path) -> None:
        self.starts = 0
        self.lines = 0
        """The number of reported lines; it grows every few commits."""
        self._command = command
        self._stderr = stderr
        self._leaving = False
        self._process: subprocess.Popen[str]
        self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        self.starts += 1
        with self._stderr.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
            )

    def _supervise(self) -> None:
        while True:
            assert self._process.stdout is not None
            for _ in self._process.stdout:
                self.lines += 1
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()
            if self._leaving:
                return
            self._start()

    def kill(self) -> None:
        """Kill the process with SIGKILL; the next one starts."""
        self._process.kill()

    def end(self, *, kill: bool = False) -> None:
        """End the current process, gracefully or with SIGKILL, and start no other."""
        self._leaving = True
        if kill:
            self._process.kill()
        else:
            with contextlib.suppress(BrokenPipeError, ValueError):
                assert self._process.stdin is not None
                self._process.stdin.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the copier does not end\n{self.complaints()}"

    def complaints(self) -> str:
        return self._stderr.read_text(errors="replace")[-6000:]


class Copying:
    """A copying test: its topics, committed input records, processes, and committed output records."""

    def __init__(self, bootstrap: str, work: Work) -> None:
        self.work = work
        self.expected: Counter[bytes] = Counter()
        self.copiers: list[CopierProcess] = []
        self._bootstrap = bootstrap
        self._filled = 0
        self._found: Counter[bytes] = Counter()
        self._ended: set[int | None] = set()
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody's",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._reader.assign(
            [TopicPartition(work.output, index, OFFSET_BEGINNING) for index in range(work.partitions)]
        )

    def start(self, commands: Sequence[list[str]], directory: Path) -> None:
        for number, command in enumerate(commands):
            self.copiers.append(CopierProcess(command, directory / f"copier-{number}.stderr"))

    def fill(self, per_partition: int, *, transaction_size: int = 0) -> None:
        """Send `per_partition` records to each partition. With a size, send them in transactions of that many
        records, and abort every third.
        """
        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 1, "log_level": 0}
        if not transaction_size:
            producer = Producer({**settings, "enable.idempotence": True})
            self._send(producer, range(per_partition))
            return
        producer = Producer({**settings, "transactional.id": f"fills-{self.work.input}"})
        producer.init_transactions(PATIENCE_S)
        for number, first in enumerate(range(0, per_partition, transaction_size)):
            producer.begin_transaction()
            before = self.expected.copy()
            self._send(producer, range(first, min(first + transaction_size, per_partition)))
            if number % 3 == 2:
                producer.abort_transaction(PATIENCE_S)
                self.expected = before
            else:
                producer.commit_transaction(PATIENCE_S)

    def _send(self, producer: Producer, numbers: range) -> None:
        def delivered(error: KafkaError | None, message: object) -> None:
            assert error is None, error

        for _ in numbers:
            for partition in range(self.work.partitions):
                value = f"{partition}-{self._filled}".encode()
                producer.produce(self.work.input, value, partition=partition, on_delivery=delivered)
                self.expected[value] += 1
            self._filled += 1
        assert producer.flush(PATIENCE_S) == 0

    def await_copied(self, count: int) -> None:
        """Wait until `count` of the records are in the output."""
        self._await(lambda: self._found.total() >= count, f"{count} copies")

    @property
    def copied(self) -> int:
        self._read()
        return self._found.total()

    def _read(self) -> None:
        for message in self._reader.consume(500, 0.1):
            error = message.error()
            if error is None:
                self._found[message.value() or b""] += 1
                self._ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
            elif not error.retriable():
                raise KafkaException(error)

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self._read()
            return holds()

        try:
            await_that(is_so, what, timeout_s=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.account()}") from None

    def expect_each_once(self, of: Callable[[bytes], bytes] = transformed) -> None:
        """End the copiers. Check that the output has each committed input record once, and no other."""
        expected = Counter({of(value): count for value, count in self.expected.items()})
        self._await(lambda: self._found >= expected, "all is copied")
        for copier in self.copiers:
            copier.end()
        self._ended.clear()
        places = [TopicPartition(self.work.output, index) for index in range(self.work.partitions)]
        for place in self._reader.position(places):
            self._reader.seek(place)  # so that the consumer reports the end of each partition once more
        self._await(lambda: len(self._ended) == self.work.partitions, "the output is read to its end")
        lost, more = expected - self._found, self._found - expected
        assert not lost, f"lost: {sorted(lost)[:20]}\n{self.account()}"
        assert not more, f"doubled or never committed: {sorted(more)[:20]}\n{self.account()}"

    def account(self) -> str:
        told = [f"{copier.starts} starts\n{copier.complaints()}" for copier in self.copiers]
        seen = [self._seen("groups", "describe", self.work.group), self._seen("transactions", "list")]
        return "\n".join([f"{self._found.total()} of {self.expected.total()} are copied", *told, *seen])

    def _seen(self, *command: str) -> str:
        """Return what a command says, which tells a stuck gateway from a stuck client."""
        whole = [sys.executable, "-m", "seqgate", *command, "--bootstrap", self._bootstrap]
        done = subprocess.run(whole, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        return f"{' '.join(command)}:\n{done.stdout}{done.stderr}"

    def close(self) -> None:
        for copier in self.copiers:
            copier.end(kill=True)
        self._reader.close()


@contextlib.contextmanager
def copying(bootstrap: str, work: Work) -> Iterator[Copying]:
    """Run the block; end its copiers afterwards."""
    started = Copying(bootstrap, work)
    try:
        yield started
    finally:
        started.close()
