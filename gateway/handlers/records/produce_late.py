"""Carries out a Produce, or a part of one, after its turn.

| what waits | for |
| --- | --- |
| the whole request (`hold`) | room in the backlog of a topic |
| the rights of very many topics, then the request | other requests, between slices of time |
| batches of very many or slow partitions | other requests, between slices of time |
| a transaction's first batch in a partition (`verify`) | another gateway, which coordinates the transaction |
| a batch that takes long to check, or must be recompressed (`InThreads`) | a thread that does it |

All ways are alike. What waits has changed nothing yet. It is copied, because the receive buffer is reused,
and the copies need room (`queued.max.request.bytes`); without room the batches are refused, so that the
client sends them again. Until the batches are appended, later requests of the connection wait, so that
batches are appended in the order in which they were sent; later requests do not wait for the flush. The other
batches of a request that waits for a coordinator or a thread are appended at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.answering.api import (
    CloseConnection,
    Deferred,
    HoldingBack,
    ResponseBytes,
    sharer_of,
)
from seqgate.gateway.handlers.records.produce_append import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    FIRST_ZSTD_VERSION,
    ZSTD,
    ProduceContext,
    client_version,
    needs_answer,
    producer_of,
)
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, ProduceRow
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.partitions.batch_threads import PreparedBatch
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.log.format.compression import Compression
from seqgate.log.format.record_batch import HEADER_BYTES, TRANSACTIONAL_FLAG, parse_header

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Batches of one request that threads work on at a time; the others wait, so that other requests have their
turns.
"""
OBJECTS_BYTES: Final = 1024
"""The bytes of the objects around a batch that waits. They need room, too, because a batch may be tiny."""
Begun = ResponseBytes | Deferred | None


class Late:
    """The answer to a Produce carried out after its turn, and the room for what is kept until then."""

    def __init__(self, context: ProduceContext) -> None:
        self.context = context
        self.client = sharer_of(context.peer)
        """Who shares turns and room with others; a login may change it while the request waits."""
        self.deferred = HoldingBack()
        self._kept_bytes = 0

    def keep(self, size_bytes: int) -> bool:
        """Take room for copies of this size; return whether there is room."""
        kept = self.context.services.backlog.held.room.try_keep(self.client, size_bytes)
        if kept:
            self._kept_bytes = size_bytes
        return kept

    def keep_on(self, earlier: Late) -> None:
        """Take over the room of an earlier part of the work on the same copies."""
        self.client = earlier.client
        self._kept_bytes, earlier._kept_bytes = earlier._kept_bytes, 0

    def start(self, name: str, work: Coroutine[Any, Any, Begun]) -> Deferred:
        """Carry out `work` in a task; answer what it returns."""
        tasks = self.context.node.tasks
        tasks.start(tasks.begin(name, is_brief=True), self._run(work))
        return self.deferred

    async def _run(self, work: Coroutine[Any, Any, Begun]) -> None:
        try:
            with self.failing():
                self.answer(await work)
        finally:
            self.release()

    def release(self) -> None:
        """Give the room of the copies back, once."""
        kept_bytes, self._kept_bytes = self._kept_bytes, 0
        if kept_bytes:
            self.context.services.backlog.held.room.release_kept(self.client, kept_bytes)

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Run the block; give the room back if it fails, without memory or without a thread."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def answer(self, begun: Begun) -> None:
        """Follow the answer of the request, whose batches are appended now, and let later requests begin."""
        deferred = self.deferred
        deferred.follow(begun)
        if isinstance(begun, Deferred) and begun.holds_back:
            begun.on_others_may_begin = deferred.let_others_begin
        else:
            deferred.let_others_begin()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Run the block; log its error and fail the answer, because the caller also serves other requests."""
        name = self.context.peer.name
        try:
            yield
        except CloseConnection as error:
            logger.warning("a Produce of %s that waited fails: %s", name, error)
            self.deferred.fail()
        except Exception:
            logger.exception("a Produce of %s that waited can't be carried out", name)
            self.deferred.fail()


def size_of(request: ProduceRequest) -> int:
    """Return the bytes of the records of a request."""
    return sum(len(entry.records or b"") for _, entries in request.topics for entry in entries)


def copied(request: ProduceRequest) -> ProduceRequest:
    """Copy the request out of the receive buffer."""
    topics = [
        topic._replace(partitions=[kept_entry(entry) for entry in topic.partitions])
        for topic in request.topics
    ]
    return request._replace(topics=topics)


def kept_entry(entry: PartitionRecords) -> PartitionRecords:
    """Copy the records of a partition out of the receive buffer."""
    return entry if entry.records is None else entry._replace(records=memoryview(bytes(entry.records)))


# A request for a topic whose backlog is full waits for room.


def hold(
    context: ProduceContext, request: ProduceRequest, begin: Callable[[ProduceRequest], Begun]
) -> Deferred | None:
    """Hold a request until there is room; return its answer's future, None when it need not or can't wait."""
    if not _must_wait(context, request):
        return None
    held = context.services.backlog.held
    kept, late = copied(request), Late(context)

    def go_on() -> None:
        late.deferred.on_abandoned = None
        with late.failing():
            late.answer(begin(kept))

    ticket = held.hold(
        context.peer, size_of(kept), request.timeout_ms, lambda: not _must_wait(context, kept), go_on
    )
    if ticket is None:
        return None
    late.deferred.on_abandoned = lambda: held.drop(ticket)
    return late.deferred


def _must_wait(context: ProduceContext, request: ProduceRequest) -> bool:
    by_key = context.services.partitions.by_key
    for key, entries in request.topics:
        topic = by_key.get(key)
        if topic is None:
            continue
        for entry in entries:
            partition = topic.peek(entry.partition)
            if partition is not None and _is_full(context, partition, entry.records):
                return True
    return False


def _is_full(context: ProduceContext, partition: Partition, records: memoryview | None) -> bool:
    """Return whether a batch would have to wait. A duplicate by sequence need not, nor an invalid batch."""
    gate = partition.gate
    if gate is None or not gate.holds or not gate.is_closed or partition.log.offline:
        return False
    if records is None or len(records) < HEADER_BYTES:
        return False
    return not partition.log.is_repeated(parse_header(records), context.node.clock.now_ms())


# Batches that wait, and the batches that must.


class LateBatch(NamedTuple):
    """A batch to append after a thread's work or its coordinator's answer, and its row's place."""

    rows: list[ProduceRow]
    position: int
    key: str | bytes
    topic: TopicPartitions
    partition: Partition
    compression: Compression | None
    """The codec in which the batch is stored; None stores the batch as it was sent."""
    entry: PartitionRecords
    took_part: TookPart | None = None
    """The answer of the gateway that coordinates the transaction, where that is another one."""

    def copied(self) -> LateBatch:
        """Copy the records out of the receive buffer."""
        return self._replace(entry=kept_entry(self.entry))

    @property
    def size_bytes(self) -> int:
        """The memory of the batch while it waits."""
        return len(self.entry.records or b"") + OBJECTS_BYTES


def must_ask(
    context: ProduceContext, partition: Partition, records: memoryview | None, transactional_id: str
) -> bool:
    """Return whether another gateway must be asked before a batch of its transaction is appended: not for one
    that is refused in any case, or whose transaction is open in the partition already.
    """
    services = context.services
    if services.elsewhere.coordinator_of(transactional_id) is None:
        return False
    if records is None or len(records) < HEADER_BYTES or partition.log.offline:
        return False
    if not records[ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG:
        return False
    producer = producer_of(records)
    if producer.producer_id < 0 or not needs_answer(services, partition, producer, context.api_version):
        return False
    known = partition.log.producers.get(producer.producer_id)
    return known is None or producer.producer_epoch >= known.producer_epoch


def must_recompress(
    api_version: int, partition: Partition, codec: int, records: memoryview | None, now_ms: int
) -> bool:
    """Return whether a batch must be stored in another codec than its own, `codec`. A duplicate need not,
    because its original is stored; neither does a batch that is refused whatever its records are.
    """
    if records is None or len(records) < HEADER_BYTES or partition.log.offline:
        return False
    own_codec = records[ATTRIBUTES_POSITION] & CODEC_BITS
    if own_codec == codec or (own_codec == ZSTD and api_version < FIRST_ZSTD_VERSION):
        return False
    return not partition.log.is_repeated(parse_header(records), now_ms)


async def verify(
    context: ProduceContext,
    transactional_id: str,
    batches: list[LateBatch],
    append: Callable[[LateBatch], None],
) -> None:
    """Ask the coordinator for each producer's batches (usually one producer's); append with its answers."""
    by_producer: dict[Producer, list[LateBatch]] = {}
    for batch in batches:
        by_producer.setdefault(producer_of(batch.entry.records or memoryview(b"")), []).append(batch)
    version = client_version(context.api_version)
    for producer, same in by_producer.items():
        partitions = [batch.partition for batch in same]
        answers = await context.services.elsewhere.ask(transactional_id, producer, partitions, version)
        for batch, took_part in zip(same, answers, strict=True):
            append(batch._replace(took_part=took_part))


class InThreads:
    """The batches of one request that threads check and recompress. Each is appended when it is ready."""

    def __init__(
        self,
        late: Late,
        batches: list[LateBatch],
        append: Callable[[LateBatch, PreparedBatch], None],
        answer: Callable[[], Begun],
    ) -> None:
        self._late = late
        self._append = append
        self._answer = answer
        self._left = len(batches)
        self._waiting = deque(batches)

    def begin(self) -> Deferred:
        """Give the first batches to the threads: only one where its append takes long, too, so that other
        requests have their turns between two appends.
        """
        is_long = any(batch.partition.log.record_states.rules is not None for batch in self._waiting)
        with self._late.released_on_error():
            for _ in range(min(1 if is_long else AT_ONCE, self._left)):
                self._put_next()
        return self._late.deferred

    def _put_next(self) -> None:
        batch = self._waiting.popleft()
        context = self._late.context
        context.services.batch_threads.put(
            self._late.client,
            context.peer.number,
            batch.entry.records or memoryview(b""),
            batch.compression,
            batch.partition.log.config,
            context.node.clock.now_ms(),
            partial(self._take, batch),
        )

    def _take(self, batch: LateBatch, outcome: PreparedBatch) -> None:
        """Append one batch; answer the request after the last."""
        late = self._late
        if not late.deferred.failed:
            with late.failing():
                self._append(batch, outcome)
        self._left -= 1
        if self._waiting:
            self._put_next()
        elif not self._left:
            late.release()
            if not late.deferred.failed:
                with late.failing():
                    late.answer(self._answer())
