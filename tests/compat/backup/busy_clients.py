"""Unmodified clients that write while a gateway is backed up, and what they know to be stored."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

ORDERS, MOVED, LATEST, GROUP = "orders", "moved", "latest", "mover"
KEYS = ("a", "b", "c")
PARTITIONS = 3
ABORT_EVERY = 4
WAIT_S = 60.0


def _idempotent(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})


def settle(producer: Producer) -> None:
    """Wait until every record of a producer is acknowledged or refused. A fatal error is raised once, before
    the records get it.
    """
    deadline = time.monotonic() + WAIT_S
    while len(producer):
        assert time.monotonic() < deadline
        with suppress(KafkaException):
            producer.poll(0.1)


class BusyClients:
    """Producers, each in a thread: librdkafka and kafka-python with idempotence, and librdkafka with
    transactions.

    A fourth producer writes ever higher numbers for a few keys into the compacted topic LATEST. A transaction
    writes its number into each partition of MOVED, and commits it as the offset of GROUP in ORDERS. Every
    fourth is aborted.
    """

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[str, None] = {}
        self.committed: dict[int, None] = {}
        self.aborted: dict[int, None] = {}
        self.latest: dict[str, int] = {}
        """The highest acknowledged number of each key in LATEST."""
        self.errors: list[str] = []
        self.living = _idempotent(bootstrap)
        """The producer that writes to the end, and lives on after it."""
        self.idle = _idempotent(bootstrap)
        """A producer that writes only when a test sends by it."""
        self._bootstrap = bootstrap
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let all clients write inside of the `with` block; afterwards everything is acknowledged."""
        works: tuple[Callable[[], None], ...] = (
            self._librdkafka,
            self._kafka_python,
            self._transactions,
            self._compacted,
        )
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(WAIT_S)
        assert self.errors == []

    def await_progress(self) -> None:
        """Wait until every client has stored more."""
        counts = self._counts()
        deadline = time.monotonic() + WAIT_S
        while not all(now > before for now, before in zip(self._counts(), counts, strict=True)):
            assert self.errors == []
            assert time.monotonic() < deadline, (counts, self._counts())
            time.sleep(0.02)

    def _counts(self) -> tuple[int, ...]:
        kinds = [name.partition("-")[0] for name in list(self.acknowledged)]
        sent = kinds.count("librdkafka"), kinds.count("python")
        return *sent, len(self.committed), len(self.aborted), sum(self.latest.values())

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(repr(error))

    def _librdkafka(self) -> None:
        for number in itertools.count():
            self.send(self.living, f"librdkafka-{number}")
            if number % 20 == 0:
                assert self.living.flush(WAIT_S) == 0
            if self._stopping.is_set():
                assert self.living.flush(WAIT_S) == 0
                return

    def send(self, producer: Producer, value: str, failed: Callable[[Any], None] | None = None) -> None:
        """Send a record; note it when it is acknowledged. A record that fails is an error, unless `failed`
        takes the reason.
        """

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged[value] = None
            elif failed is None:
                self.errors.append(f"{value}: {error}")
            else:
                failed(error)

        try:
            producer.produce(ORDERS, value, on_delivery=delivered)
        except KafkaException as error:
            # After a fatal error a producer takes no records.
            delivered(error, None)
            return
        with suppress(KafkaException):
            producer.poll(0)

    def _kafka_python(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True, acks="all")
        for number in itertools.count():
            value = f"python-{number}"
            producer.send(ORDERS, value.encode()).get(WAIT_S)
            self.acknowledged[value] = None
            if self._stopping.is_set():
                producer.close()
                return

    def _compacted(self) -> None:
        producer = _idempotent(self._bootstrap)
        for number in itertools.count(1):
            for key in KEYS:
                producer.produce(LATEST, f"{key}:{number}", key, partition=0)
            assert producer.flush(WAIT_S) == 0
            self.latest = dict.fromkeys(KEYS, number)
            if self._stopping.is_set():
                return

    def _transactions(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "mover"})
        producer.init_transactions(WAIT_S)
        member = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP})
        for number in itertools.count():
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(MOVED, str(number), partition=partition)
            producer.send_offsets_to_transaction(
                [TopicPartition(ORDERS, 0, number)], member.consumer_group_metadata(), WAIT_S
            )
            if number % ABORT_EVERY == 0:
                producer.abort_transaction(WAIT_S)
                self.aborted[number] = None
            else:
                producer.commit_transaction(WAIT_S)
                self.committed[number] = None
            if self._stopping.is_set():
                member.close()
                return
