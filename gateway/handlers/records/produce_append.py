"""Appends the batch of one partition for a Produce.

Source: Kafka's ReplicaManager.appendRecords and appendToLocalLog.

Maps refusals of the transaction coordinator to the error codes of a Produce answer.

Source: Kafka's AddPartitionsToTxnManager, ReplicaManager.

Checks a Produce as a whole, before any of its partitions.

Kafka reads the first batch of every partition to find out whether the request writes in a transaction. So a
frame that can't be read, or a transactional batch without a transactional id that the client may write with,
refuses the request for all its partitions.
Source: Kafka's KafkaApis.handleProduceRequest, RequestUtils.hasTransactionalRecords,
ProduceRequest.validateRecords.

A Produce to a topic with a backlog quota: refuse it before anything is written, or hold it until there is
room.

The error is NOT_ENOUGH_REPLICAS. Every client takes this error as intended: nothing was written, send the
batch again. librdkafka and aiokafka give up on THROTTLING_QUOTA_EXCEEDED. The error message names the quota.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer, TransactionRefused
from seqgate.gateway.handlers.answering.api import Answer, CloseConnection, Deferred, Peer, RequestContext
from seqgate.gateway.handlers.records.produce_answer import ProduceServices, Topics
from seqgate.gateway.handlers.records.produce_order import Key, Refusals
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, ProduceRow
from seqgate.gateway.quota.backlog import ProduceGate
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.recompressor import Outcome
from seqgate.log import (
    Appended,
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    LogError,
    MalformedBatch,
)
from seqgate.log.format.batch_validation import check_frame, is_transactional_frame
from seqgate.log.format.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from seqgate.seq_validator import RefusedBefore

logger = logging.getLogger(__name__)

_MESSAGE_CHARACTERS: Final = 1_000
"""Characters of an error message that are sent. Messages contain ids and names that clients choose, and v8
can't encode a longer string.
"""
ATTRIBUTES_POSITION = 22
"""The position of the low byte of a batch's attributes."""
PRODUCER_POSITION = 43
_PRODUCER: Final = struct.Struct(">qh")
TRANSACTIONAL_BIT = 0x10
CODEC_BITS = 0x07
ZSTD = 4
SPECIAL_BITS = TRANSACTIONAL_BIT | ZSTD
"""The attribute bits that need checks before the append. A batch without them is appended at once."""
FIRST_ZSTD_VERSION = 7
_BUCKET_BEHIND: Final = "too many records are not in the bucket yet (seqgate.cluster.unwritten.max.bytes); send the batch again later"
_NO_TRANSACTIONAL_ID: Final = "a transactional batch without a transactional id"
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
"""Errors found before the append; their rows have log_start_offset −1 (ReplicaManager.appendToLocalLog)."""
INVALID_PRODUCER_EPOCH = int(ErrorCode.invalid_producer_epoch)
"""The error is found before the append for transactional batches only
(UnifiedLog.maybeStartTransactionVerification).
"""
SEQUENCE_REFUSALS = frozenset((int(ErrorCode.out_of_order_sequence_number), INVALID_PRODUCER_EPOCH))


def appended_row(partition: Partition, info: Appended) -> ProduceRow:
    return ProduceRow(partition.index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset)


def append_batch(
    services: ProduceServices,
    api_version: int,
    partition: Partition,
    records: memoryview | None,
    transactional_id: str | None,
    now_ms: int,
    outcome: Outcome | None = None,
    took_part: TookPart | None = None,
    before: RefusedBefore | None = None,
) -> Appended | ProduceRow:
    """Append the batch of one partition; return its offsets, or the row that refuses it.

    `records` are checked as they were sent. After recompression, `outcome` is appended in their place, or
    refuses them as the log would. `took_part` is the answer of the gateway that coordinates the transaction,
    where that is another one. `before` has the earlier refusals of the connection.
    """
    if records is None:
        return refused_row(partition, int(ErrorCode.invalid_record), "no records", appended=False)
    attributes = records[ATTRIBUTES_POSITION] if len(records) > ATTRIBUTES_POSITION else 0
    begins_at_zero = False
    gate = partition.gate
    if gate is not None or services.disk_room.is_short:
        row = _refuse_for_room(services, partition, gate, records, now_ms)
        if row is not None:
            return row
    if attributes & SPECIAL_BITS:
        row = _refuse_special(
            services, api_version, partition, records, attributes, transactional_id, took_part
        )
        if row is not None:
            return row
        begins_at_zero = bool(attributes & TRANSACTIONAL_BIT) and api_version >= FIRST_PRODUCE_THAT_ADDS
    try:
        if outcome is not None:
            records = _recompressed(outcome)
        info = services.append(partition, records, now_ms, begins_at_zero=begins_at_zero, before=before)
    except LogError as error:
        return _row_of_error(services, partition, attributes, error)
    if info.is_duplicate:
        # batches that the log drops by their producer names have no offsets; the log counts them itself
        if info.has_offsets:
            _note_duplicate(services, partition, records, now_ms, info)
    elif gate is not None:
        gate.count_append(len(records))
    return info


def _note_duplicate(
    services: ProduceServices, partition: Partition, records: memoryview, now_ms: int, info: Appended
) -> None:
    services.counters.duplicates += 1
    services.counters.verdicts.duplicate(partition.topic, partition.index, records, now_ms, info.base_offset)


def _recompressed(outcome: Outcome) -> memoryview:
    """Return the batch in its new codec. Raises the LogError of a batch that could not be recompressed."""
    if isinstance(outcome, LogError):
        raise outcome
    return memoryview(outcome)


def _row_of_error(
    services: ProduceServices, partition: Partition, attributes: int, error: LogError
) -> ProduceRow:
    """Return the row of a batch that the log has refused; count the refusal."""
    code = error.kafka_error_code
    if code in SEQUENCE_REFUSALS:
        services.counters.rejections += 1
    is_verified_first = attributes & TRANSACTIONAL_BIT and code == INVALID_PRODUCER_EPOCH
    appended = not (
        is_verified_first or code in REFUSALS_BEFORE_THE_APPEND or isinstance(error, MalformedBatch)
    )
    row = refused_row(partition, code, str(error), appended=appended)
    return row._replace(record_errors=_record_errors(error))


def _record_errors(error: LogError) -> tuple[tuple[int, str], ...]:
    """Return the errors of single records for which the log refused a batch."""
    return error.record_errors if isinstance(error, InvalidRecord | InvalidTimestamp) else ()


def _refuse_for_room(
    services: ProduceServices,
    partition: Partition,
    gate: ProduceGate | None,
    records: memoryview,
    now_ms: int,
) -> ProduceRow | None:
    """Return the row of a batch that quota, disk space or a slow bucket refuses at present; None if the batch
    may be appended. A duplicate is answered as always.
    """
    reason = None if gate is None else gate_refusal(partition, gate, records, now_ms)
    if reason is not None:
        return refused_row(partition, REFUSED, reason, appended=False)
    if not services.disk_room.is_short or len(records) < HEADER_BYTES:
        return None
    if partition.log.is_repeated(parse_header(records), now_ms):
        return None
    room = services.disk_room
    room.refused_batches += 1
    if room.is_disk_short:
        message = f"the disk has less than {room.min_free_bytes} bytes free (seqgate.log.min.free.bytes)"
        return refused_row(partition, STORAGE_ERROR, message, appended=False)
    return refused_row(partition, REFUSED, _BUCKET_BEHIND, appended=False)


def _refuse_special(
    services: ProduceServices,
    api_version: int,
    partition: Partition,
    records: memoryview,
    attributes: int,
    transactional_id: str | None,
    took_part: TookPart | None,
) -> ProduceRow | None:
    """Return the row of a batch that its codec or its transaction refuses; add the partition to the
    transaction otherwise.
    """
    is_transactional = attributes & TRANSACTIONAL_BIT
    if is_transactional and transactional_id is None:
        code, message = without_transactional_id(partition.index)
        return refused_row(partition, int(code), message, appended=False)
    if attributes & CODEC_BITS == ZSTD and api_version < FIRST_ZSTD_VERSION:
        message = f"zstd came with Produce v{FIRST_ZSTD_VERSION}; this is v{api_version}"
        return refused_row(partition, int(ErrorCode.unsupported_compression_type), message, appended=False)
    if is_transactional and transactional_id is not None:
        return _take_part(services, api_version, partition, records, transactional_id, took_part)
    return None


def _take_part(
    services: ProduceServices,
    api_version: int,
    partition: Partition,
    records: memoryview,
    transactional_id: str,
    took_part: TookPart | None,
) -> ProduceRow | None:
    """Add the partition to the batch's transaction; return the refusing row if that fails."""
    if len(records) < HEADER_BYTES or partition.log.offline:
        return None  # The log refuses this batch later, so the transaction is not asked.
    producer = Producer(*_PRODUCER.unpack_from(records, PRODUCER_POSITION))
    if producer.producer_id < 0:
        return None  # Without a producer the batch is in no transaction (ProducerStateManager knows nothing of it).
    row = _refuse_before_taking_part(services, partition, records, producer)
    if row is not None:
        return row
    if not transactional_id:
        return refused_row(partition, int(ErrorCode.invalid_request), _NO_TRANSACTIONAL_ID, appended=False)
    try:
        _check_transaction(services, api_version, partition, producer, transactional_id, took_part)
    except (TransactionRefused, Unavailable) as error:
        code = produce_error_code(error, api_version)
        message = f"the transaction of {transactional_id} can't be written to: {error}"
        return refused_row(partition, int(code), message, appended=False)
    return None


def _check_transaction(
    services: ProduceServices,
    api_version: int,
    partition: Partition,
    producer: Producer,
    transactional_id: str,
    took_part: TookPart | None,
) -> None:
    """Check that the partition belongs to the transaction, or add it (version 2). Raises TransactionRefused,
    Unavailable.
    """
    adds = api_version >= FIRST_PRODUCE_THAT_ADDS
    if took_part is not None:
        took_part.check()
        return
    elsewhere = services.elsewhere
    if elsewhere.coordinator_of(transactional_id) is not None and (
        elsewhere.is_open_in(partition, producer) or not (adds or services.transactions.verifies)
    ):
        return
    place = partition.topic, partition.index
    services.transactions.verify_or_add(transactional_id, producer, place, VERSION_2 if adds else 0)


def _refuse_before_taking_part(
    services: ProduceServices, partition: Partition, records: memoryview, producer: Producer
) -> ProduceRow | None:
    """Return the row of a batch for which the transaction is not asked, so that the partition does not join
    it.

    Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.maybeStartTransactionVerification.
    """
    try:
        check_one_batch(records)
    except LogError as error:
        return refused_row(partition, error.kafka_error_code, str(error), appended=False)
    known = partition.log.producers.get(producer.producer_id)
    if known is None or producer.producer_epoch >= known.producer_epoch:
        return None
    services.counters.rejections += 1
    message = (
        f"producer {producer.producer_id} sent producer epoch {producer.producer_epoch}; "
        f"the partition knows the newer producer epoch {known.producer_epoch}"
    )
    return refused_row(partition, INVALID_PRODUCER_EPOCH, message, appended=False)


def refused_row(partition: Partition, code: int, message: str, *, appended: bool = True) -> ProduceRow:
    """Return the row of a refusal. The row has a log_start_offset only if the log itself refused the batch."""
    log_start_offset = partition.log.log_start_offset if appended else -1
    return ProduceRow(partition.index, code, -1, -1, log_start_offset, message[:_MESSAGE_CHARACTERS])


def final_refusal(
    services: ProduceServices,
    peer: Peer,
    client_id: str,
    key: Key,
    partition: Partition,
    records: memoryview | None,
    row: ProduceRow,
) -> ProduceRow:
    """Return the row that answers a batch which was refused; note and log why it was. `key` names the topic
    in the request.

    Another gateway that may lead the partition by now may know better: it may know a newer producer epoch, or
    earlier batches. So the client must ask for the leader.
    """
    if services.partitions.may_be_led_elsewhere:
        message = "another gateway may lead the partition by now"
        row = refused_row(partition, int(ErrorCode.not_leader_or_follower), message, appended=False)
    Refusals(services.refusals, peer).note(key, partition.index, records, row.error_code)
    services.counters.verdicts.refusal(
        partition.topic,
        partition.index,
        records,
        services.node.clock.now_ms(),
        row.error_code,
        client_id,
        row.error_message or "",
    )
    logger.info(
        "refused a batch of %s (client %r) for %s-%d with %s: %s",
        peer.name,
        client_id,
        partition.topic,
        partition.index,
        ErrorCode(row.error_code).name.upper(),
        row.error_message,
    )
    return row


def close_on_error(topics: Topics) -> None:
    """Close the connection if the request failed.

    acks=0 has no answer, and a lost connection makes the client refresh its metadata.
    """
    for _, rows in topics:
        for row in rows:
            if row.error_code:
                raise CloseConnection(
                    f"an acks=0 request failed with {ErrorCode(row.error_code).name.upper()}"
                )


FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
"""First version of Produce in which a batch adds its partition to the transaction (KIP-890)."""


def produce_error_code(error: TransactionRefused | Unavailable, api_version: int) -> ErrorCode:
    """Return the code for a batch; which codes make a producer retry or abort differs by version."""
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    is_busy = code is ErrorCode.concurrent_transactions and api_version < FIRST_PRODUCE_THAT_ADDS
    if is_busy or isinstance(error, Unavailable):
        return ErrorCode.not_enough_replicas
    return code


_BATCH_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


def refusal_of_all(
    request: ProduceRequest, may_write_as: Callable[[str], bool] | None = None
) -> tuple[ErrorCode, str] | None:
    """Return the error and message that refuse a request for all its partitions, or None.

    `may_write_as` returns whether the client may write with a transactional id; None if it may write with
    all.
    """
    for _, entries in request.topics:
        for entry in entries:
            if entry.records is None:
                continue
            try:
                is_transactional = is_transactional_frame(entry.records)
            except CorruptRecord as error:
                return ErrorCode.corrupt_message, f"The batch for partition {entry.partition}: {error}"
            if is_transactional:
                return _refusal_of_id(request.transactional_id, entry.partition, may_write_as)
    return None


def has_transactional(request: ProduceRequest) -> bool:
    """Return whether a batch of the request seems to be transactional, so that `refusal_of_all` must look at
    the request.
    """
    for _, entries in request.topics:
        for entry in entries:
            records = entry.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_AT
                and records[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG
            ):
                return True
    return False


def _refusal_of_id(
    transactional_id: str | None, index: int, may_write_as: Callable[[str], bool] | None
) -> tuple[ErrorCode, str] | None:
    if transactional_id is None:
        return without_transactional_id(index)
    if may_write_as is None or may_write_as(transactional_id):
        return None
    message = f"The batch for partition {index} is transactional; it needs WRITE on its transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


def without_transactional_id(index: int) -> tuple[ErrorCode, str]:
    """Return the error and message for a transactional batch in a request without a transactional id."""
    message = f"The batch for partition {index} is transactional; the request has no transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


def check_one_batch(records: memoryview) -> None:
    """Check that a transactional entry of a header or more is one batch, before its partition joins the
    transaction.

    Raises CorruptRecord, MalformedBatch.
    """
    (batch_length,) = _BATCH_LENGTH.unpack_from(records, _LENGTH_AT)
    if batch_length + LOG_OVERHEAD_BYTES != len(records) or records[_MAGIC_AT] != MAGIC:
        check_frame(records)


REFUSED: Final = int(ErrorCode.not_enough_replicas)
Begin = Callable[[RequestContext[ProduceServices], ProduceRequest], Answer | Deferred | None]


def gate_refusal(partition: Partition, gate: ProduceGate, records: memoryview, now_ms: int) -> str | None:
    """Return why a batch must not be appended now; None if it may be. A duplicate is answered as always."""
    if not gate.is_closed or len(records) < HEADER_BYTES:
        return None
    if partition.log.is_repeated(parse_header(records), now_ms):
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
    """Return whether a batch would have to wait. Duplicates and batches that the log would refuse need not
    wait.
    """
    gate = partition.gate
    if gate is None or not gate.holds or not gate.is_closed or partition.log.offline:
        return False
    if records is None or len(records) < HEADER_BYTES:
        return False
    return not partition.log.is_repeated(parse_header(records), context.node.clock.now_ms())


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


# Handles the errors of a Produce that is carried out after its turn, when no caller can handle them.


@contextmanager
def failing(context: RequestContext[ProduceServices], deferred: Deferred) -> Iterator[None]:
    """Run the block; log its error and fail the answer.

    The error must not reach the caller, which serves other requests too.
    """
    try:
        yield
    except CloseConnection as error:
        logger.warning("a Produce of %s that waited fails: %s", context.peer.name, error)
        deferred.fail()
    except Exception:
        logger.exception("a Produce of %s that waited can't be carried out", context.peer.name)
        deferred.fail()
