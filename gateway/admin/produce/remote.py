"""Writes records to a topic of a cluster. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaError

from seqgate.gateway.admin.produce.command import ProducedPartition, ProducedRecord, ProducedReport
from seqgate.gateway.admin.remote.cluster import Cluster, give_up, opened, sentence
from seqgate.gateway.admin.request import ControlError

LARGEST_REQUEST_BYTES: Final = 100 << 20
"""The producer's own limit, high enough that the cluster decides (message.max.bytes)."""
DELIVERY_TIMEOUT_MS: Final = 60_000
RECORDS_IN_FLIGHT: Final = 10_000
BYTES_IN_FLIGHT: Final = 32 << 20
"""Records, and bytes of them, that wait for acknowledgements; the command reads no input meanwhile."""
LINGER_MS: Final = 5


def produce(
    cluster: Cluster, topic: str, records: Iterable[ProducedRecord], *, compression: str | None, at_once: bool
) -> ProducedReport:
    """Send records in order, each stored exactly once, and wait for the answers; `at_once`: no batching."""
    (found,) = cluster.topics([topic])
    producer = opened(
        KafkaProducer,
        **cluster.client_settings(),
        acks="all",
        enable_idempotence=True,
        compression_type=compression,
        linger_ms=0 if at_once else LINGER_MS,
        max_request_size=LARGEST_REQUEST_BYTES,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        allow_auto_create_topics=False,
    )
    sending = _Sending(producer, topic, len(found["partitions"]))
    try:
        _send_all(sending, records)
    finally:
        # After an error nothing more is sent.
        if sending.waiting:
            give_up(producer)
        else:
            producer.close()
    return sending.report()


def _send_all(sending: _Sending, records: Iterable[ProducedRecord]) -> None:
    given = enumerate(records, start=1)
    while True:
        try:
            number, record = next(given)
        except StopIteration:
            sending.settle(0, 0)
            return
        except ControlError:
            # The input is wrong here, and the records before are stored all the same.
            sending.settle(0, 0)
            raise
        sending.send(number, record)


class _Sending:
    def __init__(self, producer: Any, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._bytes = 0
        self._stored: dict[int, ProducedPartition] = {}
        self.waiting: deque[tuple[int, int, Any]] = deque()

    def send(self, number: int, record: ProducedRecord) -> None:
        """Send the record of line `number`; first wait while too many records or bytes are unacknowledged."""
        if record.partition is not None and not 0 <= record.partition < self._partitions:
            self.settle(0, 0)
            raise self._failed(
                number,
                f"topic {self._topic} has no partition {record.partition}, only 0 to {self._partitions - 1}",
            )
        size = len(record.key or b"") + len(record.value or b"")
        self.settle(RECORDS_IN_FLIGHT, BYTES_IN_FLIGHT)
        try:
            future = self._producer.send(
                self._topic,
                value=record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        except (KafkaError, ValueError, AssertionError, TypeError) as error:
            self.settle(0, 0)
            raise self._failed(number, sentence(error)) from error
        self.waiting.append((number, size, future))
        self._bytes += size

    def settle(self, records: int, size_bytes: int) -> None:
        """Wait until at most the given numbers of records and bytes are unacknowledged."""
        while self.waiting and (len(self.waiting) > records or self._bytes > size_bytes):
            number, size, future = self.waiting[0]
            try:
                stored = future.get(timeout=DELIVERY_TIMEOUT_MS / 1000)
            except KafkaError as error:
                raise self._failed(number, sentence(error)) from error
            self.waiting.popleft()
            self._bytes -= size
            self._fold_in(stored.partition, stored.offset)

    def _fold_in(self, partition: int, offset: int) -> None:
        known = self._stored.get(partition)
        first, count = (offset, 0) if known is None else (known.first_offset, known.records)
        self._stored[partition] = ProducedPartition(partition, first, offset, count + 1)

    def _failed(self, number: int, reason: str) -> ControlError:
        before = sum(row.records for row in self._stored.values())
        stored = f"{before:,} of the records before it {'is' if before == 1 else 'are'}"
        return ControlError(f"record {number} is not stored: {reason}; {stored}")

    def report(self) -> ProducedReport:
        """Return how many records are stored, and where."""
        rows = [self._stored[partition] for partition in sorted(self._stored)]
        return ProducedReport(self._topic, sum(row.records for row in rows), rows)
