"""Holds back the batches of a Produce until the gateway that coordinates their transaction has answered.

The first batch of a transaction in a partition leaves the event loop before it has changed anything: the coordinator verifies, or
adds, the partition, and then the batch is appended as any other. Until then later requests of the connection wait, so that batches
are appended in the order in which they were sent; they do not wait for the flush. The other batches of the request are appended at
once. Nothing here happens for transactions that this gateway coordinates.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from gateway.coordinator.transaction.rules import VERSION_2, Producer
from gateway.handlers.answering.api import Answer, Deferred, RequestContext
from gateway.handlers.records.produce_errors import FIRST_PRODUCE_THAT_ADDS
from gateway.handlers.records.produce_later import failing
from gateway.handlers.records.produce_quota import kept_entry
from gateway.handlers.records.produce_recompression import LateBatch
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRequest
from gateway.runtime.coordinators.transactions_elsewhere import TookPart
from gateway.runtime.partitions.partition import Partition
from log.format.record_batch import HEADER_BYTES

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

    A batch that is refused in any case need not, and neither does one whose transaction is open in the partition already.
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
        """`others_bytes` is the size of the copies that the request keeps of other batches until the coordinator has answered."""
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
