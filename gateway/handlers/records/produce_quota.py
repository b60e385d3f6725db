"""A Produce to a topic with a backlog quota: refuse it before anything is written, or hold it until there is room.

The error is NOT_ENOUGH_REPLICAS. Every client takes this error as intended: nothing was written, send the batch again.
librdkafka and aiokafka give up on THROTTLING_QUOTA_EXCEEDED. The error message names the quota.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, Deferred, RequestContext
from gateway.handlers.records.produce_later import failing
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import PartitionRecords, ProduceRequest
from gateway.quota.produce_gate import ProduceGate
from gateway.runtime.partitions.partition import Partition
from log import measures
from log.format.record_batch import HEADER_BYTES, parse_header

logger = logging.getLogger(__name__)

REFUSED: Final = int(ErrorCode.not_enough_replicas)
Begin = Callable[[RequestContext[ProduceServices], ProduceRequest], Answer | Deferred | None]


def gate_refusal(partition: Partition, gate: ProduceGate, records: memoryview, now_ms: int) -> str | None:
    """Return why a batch must not be appended now; None if it may be. A duplicate is answered as always."""
    if not gate.is_closed or len(records) < HEADER_BYTES:
        return None
    if measures.is_repeated(partition.log, parse_header(records), now_ms):
        return None
    return gate.refuse()


def hold(context: RequestContext[ProduceServices], request: ProduceRequest, begin: Begin) -> Deferred | None:
    """Hold a request until there is room; return the future of its answer.

    None when the request need not wait, or can't.
    """
    if not _must_wait(context, request):
        return None
    held = context.services.backlog.held
    kept = copied(request)
    deferred = Deferred(holds_back=True)
    size_bytes = sum(len(entry.records or b"") for _, entries in kept.topics for entry in entries)
    ticket = held.hold(
        context.peer,
        size_bytes,
        request.timeout_ms,
        lambda: not _must_wait(context, kept),
        lambda: _go_on(context, kept, begin, deferred),
    )
    if ticket is None:
        return None
    deferred.on_abandoned = lambda: held.drop(ticket)
    return deferred


def _must_wait(context: RequestContext[ProduceServices], request: ProduceRequest) -> bool:
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


def _is_full(
    context: RequestContext[ProduceServices], partition: Partition, records: memoryview | None
) -> bool:
    """Return whether a batch would have to wait. Duplicates and batches that the log would refuse need not wait."""
    gate = partition.gate
    if gate is None or not gate.holds or not gate.is_closed or partition.log.offline:
        return False
    if records is None or len(records) < HEADER_BYTES:
        return False
    return not measures.is_repeated(partition.log, parse_header(records), context.node.clock.now_ms())


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


def _go_on(
    context: RequestContext[ProduceServices], request: ProduceRequest, begin: Begin, deferred: Deferred
) -> None:
    """Carry out a request that waited; its answer resolves `deferred`."""
    deferred.on_abandoned = None
    with failing(context, deferred):
        deferred.follow(begin(context, request))
