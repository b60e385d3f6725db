"""One producer under load in a process of its own: `python -m tests.faults.kill.producers LIBRARY BOOTSTRAP TOPIC N TIMEOUT_MS`.

It sends without a pause, as far as its window allows, until its standard input ends; then it waits for all answers.
On standard output it tells what happened, one line each:

    A incarnation partition number offset     acknowledged
    F incarnation partition number error      given up by the library: at most once in the log
    G incarnation error                       the library gave up the session; the next incarnation follows
    S incarnation partition count             at the end: records sent
    E                                         the end
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol

from tests.faults.kill.checker import RecordName

WINDOW = 200
TELL_EVERY = 50
FOREVER_MS = 2**31 - 1
QUICK_BACKOFF_MS = 20
SLOWEST_BACKOFF_MS = 100


class Reporter:
    """Takes outcomes from any thread; the sending thread prints them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._open = 0
        self._changed = threading.Condition()

    @property
    def outstanding(self) -> int:
        return self._open

    def sent(self) -> None:
        with self._changed:
            self._open += 1

    def acknowledged(self, name: RecordName, offset: int) -> None:
        self._settled(f"A {name.incarnation} {name.partition} {name.number} {offset}")

    def failed(self, name: RecordName, error: object) -> None:
        self._settled(f"F {name.incarnation} {name.partition} {name.number} {one_line(error)}")

    def _settled(self, line: str) -> None:
        self._lines.append(line)
        with self._changed:
            self._open = max(0, self._open - 1)
            self._changed.notify_all()

    def forget_outstanding(self) -> None:
        with self._changed:
            self._open = 0

    def wait(self, timeout_s: float) -> None:
        with self._changed:
            if self._open >= WINDOW:
                self._changed.wait(timeout_s)

    def tell(self, *lines: str) -> None:
        while self._lines:
            print(self._lines.popleft())
        for line in lines:
            print(line)
        sys.stdout.flush()


def one_line(error: object) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


class SessionLostError(Exception):
    """The client library refuses to go on with this producer."""


class Session(Protocol):
    """One idempotent producer of a client library."""

    def send(self, name: RecordName) -> None:
        """Hands a record over; may raise `SessionLostError`."""

    def wait(self) -> None:
        """Lets the library work until something may have happened; may raise `SessionLostError`."""

    def finish(self) -> None:
        """Waits for every answer; may raise `SessionLostError`."""

    def abandon(self) -> None:
        """Lets go of the producer without waiting."""


class ConfluentSession:
    def __init__(self, bootstrap: str, topic: str, reporter: Reporter, request_timeout_ms: int) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._reporter = reporter
        self._lost: object = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 0,
                "socket.timeout.ms": request_timeout_ms,
                "request.timeout.ms": request_timeout_ms,
                "retries": FOREVER_MS,
                "retry.backoff.ms": QUICK_BACKOFF_MS,
                "retry.backoff.max.ms": SLOWEST_BACKOFF_MS,
                "reconnect.backoff.ms": QUICK_BACKOFF_MS,
                "reconnect.backoff.max.ms": SLOWEST_BACKOFF_MS,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "log_level": 3,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._lost = error

    def _check(self) -> None:
        if self._lost is not None:
            raise SessionLostError(one_line(self._lost))

    def send(self, name: RecordName) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._reporter.acknowledged(name, message.offset())
            else:
                self._reporter.failed(name, error)

        self._check()
        self._call(
            self._producer.produce,
            self._topic,
            name.encode(),
            partition=name.partition,
            on_delivery=delivered,
        )
        self._call(self._producer.poll, 0)

    def wait(self) -> None:
        self._call(self._producer.poll, 0.05)
        self._check()

    def finish(self) -> None:
        while self._call(self._producer.flush, 0.5):
            self._check()

    @staticmethod
    def _call(work: Callable[..., Any], *arguments: object, **named: object) -> Any:
        """A fatal error is raised by whatever is called next."""
        from confluent_kafka import KafkaException

        try:
            return work(*arguments, **named)
        except KafkaException as error:
            raise SessionLostError(one_line(error)) from error

    def abandon(self) -> None:
        self._producer.purge()
        self._producer.flush(0)


class KafkaPythonSession:
    def __init__(self, bootstrap: str, topic: str, reporter: Reporter, request_timeout_ms: int) -> None:
        from kafka import KafkaProducer

        self._topic = topic
        self._reporter = reporter
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            max_in_flight_requests_per_connection=5,
            batch_size=1000,
            linger_ms=1,
            delivery_timeout_ms=FOREVER_MS,
            request_timeout_ms=request_timeout_ms,
            bootstrap_timeout_ms=FOREVER_MS,
            max_block_ms=FOREVER_MS,
            retry_backoff_ms=QUICK_BACKOFF_MS,
            reconnect_backoff_ms=QUICK_BACKOFF_MS,
            reconnect_backoff_max_ms=SLOWEST_BACKOFF_MS,
        )

    def send(self, name: RecordName) -> None:
        try:
            future = self._producer.send(self._topic, name.encode(), partition=name.partition)
        except Exception as error:
            raise SessionLostError(one_line(error)) from error
        future.add_callback(lambda metadata: self._reporter.acknowledged(name, metadata.offset))
        future.add_errback(lambda error: self._reporter.failed(name, error))

    def wait(self) -> None:
        self._reporter.wait(0.05)

    def finish(self) -> None:
        self._producer.flush()

    def abandon(self) -> None:
        self._producer.close(timeout=0)


class AiokafkaSession:
    """aiokafka behind plain calls: its loop runs whenever one of them is made."""

    def __init__(self, bootstrap: str, topic: str, reporter: Reporter, request_timeout_ms: int) -> None:
        self._topic = topic
        self._reporter = reporter
        self._loop = asyncio.new_event_loop()
        self._pending: set[asyncio.Future[Any]] = set()
        self._producer = self._loop.run_until_complete(self._open(bootstrap, request_timeout_ms))

    @staticmethod
    async def _open(bootstrap: str, request_timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaConnectionError

        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                enable_idempotence=True,
                acks="all",
                max_batch_size=1000,
                request_timeout_ms=request_timeout_ms,
                linger_ms=1,
                retry_backoff_ms=QUICK_BACKOFF_MS,
            )
            try:
                await producer.start()
            except KafkaConnectionError:
                await producer.stop()
                await asyncio.sleep(QUICK_BACKOFF_MS / 1000)
            else:
                return producer

    def send(self, name: RecordName) -> None:
        def settled(future: asyncio.Future[Any]) -> None:
            self._pending.discard(future)
            error = future.exception()
            if error is None:
                self._reporter.acknowledged(name, future.result().offset)
            else:
                self._reporter.failed(name, error)

        try:
            future = self._loop.run_until_complete(
                self._producer.send(self._topic, name.encode(), partition=name.partition)
            )
        except Exception as error:
            raise SessionLostError(one_line(error)) from error
        self._pending.add(future)
        future.add_done_callback(settled)

    def wait(self) -> None:
        pending = set(self._pending)  # it may shrink before the loop looks at it
        if pending:
            self._loop.run_until_complete(
                asyncio.wait(pending, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            )

    def finish(self) -> None:
        while self._pending:
            self.wait()
        self._loop.run_until_complete(self._producer.stop())

    def abandon(self) -> None:
        self._loop.run_until_complete(asyncio.wait_for(self._producer.stop(), 5))


SESSIONS: dict[str, Callable[[str, str, Reporter, int], Session]] = {
    "confluent-kafka": ConfluentSession,
    "kafka-python": KafkaPythonSession,
    "aiokafka": AiokafkaSession,
}


class Load:
    """Sends round robin to the partitions until told to stop, with a new session whenever the old one is lost."""

    def __init__(
        self, library: str, bootstrap: str, topic: str, partitions: int, request_timeout_ms: int
    ) -> None:
        self._library = library
        self._partitions = partitions
        self._reporter = Reporter()
        self._open_session = lambda: SESSIONS[library](bootstrap, topic, self._reporter, request_timeout_ms)
        self._sent: Counter[tuple[int, int]] = Counter()
        self._stopping = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._await_end_of_input, daemon=True).start()
        incarnation = 0
        while not self._run_session(incarnation):
            incarnation += 1
        self._reporter.tell(
            *(
                f"S {incarnation} {partition} {count}"
                for (incarnation, partition), count in self._sent.items()
            ),
            "E",
        )

    def _await_end_of_input(self) -> None:
        sys.stdin.read()
        self._stopping.set()

    def _run_session(self, incarnation: int) -> bool:
        """Whether this session came to a regular end."""
        session = self._open_session()
        try:
            self._send_all(session, incarnation)
            session.finish()
        except SessionLostError as error:
            self._reporter.tell(f"G {incarnation} {error}")
            session.abandon()
            self._reporter.forget_outstanding()
            return False
        return True

    def _send_all(self, session: Session, incarnation: int) -> None:
        turn = 0
        while not self._stopping.is_set():
            if self._reporter.outstanding >= WINDOW:
                self._reporter.tell()
                session.wait()
                continue
            partition = turn % self._partitions
            name = RecordName(self._library, incarnation, partition, self._sent[incarnation, partition])
            self._sent[incarnation, partition] += 1
            self._reporter.sent()
            session.send(name)
            turn += 1
            if turn % TELL_EVERY == 0:
                self._reporter.tell()


if __name__ == "__main__":
    Load(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])).run()
