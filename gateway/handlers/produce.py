"""Produce (key 0, versions 3–13): append batches, answer when they are persisted as `acks` asks.

The first stage appends every partition's batch in the order of arrival; the second waits for the flush
that covers them. acks=1 answers after the write, acks=all after the group-committed flush (or after the
write where `flush.messages` chooses Kafka's page cache), acks=0 not at all.

Versions 0–2 are advertised but refused, because librdkafka before 2.8 takes a missing Produce v0 for a
broker without compression (KAFKA-18659; Kafka 4 answers the same way).
Source: Kafka's KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, CloseConnection, Deferred, Pieces, RequestContext
from gateway.protocol.produce_codec import (
    PartitionRecords,
    ProduceRequest,
    ProduceRow,
    encode_produce_response,
    produce_reader,
)
from gateway.runtime.partition import Partition
from gateway.runtime.partitions import TopicPartitions
from log import AppendInfo, LogError, MalformedBatch

logger = logging.getLogger(__name__)

API_KEY = 0
Topics = list[tuple[str | bytes, list[ProduceRow]]]
ATTRIBUTES_POSITION = 22
"""The low byte of a batch's attributes."""
TRANSACTIONAL_BIT = 0x10
CODEC_BITS = 0x07
ZSTD = 4
FIRST_ZSTD_VERSION = 7
UNKNOWN_TOPIC = int(ErrorCode.unknown_topic_or_partition)
UNKNOWN_TOPIC_ID = int(ErrorCode.unknown_topic_id)
STORAGE_ERROR = int(ErrorCode.kafka_storage_error)
REFUSALS_BEFORE_THE_APPEND = frozenset(
    int(code)
    for code in (
        ErrorCode.corrupt_message,
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.kafka_storage_error,
    )
)
"""Answered with log_start_offset −1 (ReplicaManager.appendToLocalLog)."""
SEQUENCE_REFUSALS = frozenset(
    (int(ErrorCode.out_of_order_sequence_number), int(ErrorCode.invalid_producer_epoch))
)


class _Pending:
    """A request whose rows wait for flushes; the last flush to finish sends the answer."""

    __slots__ = ("context", "deferred", "topics", "waiting", "waits_for_next_round", "written")

    def __init__(self, context: RequestContext, topics: Topics) -> None:
        self.context = context
        self.topics = topics
        self.deferred = Deferred()
        self.waiting = 0
        self.waits_for_next_round = False
        self.written: list[tuple[list[ProduceRow], int, Partition, int]] = []

    def wait(self, rows: list[ProduceRow], partition: Partition, info: AppendInfo) -> None:
        """Hold the answer until the last of `rows` is persisted."""
        self.written.append((rows, len(rows) - 1, partition, info.last_offset))
        if not info.is_duplicate:
            if self.waits_for_next_round:
                return
            self.waits_for_next_round = True
        self.waiting += 1
        partition.when_persisted(info, self._persisted)

    def _persisted(self) -> None:
        self.waiting -= 1
        if self.waiting:
            return
        for rows, position, partition, last_offset in self.written:
            if not partition.is_persisted(last_offset):
                message = "the records could not be flushed; the partition is offline"
                rows[position] = ProduceRow(rows[position].partition, STORAGE_ERROR, -1, -1, -1, message)
        context = self.context
        try:
            frame = encode_produce_response(context.api_version, context.correlation_id, self.topics)
        except struct.error as error:
            # a topic name that is too long for this version once its invalid UTF-8 is replaced
            logger.warning("a Produce of %s can't be answered: %s", context.peer_host, error)
            self.deferred.fail()
            return
        self.deferred.resolve((frame,))


def begin(context: RequestContext, request: ProduceRequest) -> Pieces | Deferred | None:
    """Append everything at once; the answer follows when it is persisted."""
    acks = request.acks
    if acks not in {-1, 0, 1}:
        return _refuse_all(context, request, ErrorCode.invalid_required_acks)
    topics: Topics = []
    pending: _Pending | None = None
    now_ms = context.services.clock.now_ms()
    for key, topic, entries in _entries_by_topic(context, request):
        if not entries:
            continue
        rows: list[ProduceRow] = []
        topics.append((key, rows))
        for entry in entries:
            partition = None if topic is None else topic.get(entry.partition)
            if partition is None:
                code = UNKNOWN_TOPIC_ID if topic is None and isinstance(key, bytes) else UNKNOWN_TOPIC
                rows.append(ProduceRow(entry.partition, code, -1, -1, -1))
                continue
            row, info = _append(context, partition, entry.records, request.transactional_id, now_ms)
            rows.append(row)
            if acks == -1 and info is not None and not partition.is_persisted(info.last_offset):
                if pending is None:
                    pending = _Pending(context, topics)
                pending.wait(rows, partition, info)
    if acks == 0:
        _close_on_error(topics)
        return None
    if pending is not None:
        return pending.deferred
    return (encode_produce_response(context.api_version, context.correlation_id, topics),)


def _entries_by_topic(
    context: RequestContext, request: ProduceRequest
) -> list[tuple[str | bytes, TopicPartitions | None, Iterable[PartitionRecords]]]:
    """The partitions' entries by topic. Of a partition named twice only the last entry counts, as in Kafka."""
    partitions = context.services.partitions
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        key, entries = request.topics[0]
        return [(key, partitions.by_key.get(key), entries)]
    grouped: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for key, entries in request.topics:
        last = grouped.setdefault(key, {})
        for entry in entries:
            last[entry.partition] = entry
    return [(key, partitions.by_key.get(key), last.values()) for key, last in grouped.items()]


def _append(
    context: RequestContext,
    partition: Partition,
    records: memoryview | None,
    transactional_id: str | None,
    now_ms: int,
) -> tuple[ProduceRow, AppendInfo | None]:
    """Append one partition's batch; what is refused says why in the log as well."""
    if records is None:
        code = ErrorCode.invalid_record
        return _refused(context, partition, int(code), "no records", appended=False), None
    attributes = records[ATTRIBUTES_POSITION] if len(records) > ATTRIBUTES_POSITION else 0
    if attributes & TRANSACTIONAL_BIT:
        # no transaction coordinator here: no transaction can be open
        if transactional_id is None:
            code = ErrorCode.transactional_id_authorization_failed
        elif context.api_version >= 11:
            code = ErrorCode.transaction_abortable
        else:
            code = ErrorCode.invalid_txn_state
        return _refused(context, partition, int(code), "transactions are not served", appended=False), None
    if attributes & CODEC_BITS == ZSTD and context.api_version < FIRST_ZSTD_VERSION:
        message = f"zstd came with Produce v{FIRST_ZSTD_VERSION}; this is v{context.api_version}"
        code = ErrorCode.unsupported_compression_type
        return _refused(context, partition, int(code), message, appended=False), None
    try:
        info = partition.append(records, now_ms)
    except LogError as error:
        code_number = error.kafka_error_code
        if code_number in SEQUENCE_REFUSALS:
            context.services.rejections += 1
        appended = code_number not in REFUSALS_BEFORE_THE_APPEND and not isinstance(error, MalformedBatch)
        return _refused(context, partition, code_number, str(error), appended=appended), None
    if info.is_duplicate:
        context.services.duplicates += 1
    row = ProduceRow(partition.index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset)
    return row, info


def _refused(
    context: RequestContext, partition: Partition, code: int, message: str, *, appended: bool = True
) -> ProduceRow:
    """The row of a refusal. One before the append carries no log_start_offset, one by the log itself does."""
    logger.info(
        "refused a batch of %s (client %r) for %s-%d with error %d: %s",
        context.peer_host,
        context.client_id,
        partition.topic,
        partition.index,
        code,
        message,
    )
    log_start_offset = partition.log.log_start_offset if appended else -1
    return ProduceRow(partition.index, code, -1, -1, log_start_offset, message)


def _refuse_all(context: RequestContext, request: ProduceRequest, error: ErrorCode) -> Pieces:
    topics: Topics = [
        (key, [ProduceRow(entry.partition, int(error), -1, -1, -1) for entry in entries])
        for key, entries in request.topics
    ]
    return (encode_produce_response(context.api_version, context.correlation_id, topics),)


def _close_on_error(topics: Topics) -> None:
    """acks=0 has no answer; an error is told by closing the connection, so that the client refreshes."""
    for _, rows in topics:
        for row in rows:
            if row.error_code:
                raise CloseConnection(f"an acks=0 request failed with error {row.error_code}")


API = Api(
    key=API_KEY,
    name="Produce",
    min_version=3,
    max_version=13,
    begin=begin,
    reader=produce_reader,
    advertised_min_version=0,
)
