"""A group member in a process of its own, so that a test can kill it: `python -m tests.compat.groups.member
LIBRARY JSON`.

The process reports events as JSON lines on stdout, and closes its consumer when stdin ends. It reports
records before it commits their offsets, and offsets after the gateway has acknowledged the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.support.child_process import follow_stdin, leaving
from tests.support.group_members import know_topic

HEARTBEAT_INTERVAL_MS = 300
POLL_MS = 100


def tell(event: str, content: Any = None) -> None:
    sys.stdout.write(json.dumps([event, content]) + "\n")
    sys.stdout.flush()


def tell_partitions(event: str, partitions: Iterable[Any]) -> None:
    tell(event, sorted(partition.partition for partition in partitions))


def tell_records(polled: Mapping[Any, Sequence[Any]]) -> dict[Any, int]:
    """Print the polled records for the test that started this process. Return the offsets to commit."""
    tell("records", [(part.partition, record.offset) for part, found in polled.items() for record in found])
    return {part: found[-1].offset + 1 for part, found in polled.items()}


@contextlib.contextmanager
def telling_commit(offsets: Mapping[Any, int], refusal: type[Exception]) -> Iterator[None]:
    """Print the result of the commit in this block for the test that started this process."""
    try:
        yield
    except refusal as error:
        tell("not committed", repr(error))
    else:
        tell("committed", [(part.partition, offset) for part, offset in offsets.items()])


def python_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that kafka-python and aiokafka have under the same names."""
    return {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "client_id": settings["name"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": settings["session_timeout_ms"],
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
    }


def kafka_python(settings: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

    consumer = KafkaConsumer(
        **python_settings(settings), partition_assignment_strategy=[RangePartitionAssignor]
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    know_topic(consumer, settings["topic"])
    while not leaving.is_set():
        polled = consumer.poll(timeout_ms=POLL_MS)
        if not polled:
            continue
        offsets = tell_records(polled)
        with telling_commit(offsets, KafkaError):
            consumer.commit({part: OffsetAndMetadata(offset, "", -1) for part, offset in offsets.items()})
    consumer.close()


def aiokafka(settings: dict[str, Any]) -> None:
    asyncio.run(_aiokafka(settings))


async def _aiokafka(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

    consumer = AIOKafkaConsumer(
        **python_settings(settings), partition_assignment_strategy=[RangePartitionAssignor]
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    await consumer.start()
    while not leaving.is_set():
        polled = await consumer.getmany(timeout_ms=POLL_MS)
        if not polled:
            continue
        offsets = tell_records(polled)
        with telling_commit(offsets, KafkaError):
            await consumer.commit(offsets)
    await consumer.stop()


class Librdkafka:
    """confluent-kafka; it commits the reported records before it gives up a partition."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from confluent_kafka import Consumer

        given = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "client.id": settings["name"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if settings.get("protocol") == "consumer":
            given["group.protocol"] = "consumer"
        else:
            given["session.timeout.ms"] = settings["session_timeout_ms"]
            given["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
            given["partition.assignment.strategy"] = settings.get("assignor", "range")
        if "instance_id" in settings:
            given["group.instance.id"] = settings["instance_id"]
        self.topic = settings["topic"]
        self.pending: dict[int, int] = {}
        self.consumer = Consumer(given)
        self.consumer.subscribe(
            [settings.get("regex", self.topic)],
            on_assign=self.assigned,
            on_revoke=self.revoked,
            on_lost=self.lost,
        )

    def assigned(self, _: Any, partitions: Any) -> None:
        tell_partitions("assigned", partitions)

    def revoked(self, _: Any, partitions: Any) -> None:
        self.commit()
        tell_partitions("revoked", partitions)

    def lost(self, _: Any, partitions: Any) -> None:
        self.pending.clear()
        tell_partitions("lost", partitions)

    def commit(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        offsets, self.pending = self.pending, {}
        if not offsets:
            return
        places = {TopicPartition(self.topic, part, offset): offset for part, offset in offsets.items()}
        with telling_commit(places, KafkaException):
            self.consumer.commit(offsets=list(places), asynchronous=False)

    def run(self) -> None:
        while not leaving.is_set():
            message = self.consumer.poll(POLL_MS / 1000)
            while message is not None:
                if message.error() is None:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    tell("records", [(partition, offset)])
                    self.pending[partition] = offset + 1
                else:
                    tell("error", str(message.error()))
                message = self.consumer.poll(0)
            self.commit()
        self.consumer.close()


def confluent_kafka(settings: dict[str, Any]) -> None:
    Librdkafka(settings).run()


LIBRARIES = {"kafka-python": kafka_python, "aiokafka": aiokafka, "confluent-kafka": confluent_kafka}


if __name__ == "__main__":
    follow_stdin()
    LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]))
    tell("closed")
