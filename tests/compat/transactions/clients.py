"""Transactional producers of four libraries behind one interface, and readers of their records."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AiokafkaPlace
from aiokafka.errors import KafkaError as AiokafkaError  # type: ignore[import-untyped]
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPlace
from kafka.errors import KafkaError as KafkaPythonError

from tests.support.kafka_tools import java_command
from tests.support.setup_peers import spark_connector_libs

SOURCE = Path(__file__).with_name("TransactionalClient.java")
TIMEOUT_S = 90.0
QUIET = {"log_level": 0}


class Failed(Exception):
    """An error of the library; its message is the error's name."""


class TransactionalProducer(Protocol):
    """The interface of all producers. Every method raises Failed."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None:
        """Send one record, and wait until it is acknowledged."""

    def post(self, topic: str, partition: int, value: str) -> None:
        """Send one record; the next commit waits for its acknowledgement."""

    def hold_offset(self, group: str, topic: str, offset: int) -> None:
        """Add a group's offset of the topic's first partition to the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Jvm:
    """Apache Kafka's own producer, with transactions version 2."""

    first_jars: Path | None = None

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        command = java_command(str(SOURCE), first_jars=self.first_jars)
        command += [bootstrap, transactional_id, str(timeout_ms)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline().strip()
        if told != "ok":
            raise Failed(told or "the process ended")

    def init(self) -> None:
        self._tell("init")

    def begin(self) -> None:
        self._tell("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self._tell("send", topic, partition, value)

    def post(self, topic: str, partition: int, value: str) -> None:
        self._tell("post", topic, partition, value)

    def hold_offset(self, group: str, topic: str, offset: int) -> None:
        self._tell("hold", group, topic, offset)

    def commit(self) -> None:
        self._tell("commit")

    def abort(self) -> None:
        self._tell("abort")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class OldJvm(Jvm):
    """The JVM producer that comes with Spark's connector, with transactions version 1."""

    first_jars = spark_connector_libs()


class Confluent:
    """The producer of librdkafka, with transactions version 1."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                **QUIET,
            }
        )
        self._refused: list[KafkaError] = []
        self._members: dict[str, object] = {}

    def _call(self, work: Callable[..., Any], *arguments: object, **named: object) -> None:
        try:
            work(*arguments, **named)
        except KafkaException as error:
            raise Failed(error.args[0].name()) from error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._refused.append(error)

    def init(self) -> None:
        self._call(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        self._call(
            self._producer.produce, topic, value.encode(), partition=partition, on_delivery=self._delivered
        )
        self._producer.flush(TIMEOUT_S)
        if self._refused:
            raise Failed(self._refused.pop().name())

    def post(self, topic: str, partition: int, value: str) -> None:
        self._call(self._producer.produce, topic, value.encode(), partition=partition)

    def hold_offset(self, group: str, topic: str, offset: int) -> None:
        if group not in self._members:
            consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **QUIET})
            self._members[group] = consumer.consumer_group_metadata()
            consumer.close()
        places = [TopicPartition(topic, 0, offset)]
        self._call(self._producer.send_offsets_to_transaction, places, self._members[group], TIMEOUT_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()
        with contextlib.suppress(KafkaException):  # the error of a fenced producer
            self._producer.flush(0)


class KafkaPython:
    """The producer of kafka-python, with transactions version 1."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(TIMEOUT_S * 1000),
        )

    def _call(self, work: Callable[..., Any], *arguments: object, **named: object) -> Any:
        try:
            return work(*arguments, **named)
        except KafkaPythonError as error:
            raise Failed(type(error).__name__) from error

    def init(self) -> None:
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        sent = self._call(self._producer.send, topic, value.encode(), partition=partition)
        self._call(sent.get, TIMEOUT_S)

    def post(self, topic: str, partition: int, value: str) -> None:
        self._call(self._producer.send, topic, value.encode(), partition=partition)

    def hold_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {KafkaPythonPlace(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._call(self._producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        with contextlib.suppress(KafkaPythonError, AssertionError):
            self._producer.close(timeout=1)


class Aiokafka:
    """The producer of aiokafka, with transactions version 1, in an event loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()

        async def make() -> Any:
            return AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )

        self._producer = self._runner.run(make())

    def _call(self, work: Any) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(work, TIMEOUT_S)

        try:
            self._runner.run(bounded())
        except (AiokafkaError, TimeoutError) as error:
            raise Failed(type(error).__name__) from error

    def init(self) -> None:
        self._call(self._producer.start())

    def begin(self) -> None:
        self._call(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._call(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def post(self, topic: str, partition: int, value: str) -> None:
        self._call(self._producer.send(topic, value.encode(), partition=partition))

    def hold_offset(self, group: str, topic: str, offset: int) -> None:
        self._call(self._producer.send_offsets_to_transaction({AiokafkaPlace(topic, 0): offset}, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(Failed):
            self._call(self._producer.stop())
        self._runner.close()


LIBRARIES: tuple[type[Any], ...] = (Jvm, OldJvm, Confluent, KafkaPython, Aiokafka)


@contextlib.contextmanager
def started(
    library: type[Any], bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    """Return a producer of a library, before it has begun a transaction."""
    producer = library(bootstrap, transactional_id, timeout_ms)
    try:
        yield producer
    finally:
        producer.close()


def values(bootstrap: str, topic: str, *, isolation: str, partitions: int = 1) -> list[str]:
    """Return all values of a topic in partition order, up to the end that a reader of this isolation level
    sees.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody's",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: list[str] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing more of {topic} after {found}"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            found.append((message.value() or b"").decode())
    consumer.close()
    return found
