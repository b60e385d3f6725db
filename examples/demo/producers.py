"""One idempotent producer of the demo, in a process of its own: `python -m examples.demo.producers LIBRARY
...`.

The producer sends its share of the flights and prints the number of acknowledged records, one number per
line. The library handles retries, reconnects and order: that is what the demo shows. Every record carries the
producer's name and its number in the producer's sequence as headers.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from examples.demo.security import Login

BATCH_BYTES = 64 * 1024
LINGER_MS = 20
RETRY_BACKOFF_MS = 50
REQUEST_TIMEOUT_MS = 20_000
DELIVERY_TIMEOUT_MS = 300_000
REPORT_EVERY_S = 0.2
UNACKNOWLEDGED_LIMIT = 20_000


class Task(NamedTuple):
    """The work of one producer."""

    name: str
    bootstrap: str
    topic: str
    path: Path
    position: int
    records: int
    login: Login | None = None


class Flight(NamedTuple):
    """One flight, which a producer sends as a record."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


class Progress:
    """The count of acknowledged records, printed every REPORT_EVERY_S. Thread-safe."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failure: BaseException | str | None = None
        self._printed_at = 0.0
        self._lock = threading.Lock()

    def acknowledge(self, *_: object) -> None:
        """Count one more acknowledged record."""
        with self._lock:
            self.acknowledged += 1
            if time.monotonic() - self._printed_at < REPORT_EVERY_S:
                return
            self._printed_at = time.monotonic()
            print(self.acknowledged, flush=True)

    def fail(self, error: BaseException | str) -> None:
        """Note that the library gave up a record; keep the first error."""
        self.failure = self.failure or error


def flights(task: Task) -> Iterator[Flight]:
    """Yield the records of a task."""
    name = task.name.encode()
    with task.path.open("rb") as file:
        file.seek(task.position)
        for sequence in range(task.records):
            key, _, value = file.readline().rstrip(b"\n").partition(b"\t")
            yield Flight(key or None, value, [("producer", name), ("sequence", b"%d" % sequence)])


def send_with_kafka_python(task: Task, progress: Progress) -> None:
    """Send with kafka-python's KafkaProducer."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap,
        client_id=task.name,
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=DELIVERY_TIMEOUT_MS,
        **(task.login.for_kafka_python() if task.login else {}),
    )
    for flight in flights(task):
        future = producer.send(task.topic, key=flight.key, value=flight.value, headers=flight.headers)
        future.add_callback(progress.acknowledge)
        future.add_errback(progress.fail)
    producer.flush()
    producer.close()


def send_with_aiokafka(task: Task, progress: Progress) -> None:
    """Send with aiokafka's AIOKafkaProducer."""
    asyncio.run(_send_with_aiokafka(task, progress))


async def _send_with_aiokafka(task: Task, progress: Progress) -> None:
    from aiokafka import AIOKafkaProducer

    def done(future: asyncio.Future[object]) -> None:
        error = future.exception()
        if error is None:
            progress.acknowledge()
        else:
            progress.fail(error)

    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        client_id=task.name,
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        request_timeout_ms=DELIVERY_TIMEOUT_MS,  # aiokafka gives up a batch after this time, retries included.
        **(task.login.for_aiokafka() if task.login else {}),
    )
    await producer.start()
    for flight in flights(task):
        future = await producer.send(task.topic, key=flight.key, value=flight.value, headers=flight.headers)
        future.add_done_callback(done)
    await producer.stop()


def send_with_confluent_kafka(task: Task, progress: Progress) -> None:
    """Send with confluent-kafka, the Python binding of librdkafka."""
    from confluent_kafka import KafkaError, Producer

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is None:
            progress.acknowledge()
        else:
            progress.fail(str(error))

    def reported(error: KafkaError) -> None:
        if error.fatal():
            progress.fail(str(error))

    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "client.id": task.name,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "message.timeout.ms": 0,
            "partitioner": "murmur2_random",
            "log_level": 0,
            "error_cb": reported,
            **(task.login.for_librdkafka() if task.login else {}),
        }
    )
    for sent, flight in enumerate(flights(task)):
        headers: list[Any] = list(flight.headers)
        while sent - progress.acknowledged > UNACKNOWLEDGED_LIMIT and progress.failure is None:
            producer.poll(0.05)
        producer.produce(
            task.topic, key=flight.key, value=flight.value, headers=headers, on_delivery=delivered
        )
        producer.poll(0)
        if progress.failure is not None:
            return
    producer.flush()


LIBRARIES: dict[str, Callable[[Task, Progress], None]] = {
    "kafka-python": send_with_kafka_python,
    "aiokafka": send_with_aiokafka,
    "confluent-kafka": send_with_confluent_kafka,
}


def main() -> int:
    """Send the records of one task; return the exit status, 0 when every record was acknowledged."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.producers", description=__doc__)
    parser.add_argument("library", choices=sorted(LIBRARIES))
    for name in ("--name", "--bootstrap", "--topic"):
        parser.add_argument(name, required=True)
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--position", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--login", type=lambda path: Login.read(Path(path)))
    chosen = vars(parser.parse_args())
    logging.disable(logging.CRITICAL)  # The libraries log every lost connection.
    send = LIBRARIES[chosen.pop("library")]
    task, progress = Task(**chosen), Progress()
    send(task, progress)
    print(progress.acknowledged, flush=True)
    if progress.failure is not None or progress.acknowledged != task.records:
        print(
            f"{task.name}: {progress.acknowledged} of {task.records} records were acknowledged: "
            f"{progress.failure}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
