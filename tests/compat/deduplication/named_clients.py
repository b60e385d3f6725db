"""Clients of four libraries behind one interface: they send records with a producer name and ask for the
name's last sequence id."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaError as AiokafkaError  # type: ignore[import-untyped]
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError as KafkaPythonError  # type: ignore[import-untyped]

from tests.support.kafka_tools import java_command

SOURCE = Path(__file__).with_name("NamedClient.java")
TIMEOUT_S = 60.0
Headers = list[tuple[str, bytes]]


class Refused(Exception):
    """An error of the library; its message is the error's name."""


class NamedClient(Protocol):
    """The interface of all four clients."""

    def send(
        self, topic: str, name: str, sequence_id: int, epoch: int = -1, *, idempotent: bool = True
    ) -> None:
        """Send one record to partition 0 with acks=all, and wait until it is acknowledged. Raises Refused."""

    def committed(self, name: str, topic: str) -> tuple[int, dict[str, Any] | None] | None:
        """Return the committed offset of the name's group in partition 0, and the offset's metadata if the
        library returns it."""

    def close(self) -> None: ...


def group_of(name: str) -> str:
    return f"seqgate-name:{name}"


def headers_of(name: str, sequence_id: int, epoch: int) -> Headers:
    headers = [("dedup.name", name.encode()), ("dedup.sequence", str(sequence_id).encode())]
    return headers if epoch < 0 else [*headers, ("dedup.epoch", str(epoch).encode())]


class Jvm:
    """The client of Apache Kafka's own JVM libraries."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [*java_command(str(SOURCE)), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def _tell(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def send(
        self, topic: str, name: str, sequence_id: int, epoch: int = -1, *, idempotent: bool = True
    ) -> None:
        told = self._tell("send", str(idempotent).lower(), topic, name, sequence_id, epoch)
        if told != "ok":
            raise Refused(told or "the process ended")

    def committed(self, name: str, topic: str) -> tuple[int, dict[str, Any]] | None:
        told = self._tell("committed", group_of(name), topic)
        if told == "none":
            return None
        offset, _, metadata = told.partition(" ")
        return int(offset), json.loads(metadata)

    def listed(self, name: str) -> str:
        """Return the answer of Admin.listConsumerGroupOffsets for all partitions."""
        return self._tell("listed", group_of(name))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Confluent:
    """The client of librdkafka, through confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}

    def send(
        self, topic: str, name: str, sequence_id: int, epoch: int = -1, *, idempotent: bool = True
    ) -> None:
        producer = ConfluentProducer({**self._settings, "enable.idempotence": idempotent, "acks": "all"})
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            del message
            if error is not None:
                refused.append(error)

        headers: Any = headers_of(name, sequence_id, epoch)
        producer.produce(
            topic, str(sequence_id).encode(), partition=0, headers=headers, on_delivery=delivered
        )
        assert producer.flush(TIMEOUT_S) == 0
        if refused:
            raise Refused(refused[0].name())

    def committed(self, name: str, topic: str) -> tuple[int, None] | None:
        """Return only the offset, without metadata.

        confluent-kafka expects a zero byte behind the metadata, which librdkafka does not write. So it
        returns bytes of foreign memory, or `found.metadata` raises UnicodeDecodeError.
        """
        consumer = Consumer({**self._settings, "group.id": group_of(name), "enable.auto.commit": False})
        (found,) = consumer.committed([ConfluentPartition(topic, 0)], timeout=TIMEOUT_S)
        consumer.close()
        assert found.error is None, found.error
        return None if found.offset == OFFSET_INVALID else (found.offset, None)

    def close(self) -> None:
        pass


class KafkaPython:
    """The client of kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def send(
        self, topic: str, name: str, sequence_id: int, epoch: int = -1, *, idempotent: bool = True
    ) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=idempotent, acks="all")
        try:
            producer.send(
                topic, str(sequence_id).encode(), partition=0, headers=headers_of(name, sequence_id, epoch)
            ).get(TIMEOUT_S)
        except KafkaPythonError as error:
            raise Refused(type(error).__name__) from error
        finally:
            producer.close(1)

    def committed(self, name: str, topic: str) -> tuple[int, dict[str, Any]] | None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=group_of(name), enable_auto_commit=False
        )
        found = consumer.committed(TopicPartition(topic, 0), metadata=True)
        consumer.close()
        return None if found is None else (found.offset, json.loads(found.metadata))

    def close(self) -> None:
        pass


class Aiokafka:
    """The client of aiokafka."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def send(
        self, topic: str, name: str, sequence_id: int, epoch: int = -1, *, idempotent: bool = True
    ) -> None:
        asyncio.run(
            self._send(topic, str(sequence_id).encode(), headers_of(name, sequence_id, epoch), idempotent)
        )

    async def _send(self, topic: str, value: bytes, headers: Headers, idempotent: bool) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=idempotent, acks="all"
        ) as producer:
            sending = producer.send_and_wait(topic, value, partition=0, headers=headers)
            try:
                await asyncio.wait_for(sending, TIMEOUT_S)
            except AiokafkaError as error:
                raise Refused(type(error).__name__) from error

    def committed(self, name: str, topic: str) -> tuple[int, dict[str, Any]] | None:
        return asyncio.run(self._committed(name, topic))

    async def _committed(self, name: str, topic: str) -> tuple[int, dict[str, Any]] | None:
        async with AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, group_id=group_of(name), enable_auto_commit=False
        ) as consumer:
            # `committed` drops the metadata, so take the answer from inside the library
            found = await consumer._coordinator.fetch_committed_offsets([AiokafkaPartition(topic, 0)])
            told = await consumer.committed(AiokafkaPartition(topic, 0))
        if not found:
            assert told is None
            return None
        (committed,) = found.values()
        assert committed.offset == told
        return told, json.loads(committed.metadata)

    def close(self) -> None:
        pass


CLIENTS: dict[str, Callable[[str], NamedClient]] = {
    "jvm": Jvm,
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
