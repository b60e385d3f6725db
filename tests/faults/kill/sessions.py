"""Producers of three client libraries behind one interface, for processes that send under load."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

FOREVER_MS = 2**31 - 1
QUICK_BACKOFF_MS = 20
SLOWEST_BACKOFF_MS = 100

Settled = Callable[[object, int], None]
"""The final result of a record in the library: an error and -1, or None and the offset. Called from any
thread.
"""


@dataclass(frozen=True)
class Outgoing:
    """A record for a library to send. Without a partition, the library chooses one by the key."""

    value: bytes
    partition: int | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True)
class Destination:
    """Where and how a session sends. A session that is not idempotent has one request in flight at a time."""

    bootstrap: str
    topic: str
    request_timeout_ms: int
    codec: str = "none"
    is_idempotent: bool = True

    @property
    def requests_in_flight(self) -> int:
        return 5 if self.is_idempotent else 1

    @property
    def codec_or_none(self) -> str | None:
        return None if self.codec == "none" else self.codec


class SessionLostError(Exception):
    """The client library refuses to continue with this producer."""


class Session(Protocol):
    """One producer of a client library."""

    def send(self, record: Outgoing, settled: Settled) -> None:
        """Give a record to the library; may raise `SessionLostError`."""

    def wait(self) -> None:
        """Let the library work until an event may have happened; may raise `SessionLostError`."""

    def finish(self) -> None:
        """Wait for every answer; may raise `SessionLostError`."""

    def abandon(self) -> None:
        """Drop the producer without waiting."""


def one_line(error: object) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


class ConfluentSession:
    def __init__(self, destination: Destination, settings: Mapping[str, object] | None = None) -> None:
        from confluent_kafka import Producer

        self._topic = destination.topic
        self._lost: object = None
        self._producer = Producer(
            {
                "bootstrap.servers": destination.bootstrap,
                "enable.idempotence": destination.is_idempotent,
                "max.in.flight.requests.per.connection": destination.requests_in_flight,
                "acks": "all",
                "compression.type": destination.codec,
                "message.timeout.ms": 0,
                "socket.timeout.ms": destination.request_timeout_ms,
                "request.timeout.ms": destination.request_timeout_ms,
                "retries": FOREVER_MS,
                "retry.backoff.ms": QUICK_BACKOFF_MS,
                "retry.backoff.max.ms": SLOWEST_BACKOFF_MS,
                "reconnect.backoff.ms": QUICK_BACKOFF_MS,
                "reconnect.backoff.max.ms": SLOWEST_BACKOFF_MS,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "log_level": 3,
                "error_cb": self._on_error,
                **(settings or {}),
            }
        )

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._lost = error

    def _check(self) -> None:
        if self._lost is not None:
            raise SessionLostError(one_line(self._lost))

    def send(self, record: Outgoing, settled: Settled) -> None:
        def delivered(error: Any, message: Any) -> None:
            settled(error, -1 if error is not None else message.offset())

        self._check()
        placed = {} if record.partition is None else {"partition": record.partition}
        self._call(
            self._producer.produce,
            self._topic,
            record.value,
            record.key,
            headers=list(record.headers),
            on_delivery=delivered,
            **placed,
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
        """Call the library; any call after a fatal error raises `SessionLostError`."""
        from confluent_kafka import KafkaException

        try:
            return work(*arguments, **named)
        except KafkaException as error:
            raise SessionLostError(one_line(error)) from error

    def abandon(self) -> None:
        self._producer.purge()
        self._producer.flush(0)


class KafkaPythonSession:
    def __init__(self, destination: Destination) -> None:
        from kafka import KafkaProducer

        self._topic = destination.topic
        self._answered = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=destination.bootstrap,
            enable_idempotence=destination.is_idempotent,
            acks="all",
            compression_type=destination.codec_or_none,
            max_in_flight_requests_per_connection=destination.requests_in_flight,
            batch_size=1000,
            linger_ms=1,
            delivery_timeout_ms=FOREVER_MS,
            request_timeout_ms=destination.request_timeout_ms,
            bootstrap_timeout_ms=FOREVER_MS,
            max_block_ms=FOREVER_MS,
            retry_backoff_ms=QUICK_BACKOFF_MS,
            reconnect_backoff_ms=QUICK_BACKOFF_MS,
            reconnect_backoff_max_ms=SLOWEST_BACKOFF_MS,
        )

    def send(self, record: Outgoing, settled: Settled) -> None:
        def answered(error: object, offset: int) -> None:
            settled(error, offset)
            self._answered.set()

        try:
            future = self._producer.send(
                self._topic, record.value, record.key, list(record.headers), record.partition
            )
        except Exception as error:
            raise SessionLostError(one_line(error)) from error
        future.add_callback(lambda metadata: answered(None, metadata.offset))
        future.add_errback(lambda error: answered(error, -1))
        self._check()

    def _check(self) -> None:
        """Raise if the library has given up: `send` raises nothing then, and every record fails at once.

        It does so when the answer to InitProducerId does not come in time.
        """
        state = self._producer._transaction_manager
        if state is not None and state.has_fatal_error():
            raise SessionLostError(one_line(state.last_error))

    def wait(self) -> None:
        self._check()
        if self._answered.wait(0.05):
            self._answered.clear()

    def finish(self) -> None:
        self._producer.flush()

    def abandon(self) -> None:
        from kafka.errors import KafkaTimeoutError

        try:
            self._producer.close(timeout=0)
        except KafkaTimeoutError:  # some records have no answer; the library then leaves its thread running
            self._producer._sender.force_close()


class AiokafkaSession:
    """aiokafka behind synchronous calls: its loop runs during each call."""

    def __init__(self, destination: Destination) -> None:
        self._topic = destination.topic
        self._loop = asyncio.new_event_loop()
        self._pending: set[asyncio.Future[Any]] = set()
        self._producer = self._loop.run_until_complete(self._open(destination))

    @staticmethod
    async def _open(destination: Destination) -> Any:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaConnectionError

        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=destination.bootstrap,
                enable_idempotence=destination.is_idempotent,
                acks="all",
                compression_type=destination.codec_or_none,
                max_batch_size=1000,
                request_timeout_ms=destination.request_timeout_ms,
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

    def send(self, record: Outgoing, settled: Settled) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            self._pending.discard(future)
            error = future.exception()
            settled(error, future.result().offset if error is None else -1)

        try:
            future = self._loop.run_until_complete(
                self._producer.send(
                    self._topic, record.value, record.key, record.partition, headers=list(record.headers)
                )
            )
        except Exception as error:
            raise SessionLostError(one_line(error)) from error
        self._pending.add(future)
        future.add_done_callback(done)

    def wait(self) -> None:
        pending = set(self._pending)  # the set may shrink before the loop reads it
        if pending:
            self._loop.run_until_complete(
                asyncio.wait(pending, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            )
        else:
            self._loop.run_until_complete(asyncio.sleep(0.005))  # the pause of a producer with a rate

    def finish(self) -> None:
        while self._pending:
            self.wait()
        self._loop.run_until_complete(self._producer.stop())

    def abandon(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self._producer.stop(), 5))


SESSIONS: dict[str, Callable[[Destination], Session]] = {
    "confluent-kafka": ConfluentSession,
    "kafka-python": KafkaPythonSession,
    "aiokafka": AiokafkaSession,
}
