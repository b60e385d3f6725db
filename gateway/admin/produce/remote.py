"""Writes records to a topic of a cluster. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from seqgate.gateway.admin.produce.command import ProducedPartition, ProducedRecord, ProducedReport
from seqgate.gateway.admin.remote.cluster import Cluster, NoTopic, give_up, opened, sentence
from seqgate.gateway.admin.request import ControlError

LARGEST_REQUEST_BYTES: Final = 100 << 20
"""The producer's own limit, high enough that the cluster decides (message.max.bytes)."""
DELIVERY_TIMEOUT_S: Final = 60
"""Time until a record that is not acknowledged ends the command, unless `--timeout` says another."""
RECORDS_IN_FLIGHT: Final = 10_000
BYTES_IN_FLIGHT: Final = 32 << 20
"""Records, and bytes of them, that wait for acknowledgements; the command reads no input meanwhile."""
LINGER_MS: Final = 5


def produce(
    cluster: Cluster, topic: str, records: Iterable[ProducedRecord], *, compression: str | None, at_once: bool
) -> ProducedReport:
    """Send records in order, each stored exactly once, and wait for the answers; `at_once`: for each answer
    before the next record is sent. Raises Interrupted on Ctrl-C.
    """
    try:
        (found,) = cluster.topics([topic])
    except NoTopic as error:
        raise ControlError(f"{error}; --create creates it") from None
    settings = cluster.client_settings()
    timeout_ms = int((cluster.timeout_s or DELIVERY_TIMEOUT_S) * 1000)
    settings["request_timeout_ms"] = min(settings["request_timeout_ms"], timeout_ms - LINGER_MS)
    producer = opened(
        KafkaProducer,
        **settings,
        acks="all",
        enable_idempotence=True,
        compression_type=compression,
        linger_ms=0 if at_once else LINGER_MS,
        max_request_size=LARGEST_REQUEST_BYTES,
        delivery_timeout_ms=timeout_ms,
        max_block_ms=timeout_ms,
        allow_auto_create_topics=False,
    )
    sending = _Sending(cluster, producer, topic, len(found["partitions"]), at_once=at_once)
    try:
        _send_all(sending, records)
    except KeyboardInterrupt:
        sending.settle(RECORDS_IN_FLIGHT, BYTES_IN_FLIGHT)
        raise Interrupted(sending.report(), len(sending.waiting)) from None
    finally:
        # After an error nothing more is sent.
        if sending.waiting:
            give_up(producer)
        else:
            producer.close()
    return sending.report()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended the command: what is stored, and how many records were sent and not acknowledged."""

    def __init__(self, report: ProducedReport, unknown: int) -> None:
        super().__init__()
        self.report = report
        self.unknown = unknown


def _send_all(sending: _Sending, records: Iterable[ProducedRecord]) -> None:
    given = enumerate(records, start=1)
    while True:
        sending.is_reading = True
        try:
            number, record = next(given)
        except StopIteration:
            sending.settle(0, 0)
            return
        except ControlError:
            # The input is wrong here, and the records before are stored all the same.
            sending.settle(0, 0)
            raise
        finally:
            sending.is_reading = False
        sending.send(number, record)


class _Sending:
    def __init__(
        self, cluster: Cluster, producer: Any, topic: str, partitions: int, *, at_once: bool
    ) -> None:
        self._watch = cluster.watch
        self._timeout_s = cluster.timeout_s or DELIVERY_TIMEOUT_S
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._at_once = at_once
        self.is_reading = False
        """Whether the command waits for its input, and so does not see that a record failed."""
        self._is_told = False
        self._bytes = 0
        self._stored: dict[int, ProducedPartition] = {}
        self.waiting: deque[tuple[int, int, Any]] = deque()

    def send(self, number: int, record: ProducedRecord) -> None:
        """Send the record of line `number`; first wait while too many records or bytes are unacknowledged."""
        if record.partition is not None and not 0 <= record.partition < self._partitions:
            self.settle(0, 0)
            raise self._failed(
                f"record {number} is not stored: topic {self._topic} has no partition {record.partition}, "
                f"only 0 to {self._partitions - 1}"
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
            raise self._failed(self._problem(number, error)) from error
        future.add_errback(partial(self._tell, number))
        self.waiting.append((number, size, future))
        self._bytes += size
        if self._at_once:
            self.settle(0, 0)

    def settle(self, records: int, size_bytes: int) -> None:
        """Take the answers that have come, and wait until at most the given numbers of records and bytes are
        unacknowledged.
        """
        while self.waiting:
            number, size, future = self.waiting[0]
            if len(self.waiting) <= records and self._bytes <= size_bytes and not future.is_done:
                return
            try:
                stored = future.get(timeout=self._timeout_s)
            except KafkaError as error:
                raise self._failed(self._problem(number, error)) from error
            self.waiting.popleft()
            self._bytes -= size
            self._fold_in(stored.partition, stored.offset)

    def _fold_in(self, partition: int, offset: int) -> None:
        known = self._stored.get(partition)
        first, count = (offset, 0) if known is None else (known.first_offset, known.records)
        self._stored[partition] = ProducedPartition(partition, first, offset, count + 1)

    def _tell(self, number: int, error: Exception) -> None:
        """Report the first record that fails while the command waits for its input."""
        if self.is_reading and not self._is_told:
            self._is_told = True
            self._watch.say(f"{self._problem(number, error)}; the next line ends the command")

    def _problem(self, number: int, error: Exception) -> str:
        if isinstance(error, KafkaTimeoutError):
            reason = self._watch.trouble or sentence(error)
            return f"record {number} is not acknowledged within {self._timeout_s:g} s: {reason}"
        return f"record {number} is not stored: {sentence(error)}"

    def _failed(self, problem: str) -> ControlError:
        stored = sum(row.records for row in self._stored.values())
        verb = "is" if stored == 1 else "are"
        return ControlError(f"{problem}; {stored:,} of the records before it {verb} stored")

    def report(self) -> ProducedReport:
        """Return how many records are stored, and where."""
        rows = [self._stored[partition] for partition in sorted(self._stored)]
        return ProducedReport(self._topic, sum(row.records for row in rows), rows)
