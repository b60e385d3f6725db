"""Sends batches for idempotent and transactional producers in order, and repeats them until the answer is
final.

A model of Apache Kafka's Sender and RecordAccumulator: up to five requests in flight, one batch per partition
and request, a retry is the same batch with the same sequence, and only the first batch of a partition is
retried. It is more careful in one respect: after an epoch bump Kafka resends every unanswered batch, while
this sender gives up those that may be stored. So a record that is found twice is never the producer's doing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.connection import Connection, Link
from tests.simulation.clients.error_codes import FENCED, MOVED, SEQUENCE_ERRORS, UNSTORED
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import Acknowledged, GivenUp, RecordName, Refused, Sent, TopicPartition
from tests.support.wire import Plain

MAX_IN_FLIGHT = 5
REMEMBERED_BATCHES = 5
"""The batches of a producer in a partition by which a broker recognizes repeats."""
RETRY_BACKOFF_S = 0.1
RETRY_BACKOFF_MAX_S = 1.0
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4")
ZSTD_SINCE, TOPIC_IDS_SINCE = 7, 13
PRODUCE_VERSIONS = (3, 5, 7, 8, 9, 10, 11, 12, 13)
KEYS = tuple(f"key-{number}".encode() for number in range(8))

ErrorJudge = Callable[[PartitionQueue, ProducerBatch, ErrorCode], bool]
"""Decides whether the batch must be sent again."""


class BatchSender:
    """Sends batches. `woken` is set whenever the next step may be possible."""

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        judge: ErrorJudge,
        transactional_id: str | None = None,
        may_be_fenced: Callable[[], bool] = lambda: False,
        produce_versions: tuple[int, ...] = PRODUCE_VERSIONS,
    ) -> None:
        self._surroundings = surroundings
        self._judge = judge
        self._may_be_fenced = may_be_fenced
        self._random = random
        self._transactional_id = transactional_id
        self.name = name
        self.produce_version = random.choice(produce_versions)
        zstd = surroundings.zstd and self.produce_version >= ZSTD_SINCE
        self._codecs = (*CODECS, "zstd") if zstd else CODECS
        self.delivery_timeout_s = random.choice((1.0, 5.0, 30.0, 120.0))
        self.request_timeout_s = min(random.choice((0.3, 1.0, 3.0, 10.0)), self.delivery_timeout_s)
        self.producer_id = -1
        self.producer_epoch = -1
        self.incarnation = 0
        self.transaction = 0
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: Counter[int] = Counter()
        """The number of requests in flight to each gateway."""
        self.max_in_flight = MAX_IN_FLIGHT
        self.woken = asyncio.Event()

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        return self.queues.setdefault(partition, PartitionQueue(partition))

    @property
    def is_settled(self) -> bool:
        return all(queue.is_settled for queue in self.queues.values())

    def enqueue(self, partition: TopicPartition, record_count: int) -> ProducerBatch:
        """Add a new batch to its partition's queue."""
        batch = ProducerBatch(
            partition,
            record_count,
            self._surroundings.now(),
            self._random.choice(self._codecs),
            self._surroundings.wall_ms(),
            tuple(self._random.choice(KEYS) for _ in range(record_count)),
            transactional=self._transactional_id is not None,
            padding_bytes=self._random.choice(self._surroundings.padding_bytes) // record_count,
        )
        self.queue(partition).waiting.append(batch)
        self.woken.set()
        return batch

    def become(self, producer_id: int, producer_epoch: int) -> None:
        """Take a new producer id: batches of the old id are never sent again, and record numbers restart at
        0.
        """
        self.give_up_all("NEW_PRODUCER_ID")
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.incarnation += 1
        for queue in self.queues.values():
            queue.next_number = 0
            queue.start_at_beginning(producer_id, producer_epoch)

    def give_up_all(self, error: str) -> None:
        """Give up every batch that was ever sent; unsent batches stay in the queues."""
        for queue in self.queues.values():
            for batch in list(queue.in_flight):
                self.give_up(queue, batch, error)

    def give_up(self, queue: PartitionQueue, batch: ProducerBatch, error: str) -> None:
        queue.take_out(batch)
        self._note_given_up(batch, error)

    def _note_given_up(self, batch: ProducerBatch, error: str) -> None:
        for name in batch.names:
            self._surroundings.history.add(GivenUp(self._surroundings.at_ms(), name, batch.partition, error))

    def drop_unsent(self) -> None:
        """Drop the batches that were never sent (RecordAccumulator.abortUndrainedBatches)."""
        for queue in self.queues.values():
            for batch in list(queue.waiting):
                if not batch.has_sequence:
                    queue.take_out(batch)

    def expire(self) -> bool:
        """Fail batches older than delivery.timeout.ms, and return whether there were any; a gap in the
        sequence must be resolved.
        """
        is_any = False
        oldest = self._surroundings.now() - self.delivery_timeout_s
        for queue in self.queues.values():
            expired = [batch for batch in (*queue.in_flight, *queue.waiting) if batch.created_at < oldest]
            for batch in expired:
                if batch.done:
                    continue
                if batch.has_sequence:
                    queue.mark_unresolved(batch)
                self.give_up(queue, batch, "DELIVERY_TIMEOUT")
                is_any = True
        return is_any

    def send_ready(self, link: Link) -> None:
        """Send as many requests as may be in flight to each gateway, each with at most one batch of every
        partition.
        """
        for connection, places in link.lanes(self.queues, self.woken.set):
            self._send_over(link, connection, places)

    def _send_over(self, link: Link, connection: Connection, places: Collection[TopicPartition]) -> None:
        while not connection.closed and self._in_flight[connection.node_id] < self.max_in_flight:
            batches = self._drain(places)
            if not batches:
                return
            self._in_flight[connection.node_id] += 1
            for batch in batches:
                batch.in_request = True
            answer = connection.send(
                "produce", self.produce_version, self._request(batches), self.request_timeout_s
            )
            answer.add_done_callback(partial(self._answered, link, connection.node_id, batches))

    def _drain(self, places: Collection[TopicPartition]) -> list[ProducerBatch]:
        now = self._surroundings.now()
        drained = []
        for place in places:
            queue = self.queues[place]
            batch = queue.next_to_send(self.producer_id, self.producer_epoch, now)
            if batch is None:
                continue
            queue.waiting.popleft()
            if not batch.has_sequence:
                self._first_time(queue, batch)
            batch.was_next = queue.is_next(batch.base_sequence)
            drained.append(batch)
        return drained

    def _first_time(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        identity = self.producer_id, self.producer_epoch
        if (queue.producer_id, queue.producer_epoch) != identity:
            queue.start_at_beginning(*identity)
        queue.first_time(batch)
        queue.in_flight.append(batch)
        self._note_sent(queue, batch)

    def _note_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Note the records of a batch that is sent for the first time."""
        place = batch.partition
        numbers = range(queue.next_number, queue.next_number + batch.record_count)
        queue.next_number += batch.record_count
        partition_number = self._surroundings.number_of(place)
        batch.names = tuple(
            RecordName(self.name, self.incarnation, self.transaction, partition_number, number)
            for number in numbers
        )
        at_ms = self._surroundings.at_ms()
        for name, record_key in zip(batch.names, batch.keys, strict=True):
            self._surroundings.history.add(Sent(at_ms, name, place, record_key or b""))

    def _request(self, batches: list[ProducerBatch]) -> Plain:
        topics: dict[str, list[Plain]] = {}
        for batch in batches:
            rows = topics.setdefault(batch.partition.topic, [])
            batch.is_flipped = self._is_flipped(batch)
            records = batch.flipped(self._random) if batch.is_flipped else batch.encode()
            rows.append({"index": batch.partition.partition, "records": records})
        return {
            "transactional_id": self._transactional_id,
            "acks": batches[0].acks if self._transactional_id is None else -1,
            "timeout": 30_000,
            "topic_data": [self._named(topic) | {"partition_data": rows} for topic, rows in topics.items()],
        }

    def _is_flipped(self, batch: ProducerBatch) -> bool:
        """Return whether the batch, the first of a producer epoch, is damaged on its way."""
        flips = self._surroundings.flips
        return bool(flips) and batch.base_sequence == 0 and self._random.random() < flips

    def _named(self, topic: str) -> Plain:
        if self.produce_version >= TOPIC_IDS_SINCE:
            return {"topic_id": self._surroundings.topics[topic].topic_id}
        return {"name": topic}

    def _answered(
        self, link: Link, node_id: int, batches: list[ProducerBatch], answer: asyncio.Future[Any]
    ) -> None:
        self._in_flight[node_id] -= 1
        self.woken.set()
        rows: dict[tuple[str, int], Any] = {}
        if answer.cancelled() or answer.exception() is not None:
            for batch in batches:
                self._lost(batch)
            return
        for topic in answer.result().responses:
            key = str(topic.topic_id) if self.produce_version >= TOPIC_IDS_SINCE else topic.name
            for row in topic.partition_responses:
                rows[key, row.index] = row
        for batch in batches:
            place = batch.partition
            topic_id = self._surroundings.topics[place.topic].topic_id
            row = rows.get(
                (topic_id if self.produce_version >= TOPIC_IDS_SINCE else place.topic, place.partition)
            )
            if row is None:
                self._surroundings.unexpected(self.name, f"no row for {place} in the answer to a Produce")
                self._lost(batch)
            else:
                if row.error_code in MOVED:
                    link.moved(place, row)
                self._complete(batch, row)

    def _lost(self, batch: ProducerBatch) -> None:
        batch.in_request = False
        batch.doubtful = True
        if not batch.done:
            self._again(self.queue(batch.partition), batch)

    def _again(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.attempts += 1
        backoff_s = min(RETRY_BACKOFF_S * 2 ** min(batch.attempts, 8), RETRY_BACKOFF_MAX_S)
        batch.retry_at = self._surroundings.now() + backoff_s * self._random.uniform(0.8, 1.2)
        queue.enqueue_again(batch)

    def _complete(self, batch: ProducerBatch, row: Any) -> None:
        """Complete a batch (Sender.completeBatch). Even the answer to a given-up batch advances the known
        sequence.
        """
        batch.in_request = False
        queue = self.queue(batch.partition)
        same_identity = (queue.producer_id, queue.producer_epoch) == (batch.producer_id, batch.producer_epoch)
        if row.error_code is ErrorCode.none:
            if same_identity:
                queue.last_acked_sequence = max(queue.last_acked_sequence, batch.last_sequence)
            if not batch.done:
                self._acknowledge(queue, batch, row.base_offset)
            return
        error = row.error_code
        if error not in UNSTORED:
            batch.doubtful = True
        elif error in SEQUENCE_ERRORS and same_identity:
            self._record_refusal(queue, batch, error)
        if batch.done:
            return
        if error is ErrorCode.message_too_large and batch.record_count > 1:
            queue.split(batch)
        elif (error is ErrorCode.corrupt_message and batch.is_flipped) or self._judge(queue, batch, error):
            self._again(queue, batch)
        else:
            self.give_up(queue, batch, error.name)

    def _acknowledge(self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int) -> None:
        queue.take_out(batch)
        self._note_acknowledged(batch, base_offset)

    def _note_acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        at_ms = self._surroundings.at_ms()
        for index, name in enumerate(batch.names):
            acknowledged = Acknowledged(at_ms, name, batch.partition, base_offset + index)
            self._surroundings.history.add(acknowledged)

    def _record_refusal(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> None:
        """Record a refusal. "Out of order" is explained only if an earlier batch is not known to be stored,
        or if brokers may have forgotten this one.

        As with Kafka's producer, five requests may be in flight to the old leader of a partition, and five
        more to the new one. The new one may acknowledge the earlier batch before the old one's refusal comes.
        The answer to a batch that was given up may come when the producer itself has a newer epoch.
        """
        if error is ErrorCode.out_of_order_sequence_number:
            is_next = queue.is_next(batch.base_sequence)
            if self._surroundings.cluster is not None:
                is_next = is_next and batch.was_next
            explained = batch.base_sequence != 0 and not is_next
            explained |= batch.doubtful and queue.sent_after(batch) >= REMEMBERED_BATCHES
        else:
            is_left = batch.producer_epoch < self.producer_epoch
            explained = error in FENCED and (is_left or self._may_be_fenced())
        self._surroundings.history.add(
            Refused(
                self._surroundings.at_ms(),
                self.name,
                self.incarnation,
                batch.partition,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                error.name,
                explained=explained,
                first=batch.names[0] if batch.names else None,
            )
        )

    async def wait(self, until: float) -> None:
        """Wait until an event arrives, or until a retry, an expiry or `until` is due."""
        due = [until]
        for queue in self.queues.values():
            if queue.waiting:
                due.append(queue.waiting[0].retry_at)
            oldest = queue.in_flight[0] if queue.in_flight else queue.waiting[0] if queue.waiting else None
            if oldest is not None:
                due.append(oldest.created_at + self.delivery_timeout_s)
        now = self._surroundings.now()
        later = [moment for moment in due if moment > now]
        try:
            async with asyncio.timeout_at(min(later) + 0.001 if later else now + RETRY_BACKOFF_S):
                await self.woken.wait()
        except TimeoutError:
            pass
        self.woken.clear()
