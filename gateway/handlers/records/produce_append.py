"""Appends the batch of one partition for a Produce: refuses it, lets its answer wait, or confirms it.

A batch is checked here for what the log does not know: room on the disk, the backlog quota, the codec in the
request's version, and its transaction. The log judges everything else. Quota and room refuse a batch with
NOT_ENOUGH_REPLICAS before anything is written. Every client takes this error as intended: nothing was
written, send the batch again. librdkafka and aiokafka give up on THROTTLING_QUOTA_EXCEEDED. The error message
names the quota.

The answer waits for the flush of the records. A local disk writes or fails, so nobody waits for long. A
bucket may be away for hours, so the wait for it ends when the time is up that the client gave. Records whose
wait has ended stay in the log and become durable later; a producer that sends them again is answered with
their offsets then.

Source: Kafka's ReplicaManager.appendRecords and appendToLocalLog, AddPartitionsToTxnManager, DelayedProduce.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer, TransactionRefused
from seqgate.gateway.handlers.answering.api import CloseConnection, Deferred, Peer, RequestContext
from seqgate.gateway.handlers.answering.leaders import name_leaders
from seqgate.gateway.handlers.records.produce_order import Key, Refusals, note_stored, refused_before
from seqgate.gateway.protocol.produce_codec import ProduceRow, encode_produce_response
from seqgate.gateway.protocol.produce_codec import TopicRows as CodecTopicRows
from seqgate.gateway.quota.backlog import ProduceGate
from seqgate.gateway.runtime.backlogs.backlog import Backlog
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart, TransactionsElsewhere
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.recompressor import Outcome, Recompressor
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import BatchCounters, NodeServices, Services
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.log import Appended, InvalidRecord, InvalidTimestamp, LogError, MalformedBatch
from seqgate.log.format.batch_validation import check_frame
from seqgate.log.format.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from seqgate.seq_validator import RefusalLimit

logger = logging.getLogger(__name__)

_MESSAGE_CHARACTERS: Final = 1_000
"""Characters of an error message that are sent. Messages contain ids and names that clients choose, and v8
can't encode a longer string.
"""
ATTRIBUTES_POSITION: Final = 22
"""The position of the low byte of a batch's attributes."""
CODEC_BITS: Final = 0x07
ZSTD: Final = 4
_SPECIAL_BITS: Final = TRANSACTIONAL_FLAG | ZSTD
"""The attribute bits that need checks before the append. A batch without them is appended at once."""
_BATCH_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_POSITION: Final = 43
FIRST_ZSTD_VERSION: Final = 7
FIRST_WITH_LEADERS: Final = 10
"""The first version whose answers name the leader that the client should ask (KIP-951)."""
FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
"""First version of Produce in which a batch adds its partition to the transaction (KIP-890)."""

REFUSED: Final = int(ErrorCode.not_enough_replicas)
STORAGE_ERROR: Final = int(ErrorCode.kafka_storage_error)
INVALID_PRODUCER_EPOCH: Final = int(ErrorCode.invalid_producer_epoch)
"""The error is found before the append for transactional batches only
(UnifiedLog.maybeStartTransactionVerification).
"""
_UNSETTLED: Final = int(ErrorCode.not_enough_replicas_after_append)
_TIMED_OUT: Final = int(ErrorCode.request_timed_out)
_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower),))
_REFUSALS_BEFORE_THE_APPEND: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.corrupt_message,
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.kafka_storage_error,
    )
)
"""Errors found before the append; their rows have log_start_offset −1 (ReplicaManager.appendToLocalLog)."""
_SEQUENCE_REFUSALS: Final = frozenset((int(ErrorCode.out_of_order_sequence_number), INVALID_PRODUCER_EPOCH))
_BUCKET_BEHIND: Final = "too many records are not in the bucket yet (seqgate.cluster.unwritten.max.bytes); send the batch again later"
_NO_TRANSACTIONAL_ID: Final = "a transactional batch without a transactional id"


TopicRows = tuple[str | bytes, list[ProduceRow]]
Topics = list[TopicRows]


@dataclass(slots=True)
class ProduceServices:
    """What Produce uses, as direct attributes, because every batch needs them and a longer look-up costs
    time: the partitions, the transactions that batches take part in, the limits that may refuse a batch, and
    the threads that recompress.
    """

    node: NodeServices
    partitions: Partitions
    counters: BatchCounters
    transactions: TransactionCoordinator
    elsewhere: TransactionsElsewhere
    backlog: Backlog
    disk_room: DiskRoom
    recompressor: Recompressor
    waits: ProduceWaits | None
    """The limit of the wait for a bucket; None where records go to a local disk."""
    refusals: RefusalLimit
    """The refused batches that all connections remember."""
    append: Callable[..., Appended]
    """`Partition.append`, or now and then the same with a look at the clock."""

    @classmethod
    def of(cls, services: Services) -> ProduceServices:
        """Select these services from all services."""
        times = services.partitions.append_times
        selected = cls(
            node=services.node,
            partitions=services.partitions.registry,
            counters=services.partitions.counters,
            transactions=services.coordinators.transactions,
            elsewhere=services.coordinators.elsewhere,
            backlog=services.upkeep.backlog,
            disk_room=services.upkeep.disk_room,
            recompressor=services.partitions.recompressor,
            waits=ProduceWaits(services.node.loop) if services.partitions.flusher.unwritten else None,
            refusals=services.partitions.refusals,
            append=Partition.append,
        )
        if times is not None:
            times.follow(partial(setattr, selected, "append"))
        return selected


ProduceContext: TypeAlias = RequestContext[ProduceServices]


def append_batch(
    services: ProduceServices,
    api_version: int,
    peer: Peer,
    client_id: str,
    key: Key,
    partition: Partition,
    records: memoryview | None,
    transactional_id: str | None,
    now_ms: int,
    outcome: Outcome | None = None,
    took_part: TookPart | None = None,
) -> Appended | ProduceRow:
    """Append the batch of one partition; return its offsets, or the row that refuses it. Note a refusal on
    the connection, because later batches of the producer must not overtake the batch.

    `key` names the topic in the request. `records` are checked as they were sent. After recompression,
    `outcome` is appended in their place, or refuses them as the log would. `took_part` is the answer of the
    gateway that coordinates the transaction, where that is another one.
    """
    if records is None:
        row = refused_row(partition, int(ErrorCode.invalid_record), "no records", appended=False)
        return _final_refusal(services, peer, client_id, key, partition, records, row)
    attributes = records[ATTRIBUTES_POSITION] if len(records) > ATTRIBUTES_POSITION else 0
    begins_at_zero = False
    gate = partition.gate
    if gate is not None or services.disk_room.is_short:
        refusal = _refuse_for_room(services, partition, gate, records, now_ms)
        if refusal is not None:
            return _final_refusal(services, peer, client_id, key, partition, records, refusal)
    if attributes & _SPECIAL_BITS:
        refusal = _refuse_special(
            services, api_version, partition, records, attributes, transactional_id, took_part
        )
        if refusal is not None:
            return _final_refusal(services, peer, client_id, key, partition, records, refusal)
        begins_at_zero = bool(attributes & TRANSACTIONAL_FLAG) and api_version >= FIRST_PRODUCE_THAT_ADDS
    before = None
    if peer.refused is not None or partition.strict_until_ms:
        before = refused_before(peer, key, partition, now_ms)
    try:
        stored = records if outcome is None else _recompressed(outcome)
        info = services.append(partition, stored, now_ms, begins_at_zero=begins_at_zero, before=before)
    except LogError as error:
        row = _row_of_error(services, partition, attributes, error)
        return _final_refusal(services, peer, client_id, key, partition, records, row)
    if info.is_duplicate:
        # batches that the log drops by their producer names have no offsets; the log counts them itself
        if info.has_offsets:
            _note_duplicate(services, partition, stored, now_ms, info)
    elif gate is not None:
        gate.count_append(len(stored))
    if peer.refused is not None:
        note_stored(peer, key, partition.index, records)
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
    if code in _SEQUENCE_REFUSALS:
        services.counters.rejections += 1
    is_verified_first = attributes & TRANSACTIONAL_FLAG and code == INVALID_PRODUCER_EPOCH
    appended = not (
        is_verified_first or code in _REFUSALS_BEFORE_THE_APPEND or isinstance(error, MalformedBatch)
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
    room = services.disk_room
    is_closed = gate is not None and gate.is_closed
    if not (is_closed or room.is_short) or len(records) < HEADER_BYTES:
        return None
    if partition.log.is_repeated(parse_header(records), now_ms):
        return None
    if gate is not None and is_closed:
        return refused_row(partition, REFUSED, gate.refuse(), appended=False)
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
    is_transactional = attributes & TRANSACTIONAL_FLAG
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
    producer = producer_of(records)
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
    if took_part is not None:
        took_part.check()
        return
    if services.elsewhere.coordinator_of(transactional_id) is not None and not needs_answer(
        services, partition, producer, api_version
    ):
        return
    place = partition.topic, partition.index
    services.transactions.verify_or_add(transactional_id, producer, place, client_version(api_version))


def producer_of(records: memoryview) -> Producer:
    """Return the producer in the header of a batch."""
    return Producer(*_PRODUCER.unpack_from(records, _PRODUCER_POSITION))


def client_version(api_version: int) -> int:
    """Return the version of transactions that a Produce of this version speaks."""
    return VERSION_2 if api_version >= FIRST_PRODUCE_THAT_ADDS else 0


def needs_answer(
    services: ProduceServices, partition: Partition, producer: Producer, api_version: int
) -> bool:
    """Return whether a batch of a transaction that another gateway coordinates may only be appended with the
    coordinator's answer.
    """
    if api_version < FIRST_PRODUCE_THAT_ADDS and not services.transactions.verifies:
        return False
    return not services.elsewhere.is_open_in(partition, producer)


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


def check_one_batch(records: memoryview) -> None:
    """Check that a transactional entry of a header or more is one batch, before its partition joins the
    transaction.

    Raises CorruptRecord, MalformedBatch.
    """
    (batch_length,) = _BATCH_LENGTH.unpack_from(records, _LENGTH_POSITION)
    if batch_length + LOG_OVERHEAD_BYTES != len(records) or records[_MAGIC_POSITION] != MAGIC:
        check_frame(records)


def without_transactional_id(index: int) -> tuple[ErrorCode, str]:
    """Return the error and message for a transactional batch in a request without a transactional id."""
    message = f"The batch for partition {index} is transactional; the request has no transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


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


def refused_row(partition: Partition, code: int, message: str, *, appended: bool = True) -> ProduceRow:
    """Return the row of a refusal. The row has a log_start_offset only if the log itself refused the batch."""
    log_start_offset = partition.log.log_start_offset if appended else -1
    return ProduceRow(partition.index, code, -1, -1, log_start_offset, message[:_MESSAGE_CHARACTERS])


def _final_refusal(
    services: ProduceServices,
    peer: Peer,
    client_id: str,
    key: Key,
    partition: Partition,
    records: memoryview | None,
    row: ProduceRow,
) -> ProduceRow:
    """Return the row that answers a batch which was refused; note and log why it was.

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


# The answer, which waits until the records are persisted.


def produce_frame(context: ProduceContext, topics: Sequence[CodecTopicRows]) -> bytes:
    """Return the whole frame of an answer."""
    version = context.api_version
    if version < FIRST_WITH_LEADERS or context.node.brokers.is_alone:
        return encode_produce_response(version, context.correlation_id, topics)
    topics, endpoints = name_leaders(context, topics, _LED_ELSEWHERE)
    return encode_produce_response(version, context.correlation_id, topics, endpoints)


class PendingAnswer:
    """An answer whose rows wait for flushes. The last flush to end resolves `deferred`."""

    __slots__ = ("context", "deferred", "has_state", "timeout_ms", "topics", "waiting")

    def __init__(self, context: ProduceContext, topics: Topics, timeout_ms: int) -> None:
        """Wait for up to `timeout_ms` where the records go to a bucket."""
        self.context = context
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.deferred = Deferred()
        self.waiting = 1
        """The number of flushes to wait for, plus one until `complete`."""
        self.has_state = True
        """Whether the state of the transactions that the rows need is durable."""

    def wait(self, rows: list[ProduceRow], position: int, partition: Partition, info: Appended) -> None:
        """Delay the answer until the flush of the appended batch, whose row is at `position`."""
        self.waiting += 1
        decided: Callable[[bool], None] = partial(self._row_decided, rows, position, info)
        waits = self.context.services.waits
        if waits is not None:
            expired = partial(self._row_expired, rows, position, info)
            decided = waits.limited(self.timeout_ms, decided, expired)
        partition.when_decided(info.answer_after, decided)

    def wait_for_state(self, state: Partition, offset: int) -> None:
        """Delay the answer until the state of the transaction, which lists the rows' partitions, is durable."""
        self.waiting += 1
        decided: Callable[[bool], None] = self._state_decided
        waits = self.context.services.waits
        if waits is not None:
            decided = waits.limited(self.timeout_ms, decided, partial(self._state_decided, persisted=False))
        state.when_decided(offset, decided)

    def complete(self) -> Deferred:
        """Return the future of the answer. No row is added after this call."""
        self.waiting -= 1
        if not self.waiting:
            self._answer()
        return self.deferred

    def _row_decided(self, rows: list[ProduceRow], position: int, info: Appended, persisted: bool) -> None:
        if not persisted:
            self._refuse(rows, position, info, unflushed_row(rows[position].partition))
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _row_expired(self, rows: list[ProduceRow], position: int, info: Appended) -> None:
        self._refuse(rows, position, info, expired_row(rows[position].partition))
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _refuse(self, rows: list[ProduceRow], position: int, info: Appended, row: ProduceRow) -> None:
        rows[position] = row
        key = next(key for key, found in self.topics if found is rows)
        note_unsettled(self.context.services, self.context.peer, key, info, row)

    def _state_decided(self, persisted: bool) -> None:
        self.has_state = persisted
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _answer(self) -> None:
        if not self.has_state:
            self._refuse_without_state()
        context = self.context
        try:
            frame = produce_frame(context, self.topics)
        except struct.error as error:
            # the topic name is too long for this version, because each invalid byte of its UTF-8 was replaced
            # by three
            logger.warning("a Produce of %s can't be answered: %s", context.peer.name, error)
            self.deferred.fail()
            return
        self.deferred.resolve(frame)

    def _refuse_without_state(self) -> None:
        """Refuse all rows with an error that clients retry.

        Otherwise a crash could leave their batches outside of the transaction.
        """
        message = "the state of the transaction could not be flushed"
        for _, rows in self.topics:
            for position, row in enumerate(rows):
                if not row.error_code:
                    rows[position] = ProduceRow(row.partition, _UNSETTLED, -1, -1, -1, message)


def note_unsettled(services: ProduceServices, peer: Peer, key: Key, info: Appended, row: ProduceRow) -> None:
    """Note that an appended batch was refused with `row`. The log may lose it when it is reopened, so later
    batches must not be stored before it.
    """
    if info.batch is not None:
        Refusals(services.refusals, peer).note_batch(key, row.partition, info.batch, row.error_code)


def unflushed_row(partition: int) -> ProduceRow:
    """Return the row of records that a failed flush has lost."""
    message = "the records could not be flushed; the partition is offline"
    return ProduceRow(partition, STORAGE_ERROR, -1, -1, -1, message)


def expired_row(partition: int) -> ProduceRow:
    """Return the row of records that are in the log, and that the bucket did not have in time. Producers send
    them again.
    """
    message = "the records are not in the bucket yet"
    return ProduceRow(partition, _TIMED_OUT, -1, -1, -1, message)


LOOK_S: Final = 1.0
"""The seconds between two looks at the requests that wait, so a wait may last so much longer."""


class ProduceWaits:
    """The rows of answers that wait until their records are in the bucket. Belongs to one event loop; idle
    while nothing waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Wait, None] = {}
        self._is_looking = False

    def __len__(self) -> int:
        """Return the number of rows that wait."""
        return len(self._waiting)

    def limited(
        self, timeout_ms: int, decided: Callable[[bool], None], expired: Callable[[], None]
    ) -> Callable[[bool], None]:
        """Return what to call when it is decided whether the records are durable: `decided`, unless `expired`
        was called before.
        """
        wait = _Wait(self._waiting, self._loop.time() + timeout_ms / 1000, decided, expired)
        self._waiting[wait] = None
        if not self._is_looking:
            self._look_later()
        return wait.decide

    def _look_later(self) -> None:
        self._is_looking = True
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        now_s = self._loop.time()
        for wait in [wait for wait in self._waiting if wait.deadline_s <= now_s]:
            wait.expire()
        if self._waiting:
            self._look_later()


class _Wait:
    """One row. Whichever of `decide` and `expire` comes first is passed on."""

    __slots__ = ("_decided", "_expired", "_waiting", "deadline_s")

    def __init__(
        self,
        waiting: dict[_Wait, None],
        deadline_s: float,
        decided: Callable[[bool], None],
        expired: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self.deadline_s = deadline_s
        self._decided = decided
        self._expired = expired

    def decide(self, persisted: bool) -> None:
        if self._waiting.pop(self, self) is None:
            self._decided(persisted)

    def expire(self) -> None:
        if self._waiting.pop(self, self) is None:
            self._expired()
