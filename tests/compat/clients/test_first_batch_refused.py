"""The first batch of five unmodified clients is refused in each of six partitions: no record is lost.

The refused batch is too large for its topic, or a fault of the test kit refuses it. The broker answers it
only when the client has sent all that it sends before an answer. So no load of the machine decides whether
a later batch can overtake.

What each client does with the refused batch (R) and with the batches behind it:

| client | batches of a partition in flight | MESSAGE_TOO_LARGE | KAFKA_STORAGE_ERROR | CORRUPT_MESSAGE |
| --- | --- | --- | --- | --- |
| Java | up to 5 | splits R, sends its parts before the others | sends all again | sends all again |
| librdkafka | up to 5, with 5 records | gives R up, sends the others again | sends all again | the same |
| franz-go | 1, until it is stored | gives R and all behind it up | sends R again | as too large |
| kafka-python | 1 | splits R | sends R again | gives R up and sends nothing more: no test |
| aiokafka | 1 | gives R up | sends R again | gives R up |

Without the rule in `seqgate.seq_validator.refused` the batch behind R is stored first. Then Java sends R, or
its parts, until its delivery timeout ends. librdkafka takes the success of the later batch for one of R: R is
lost, and reported as stored. An answer of OUT_OF_ORDER_SEQUENCE_NUMBER would make it begin a new epoch, under which
it sends again what another partition has stored and not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaProducer
from kafka.errors import UnknownError

from seqgate.gateway.testing import Broker, Fault
from tests.support.kafka_tools import java_command
from tests.support.setup_peers import CACHE
from tests.support.testing_examples import EXAMPLES
from tests.support.wire import Wire
from tests.tiers import in_tiers

TOPIC: Final = "t"
PARTITIONS: Final = 6
RECORDS: Final = 2_000
LIMIT_S: Final = 90.0
LATE_MS: Final = 60_000
"""Time by which the answer to a refused batch is late. The test moves the broker's clock by it."""
LINGER_MS: Final = 15_000
"""Time for which clients wait for a full batch; a flush sends what there is."""
BACKOFF_MS: Final = 20
HELD_BACK_S: Final = 3.0
"""Time after which the test does not wait for a further request of a client."""
REQUEST_TIMEOUT_MS: Final = 15_000
DELIVERY_TIMEOUT_MS: Final = LINGER_MS + REQUEST_TIMEOUT_MS

BATCH_BYTES: Final = 2_000
LARGE, SMALL = 900, 50
"""Bytes of values. Two large ones fill a batch; a large one and four small ones fit into the topic's."""
BATCH_RECORDS: Final = 2
TOPIC_BYTES: Final = 1_500
"""The `max.message.bytes` of a topic for which two large values are too large."""
TOO_LARGE: Final = "MESSAGE_TOO_LARGE"


class Producer(Protocol):
    """An idempotent producer. Call `flush` from any thread."""

    outcomes: dict[bytes, str | None]
    """The records whose outcome is known after a flush: None for a stored one, otherwise the error."""

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        """Begin to send records."""

    def flush(self) -> None:
        """Return when the outcome of each record sent before is known."""

    def close(self) -> None: ...


class Process:
    """A producer in a program that reads lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self.outcomes: dict[bytes, str | None] = {}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _write(self, lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(lines)
        self._process.stdin.flush()

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        self._write("".join(f"{partition} {value.decode()}\n" for value in values))

    def flush(self) -> None:
        assert self._process.stdout is not None
        self._write("flush\n")
        for line in self._process.stdout:
            value, _, outcome = line.strip().partition(" ")
            if value == "flushed":
                return
            self.outcomes[value.encode()] = None if outcome == "stored" else outcome
        raise AssertionError("the program has ended")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def java(bootstrap: str) -> Process:
    settings = {
        "batch.size": BATCH_BYTES,
        "linger.ms": LINGER_MS,
        "retry.backoff.ms": BACKOFF_MS,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        "enable.metrics.push": "false",
    }
    command = java_command(str(Path(__file__).with_name("SendToPartitions.java")))
    return Process([*command, bootstrap, TOPIC, *(f"{name}={value}" for name, value in settings.items())])


def franz_go(bootstrap: str) -> Process:
    return Process([str(_go_program()), bootstrap, TOPIC, *map(str, (BATCH_BYTES, LINGER_MS, BACKOFF_MS))])


def _go_program() -> Path:
    """Return the program with franz-go, compiled once with the packages of the example in Go."""
    (example,) = (example for example in EXAMPLES if example.name == "go")
    source = Path(__file__).with_name("send_to_partitions.go")
    digest = sha256(source.read_bytes() + (example.folder / "go.sum").read_bytes()).hexdigest()[:16]
    program = CACHE / "go-programs" / f"{source.stem}-{digest}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as place:
            for file in (source, example.folder / "go.mod", example.folder / "go.sum"):
                (Path(place) / file.name).write_bytes(file.read_bytes())
            done = example.run(("go", "build", "-o", "built", "."), Path(place))
            assert done.returncode == 0, done.stdout
            (Path(place) / "built").replace(program)
    return program


class Librdkafka:
    """The producer of confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.outcomes: dict[bytes, str | None] = {}
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": BATCH_RECORDS,
                "linger.ms": LINGER_MS,
                "retry.backoff.ms": BACKOFF_MS,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "enable.metrics.push": False,
                "log_level": 0,
            }
        )

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        self.outcomes[value] = None if error is None else error.name()

    def flush(self) -> None:
        assert self._producer.flush(LIMIT_S) == 0

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


class KafkaPython:
    """The producer of kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self.outcomes: dict[bytes, str | None] = {}
        self._sent: list[tuple[bytes, Any]] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            retry_backoff_ms=BACKOFF_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        )

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        self._sent += [(value, self._producer.send(TOPIC, value, partition=partition)) for value in values]

    def flush(self) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        sent, self._sent = self._sent, []
        while not all(future.is_done for _, future in sent):
            assert time.monotonic() < deadline_s
            with contextlib.suppress(UnknownError):  # raised for a batch that the client splits meanwhile
                self._producer.flush(LIMIT_S)
        for value, future in sent:
            self.outcomes[value] = type(future.exception).__name__ if future.failed() else None

    def close(self) -> None:
        self._producer.close(1)


class Aiokafka:
    """The producer of aiokafka, in an event loop of its own thread."""

    def __init__(self, bootstrap: str) -> None:
        self.outcomes: dict[bytes, str | None] = {}
        self._bootstrap = bootstrap
        self._sent: list[tuple[bytes, asyncio.Future[Any]]] = []
        self._in_order = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._producer: Any = self._call(self._start()).result(LIMIT_S)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            retry_backoff_ms=BACKOFF_MS,
        )
        await producer.start()
        return producer

    def send(self, partition: int, values: Sequence[bytes]) -> None:
        self._call(self._send(partition, values))

    async def _send(self, partition: int, values: Sequence[bytes]) -> None:
        async with self._in_order:
            for value in values:
                sent = await self._producer.send(TOPIC, value, partition=partition)
                self._sent.append((value, sent))

    def flush(self) -> None:
        self._call(self._flush()).result(LIMIT_S)

    async def _flush(self) -> None:
        async with self._in_order:  # behind the sends that wait for room
            sent, self._sent = self._sent, []
        found = await asyncio.gather(*(future for _, future in sent), return_exceptions=True)
        for (value, _), each in zip(sent, found, strict=True):
            self.outcomes[value] = type(each).__name__ if isinstance(each, BaseException) else None

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._call(self._producer.stop()).result(1)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


CLIENTS: Final[dict[str, Callable[[str], Producer]]] = {
    "java": java,
    "librdkafka": Librdkafka,
    "franz-go": franz_go,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
IN_FLIGHT: Final = {"java": 4, "librdkafka": 4, "franz-go": 1, "kafka-python": 1, "aiokafka": 1}
"""The batches of a partition that a client sends before the first one is answered. The fifth request that
Java and librdkafka may have in flight is left for metadata.
"""
SPLITTING: Final = ("java", "kafka-python")
STORED: Final = {
    *((client, "KAFKA_STORAGE_ERROR") for client in CLIENTS),
    *((client, "CORRUPT_MESSAGE") for client in ("java", "librdkafka")),
    *((client, TOO_LARGE) for client in SPLITTING),
}
"""The clients that have every record stored, and the refusal."""
GIVEN_UP: Final = {
    *((client, TOO_LARGE) for client in ("librdkafka", "franz-go", "aiokafka")),
    *((client, "CORRUPT_MESSAGE") for client in ("franz-go", "aiokafka")),
}
"""The clients that give the refused batch up and send on, and the refusal."""


class Sender:
    """Sends numbered records with one producer, and knows those that the producer has given up."""

    def __init__(self, producer: Producer) -> None:
        self.sent: list[bytes] = []
        self._producer = producer
        self._threads = ThreadPoolExecutor()

    def send(self, partition: int, count: int, size: int) -> list[bytes]:
        """Begin to send records; return them."""
        first = len(self.sent)
        values = [(b"%d" % number).ljust(size, b".") for number in range(first, first + count)]
        self.sent += values
        self._producer.send(partition, values)
        return values

    def begin_flush(self) -> Future[None]:
        """Let the producer send what it has; wait for the outcomes with the result."""
        return self._threads.submit(self._producer.flush)

    @property
    def given_up(self) -> set[bytes]:
        """The records that the producer has reported as not stored, after a flush."""
        return {value for value in self.sent if self._producer.outcomes[value] is not None}

    def close(self) -> None:
        self._producer.close()
        self._threads.shutdown()


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    return shared


CASES: Final = sorted(STORED | GIVEN_UP)


@pytest.mark.parametrize(
    ("client", "code"), in_tiers(CASES, nightly=[case for case in CASES if case[0] == "franz-go"])
)
def test_each_record_is_stored_once_and_in_order(broker: Broker, client: str, code: str) -> None:
    limit = {"max.message.bytes": str(TOPIC_BYTES)} if code == TOO_LARGE else {}
    broker.create_topic(TOPIC, PARTITIONS, limit)
    refused: set[bytes] = set()
    in_flight: list[int] = []
    with contextlib.closing(Sender(CLIENTS[client](broker.bootstrap))) as sender:
        for partition in range(PARTITIONS):
            first, requests = _send_behind_a_refusal(broker, sender, partition, client, code)
            refused.update(first)
            in_flight.append(requests)
            if (client, code) in STORED:
                assert not sender.given_up
            elif client == "franz-go":
                assert sender.given_up >= refused
            else:
                assert sender.given_up == refused
        given_up = sender.given_up
        if code == TOO_LARGE and client not in SPLITTING:
            _allow_larger_batches(broker)
        while len(sender.sent) < RECORDS:
            sender.send(len(sender.sent) % PARTITIONS, min(7, RECORDS - len(sender.sent)), SMALL)
        sender.begin_flush().result(LIMIT_S)
        assert sender.given_up == given_up
    assert max(in_flight) >= IN_FLIGHT[client]
    if (client, code) in STORED:
        assert _producer_epochs(broker) == {0}, "records of a new epoch may be stored twice"
    broker.assert_exactly_once(TOPIC, [value for value in sender.sent if value not in given_up])


def _send_behind_a_refusal(
    broker: Broker, sender: Sender, partition: int, client: str, code: str
) -> tuple[list[bytes], int]:
    """Let the first batch of a partition be refused, and hold its answer back while the client sends others.

    Return the records of the first batch, and the number of requests that the client sent before its answer.
    """
    with broker.faults.watch(api="Produce", topic=TOPIC) as watched, _late_refusal(broker, code) as late:
        first = sender.send(partition, BATCH_RECORDS, LARGE)
        sender.send(partition, 1, LARGE)  # does not fit into the first batch, which is full now
        late.wait_until_struck()
        flushed = sender.begin_flush()
        # A request for metadata, which follows some refusals, holds those behind it back until the answer.
        with contextlib.suppress(TimeoutError):
            for number in range(1, 5):
                watched.wait_until_struck(min(1 + number, IN_FLIGHT[client]), HELD_BACK_S)
                sender.send(partition, 1, SMALL)
        in_flight = watched.struck
        broker.clock.advance(milliseconds=LATE_MS)
        flushed.result(LIMIT_S)
        sender.begin_flush().result(LIMIT_S)
    return first, in_flight


def _late_refusal(broker: Broker, code: str) -> Fault:
    """Let the answer to the next batch be late, and refuse the batch unless it is too large anyway."""
    if code == TOO_LARGE:
        return broker.faults.delay(LATE_MS, api="Produce", topic=TOPIC)
    return broker.faults.error(code, api="Produce", topic=TOPIC, milliseconds=LATE_MS)


def _producer_epochs(broker: Broker) -> set[int]:
    asked = [{"name": TOPIC, "partition_indexes": list(range(PARTITIONS))}]
    with Wire(broker.bootstrap) as wire:
        (found,) = wire.call("describe_producers", 0, topics=asked).fields["topics"]
    return {
        producer["producer_epoch"]
        for partition in found["partitions"]
        for producer in partition["active_producers"]
    }


def _allow_larger_batches(broker: Broker) -> None:
    change = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([topic])[topic].result(LIMIT_S)
