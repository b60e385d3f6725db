"""Holds back the batches of a Produce until the gateway that coordinates their transaction has answered.

The first batch of a transaction in a partition leaves the event loop before it has changed anything: the
coordinator verifies, or adds, the partition, and then the batch is appended as any other. Until then later
requests of the connection wait, so that batches are appended in the order in which they were sent; they do
not wait for the flush. The other batches of the request are appended at once. Nothing here happens for
transactions that this gateway coordinates.

Recompresses the batches of a Produce that are not in the codec of their topic (`compression.type`).

Such a batch leaves the event loop before it has changed anything: a thread recompresses a copy, and then the
batch is appended as any other. Until then later requests of the connection wait, so that batches are appended
in the order in which they were sent; they do not wait for the flush. The other batches of the request are
appended at once.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer
from seqgate.gateway.handlers.answering.api import Answer, Deferred, RequestContext
from seqgate.gateway.handlers.records.produce_answer import ProduceServices
from seqgate.gateway.handlers.records.produce_append import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    FIRST_PRODUCE_THAT_ADDS,
    FIRST_ZSTD_VERSION,
    ZSTD,
    failing,
    kept_entry,
)
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, ProduceRow
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.recompressor import Outcome
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.log.format.compression import Compression
from seqgate.log.format.record_batch import HEADER_BYTES, parse_header

_ATTRIBUTES_POSITION: Final = 22
_TRANSACTIONAL_BIT: Final = 0x10
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_POSITION: Final = 43


def producer_of(records: memoryview) -> Producer:
    """Return the producer in the header of a batch."""
    return Producer(*_PRODUCER.unpack_from(records, _PRODUCER_POSITION))


def client_version(api_version: int) -> int:
    """Return the version of transactions that a Produce of this version speaks."""
    return VERSION_2 if api_version >= FIRST_PRODUCE_THAT_ADDS else 0


def must_ask(
    context: RequestContext[ProduceServices],
    partition: Partition,
    records: memoryview | None,
    transactional_id: str,
) -> bool:
    """Return whether another gateway must be asked before a batch of its transaction is appended.

    A batch that is refused in any case need not, and neither does one whose transaction is open in the
    partition already.
    """
    services = context.services
    if services.elsewhere.coordinator_of(transactional_id) is None:
        return False
    if records is None or len(records) < HEADER_BYTES or partition.log.offline:
        return False
    if not records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL_BIT:
        return False
    producer = producer_of(records)
    if producer.producer_id < 0:
        return False
    if not needs_answer(services, partition, producer, context.api_version):
        return False
    known = partition.log.producers.get(producer.producer_id)
    return known is None or producer.producer_epoch >= known.producer_epoch


def needs_answer(
    services: ProduceServices, partition: Partition, producer: Producer, api_version: int
) -> bool:
    """Return whether a batch may only be appended with the coordinator's answer."""
    if api_version < FIRST_PRODUCE_THAT_ADDS and not services.transactions.verifies:
        return False
    return not services.elsewhere.is_open_in(partition, producer)


class Verification:
    """The batches of one request that wait for the coordinator. All are appended when it has answered."""

    def __init__(
        self,
        context: RequestContext[ProduceServices],
        request: ProduceRequest,
        late: list[LateBatch],
        append: Callable[[LateBatch, TookPart], None],
        answer: Callable[[], Answer | Deferred | None],
        others_bytes: int = 0,
    ) -> None:
        """`others_bytes` is the size of the copies that the request keeps of other batches until the
        coordinator has answered.
        """
        self._context = context
        self._transactional_id = request.transactional_id or ""
        self._late = late
        self._append = append
        self._answer = answer
        self._kept_bytes = others_bytes + sum(len(batch.entry.records or b"") for batch in late)
        self._deferred = Deferred(holds_back=True)

    def begin(self) -> Deferred | None:
        """Copy the batches and ask the coordinator; return None if there is no room to keep them until then."""
        context = self._context
        if not context.services.backlog.held.room.try_keep(self._kept_bytes):
            return None
        self._late = [batch._replace(entry=kept_entry(batch.entry)) for batch in self._late]
        task = context.node.tasks.begin("verify a transaction", is_brief=True)
        context.node.tasks.start(task, self._work())
        return self._deferred

    async def _work(self) -> None:
        deferred, context = self._deferred, self._context
        try:
            with failing(context, deferred):
                await self._append_all()
                answer = self._answer()
                deferred.follow(answer)
                if isinstance(answer, Deferred) and answer.holds_back:
                    answer.on_others_may_begin = deferred.let_others_begin
                else:
                    deferred.let_others_begin()
        finally:
            context.services.backlog.held.room.release_kept(self._kept_bytes)

    async def _append_all(self) -> None:
        """Ask for the batches of each producer, usually one, and append them."""
        context = self._context
        by_producer: dict[Producer, list[LateBatch]] = {}
        for batch in self._late:
            by_producer.setdefault(producer_of(batch.entry.records or memoryview(b"")), []).append(batch)
        version = client_version(context.api_version)
        for producer, batches in by_producer.items():
            partitions = [batch.partition for batch in batches]
            answers = await context.services.elsewhere.ask(
                self._transactional_id, producer, partitions, version
            )
            for batch, took_part in zip(batches, answers, strict=True):
                self._append(batch, took_part)


AT_ONCE: Final = 4
"""Batches of one request that threads recompress at a time; the others wait, so that other requests have
their turns.
"""


class LateBatch(NamedTuple):
    """A batch that is appended after its recompression, or after the answer of a coordinator, and the place
    of its row in the answer.
    """

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


def must_recompress(
    api_version: int, partition: Partition, codec: int, records: memoryview | None, now_ms: int
) -> bool:
    """Return whether a batch must be stored in another codec than its own, `codec`.

    A duplicate need not, because its original is stored; neither does a batch that is refused whatever its
    records are.
    """
    if records is None or len(records) < HEADER_BYTES or partition.log.offline:
        return False
    own_codec = records[ATTRIBUTES_POSITION] & CODEC_BITS
    if own_codec == codec or (own_codec == ZSTD and api_version < FIRST_ZSTD_VERSION):
        return False
    return not partition.log.is_repeated(parse_header(records), now_ms)


class Recompression:
    """The batches of one request that threads recompress. Each is appended when it is ready."""

    def __init__(
        self,
        context: RequestContext[ProduceServices],
        late: list[LateBatch],
        append: Callable[[LateBatch, Outcome], None],
        answer: Callable[[], Answer | Deferred | None],
    ) -> None:
        self._context = context
        self._append = append
        self._answer = answer
        self._left = len(late)
        self._kept_bytes = sum(len(batch.entry.records or b"") for batch in late)
        self._waiting = deque(late)
        self._deferred = Deferred(holds_back=True)

    def begin(self) -> Deferred | None:
        """Copy the batches and give the first ones to the threads; return None if there is no room to keep
        them until then.
        """
        if not self._context.services.backlog.held.room.try_keep(self._kept_bytes):
            return None
        self._waiting = deque(batch._replace(entry=kept_entry(batch.entry)) for batch in self._waiting)
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._put_next()
        return self._deferred

    def _put_next(self) -> None:
        batch = self._waiting.popleft()
        assert batch.compression is not None
        self._context.services.recompressor.put(
            batch.entry.records or memoryview(b""),
            batch.compression,
            batch.partition.log.config,
            self._context.node.clock.now_ms(),
            partial(self._take, batch),
        )

    def _take(self, batch: LateBatch, outcome: Outcome) -> None:
        """Append one batch; answer the request after the last."""
        deferred = self._deferred
        if not deferred.failed:
            with failing(self._context, deferred):
                self._append(batch, outcome)
        self._left -= 1
        if self._waiting:
            self._put_next()
        elif not self._left:
            self._end()

    def _end(self) -> None:
        context, deferred = self._context, self._deferred
        context.services.backlog.held.room.release_kept(self._kept_bytes)
        if deferred.failed:
            return
        with failing(context, deferred):
            deferred.follow(self._answer())
            deferred.let_others_begin()
