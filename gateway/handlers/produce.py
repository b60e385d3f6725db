"""Produce (key 0, versions 3–13): append batches, answer when they are persisted as `acks` asks.

The first stage appends every partition's batch in the order of arrival; the second waits for the flush
that covers them, and for that of the transaction's state where a batch added its partition (KIP-890). acks=1 answers after the write, acks=all after the group-committed flush (or after the
write where `flush.messages` chooses Kafka's page cache), acks=0 not at all.

Versions 0–2 are advertised but refused, because librdkafka before 2.8 takes a missing Produce v0 for a
broker without compression (KAFKA-18659; Kafka 4 answers the same way).
Source: Kafka's KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Answer, Api, Deferred, RequestContext
from gateway.handlers.produce_append import (
    PendingAnswer,
    Topics,
    append_batch,
    appended_row,
    close_on_error,
    log_refusal,
    refused_row,
)
from gateway.handlers.produce_quota import hold
from gateway.handlers.produce_repeats import ProduceRepeats
from gateway.metadata.topic_names import INTERNAL_TOPICS
from gateway.protocol.produce_codec import (
    PartitionRecords,
    ProduceRequest,
    ProduceRow,
    encode_produce_response,
    produce_reader,
)
from gateway.runtime.partition import Partition
from gateway.runtime.partitions import TopicPartitions
from log import AppendInfo

API_KEY = 0
UNKNOWN_TOPIC = int(ErrorCode.unknown_topic_or_partition)
INVALID_TOPIC = int(ErrorCode.invalid_topic_exception)
UNKNOWN_TOPIC_ID = int(ErrorCode.unknown_topic_id)


def begin(context: RequestContext, request: ProduceRequest) -> Answer | Deferred | None:
    """Append everything at once, unless it must wait for room; the answer follows when it is persisted."""
    if context.services.backlog.holds:
        held = hold(context, request, append)
        if held is not None:
            return held
    return append(context, request)


def append(context: RequestContext, request: ProduceRequest) -> Answer | Deferred | None:
    """Append everything at once; the answer follows when it is persisted."""
    acks = request.acks
    if acks not in {-1, 0, 1}:
        return _refuse_all(context, request, ErrorCode.invalid_required_acks)
    topics: Topics = []
    pending: PendingAnswer | None = None
    now_ms = context.services.clock.now_ms()
    for key, topic, entries in _entries_by_topic(context, request):
        if not entries:
            continue
        rows: list[ProduceRow] = []
        topics.append((key, rows))
        for entry in entries:
            partition = None if topic is None else topic.get(entry.partition)
            if partition is None:
                code = _missing(key, topic, entry.partition)
                rows.append(ProduceRow(entry.partition, code, -1, -1, -1))
                continue
            if partition.topic in INTERNAL_TOPICS:
                # the gateway keeps its own state there (ReplicaManager.appendToLocalLog)
                rows.append(ProduceRow(entry.partition, INVALID_TOPIC, -1, -1, -1))
                continue
            info = _append(context, request, partition, entry.records, now_ms)
            if isinstance(info, ProduceRow):
                rows.append(info)
                log_refusal(context.peer_host, context.client_id, partition, info)
                continue
            rows.append(appended_row(partition, info))
            if acks == -1 and not partition.is_persisted(info.last_offset):
                if pending is None:
                    pending = PendingAnswer(context, topics)
                pending.wait(rows, partition, info)
    if acks == 0:
        close_on_error(topics)
        return None
    return _answer(context, request, topics, pending)


def _append(
    context: RequestContext,
    request: ProduceRequest,
    partition: Partition,
    records: memoryview | None,
    now_ms: int,
) -> AppendInfo | ProduceRow:
    if records is None:
        return refused_row(partition, int(ErrorCode.invalid_record), "no records", appended=False)
    return append_batch(
        context.services, context.api_version, partition, records, request.transactional_id, now_ms
    )


def _answer(
    context: RequestContext, request: ProduceRequest, topics: Topics, pending: PendingAnswer | None
) -> Answer | Deferred:
    if request.transactional_id and request.acks == -1:
        state = context.services.transactions.unpersisted(request.transactional_id)
        if state is not None:
            pending = pending or PendingAnswer(context, topics)
            pending.wait_for_state(*state)
    if pending is not None:
        return pending.deferred
    return encode_produce_response(context.api_version, context.correlation_id, topics)


def _entries_by_topic(
    context: RequestContext, request: ProduceRequest
) -> list[tuple[str | bytes, TopicPartitions | None, Iterable[PartitionRecords]]]:
    """The partitions' entries by topic. Of a partition named twice only the last entry counts, as in Kafka."""
    partitions = context.services.partitions
    grouped: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for key, entries in request.topics:
        last = grouped.setdefault(key, {})
        for entry in entries:
            last[entry.partition] = entry
    return [(key, partitions.by_key.get(key), last.values()) for key, last in grouped.items()]


def _missing(key: str | bytes, topic: TopicPartitions | None, index: int) -> int:
    """Why there is no such partition to append to."""
    if topic is not None:
        return int(topic.error_without(index))
    return UNKNOWN_TOPIC_ID if isinstance(key, bytes) else UNKNOWN_TOPIC


def _refuse_all(context: RequestContext, request: ProduceRequest, error: ErrorCode) -> Answer:
    topics: Topics = [
        (key, [ProduceRow(entry.partition, int(error), -1, -1, -1) for entry in entries])
        for key, entries in request.topics
    ]
    return encode_produce_response(context.api_version, context.correlation_id, topics)


API = Api(
    key=API_KEY,
    name="Produce",
    min_version=3,
    max_version=13,
    begin=begin,
    reader=produce_reader,
    repeats=ProduceRepeats,
    advertised_min_version=0,
)
