"""A Produce to a topic with a backlog quota: refused before anything is written, or held until there is room.

The error is NOT_ENOUGH_REPLICAS, because every client takes it for what it is here: nothing was written, send it again
(librdkafka and aiokafka give up on THROTTLING_QUOTA_EXCEEDED). Its message says what it is about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, CloseConnection, Deferred, RequestContext
from gateway.protocol.produce_codec import PartitionRecords, ProduceRequest
from gateway.quota.produce_gate import ProduceGate
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import TopicPartitions
from log import measures
from log.format.record_batch import HEADER_BYTES, parse_header

logger = logging.getLogger(__name__)

REFUSED: Final = int(ErrorCode.not_enough_replicas)
Begin = Callable[[RequestContext, ProduceRequest], Answer | Deferred | None]


def gates_refusal(partition: Partition, records: memoryview, now_ms: int) -> str | None:
    """Why a batch is not appended now, None when it may be. What the log has already is answered as ever."""
    for gate in (partition.gate, partition.delayed_gate):
        reason = None if gate is None else _refusal(partition, gate, records, now_ms)
        if reason is not None:
            return reason
    return None


def _refusal(partition: Partition, gate: ProduceGate, records: memoryview, now_ms: int) -> str | None:
    if gate.lets_all_pass or len(records) < HEADER_BYTES:
        return None
    batch = parse_header(records)
    if measures.is_repeated(partition.log, batch, now_ms):
        return None
    return gate.refusal(batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms)


def refused_by_log(partition: Partition, max_refused: int, records: memoryview | None, now_ms: int) -> None:
    """The log, or the disk, had no room for a batch: none that the producer sent after it may be first."""
    if records is None or len(records) < HEADER_BYTES:
        return
    if partition.delayed_gate is None:
        partition.delayed_gate = ProduceGate(max_refused)
    _remember(partition.delayed_gate, records, now_ms)


def refused_unopened(
    topic: TopicPartitions, index: int, max_refused: int, records: memoryview | None, now_ms: int
) -> None:
    """A partition could not be opened for a batch; once it can be, none that the producer sent after it may be first."""
    if records is None or len(records) < HEADER_BYTES:
        return
    if index not in topic.gates:
        topic.gates[index] = ProduceGate(max_refused)
    _remember(topic.gates[index], records, now_ms)


def _remember(gate: ProduceGate, records: memoryview, now_ms: int) -> None:
    batch = parse_header(records)
    gate.remember_refusal(batch.producer_id, batch.producer_epoch, batch.base_sequence, now_ms)


def hold(context: RequestContext, request: ProduceRequest, begin: Begin) -> Deferred | None:
    """Where the answer of a request will be that waits for room; None when it need not, or can't, wait."""
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


def _must_wait(context: RequestContext, request: ProduceRequest) -> bool:
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


def _is_full(context: RequestContext, partition: Partition, records: memoryview | None) -> bool:
    """Whether a batch would have to wait: not one that the log has already, or would refuse."""
    gate = partition.gate
    if gate is None or not gate.holds or not gate.is_closed or partition.log.offline:
        return False
    if records is None or len(records) < HEADER_BYTES:
        return False
    return not measures.is_repeated(partition.log, parse_header(records), context.services.clock.now_ms())


def copied(request: ProduceRequest) -> ProduceRequest:
    """The request apart from the buffer that it came in."""
    topics = [
        topic._replace(partitions=[kept_entry(entry) for entry in topic.partitions])
        for topic in request.topics
    ]
    return request._replace(topics=topics)


def kept_entry(entry: PartitionRecords) -> PartitionRecords:
    """A partition's records apart from the buffer that they came in."""
    return entry if entry.records is None else entry._replace(records=memoryview(bytes(entry.records)))


def _go_on(context: RequestContext, request: ProduceRequest, begin: Begin, deferred: Deferred) -> None:
    """Carry out a request that waited, and have `deferred` tell its answer."""
    deferred.on_abandoned = None
    try:
        answer = begin(context, request)
    except CloseConnection as error:
        logger.warning("a Produce of %s that waited fails: %s", context.peer_host, error)
        deferred.fail()
        return
    except Exception:
        # this runs for all that wait, who must not suffer from one of them
        logger.exception("a Produce of %s that waited can't be carried out", context.peer_host)
        deferred.fail()
        return
    deferred.follow(answer)
