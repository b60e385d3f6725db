"""Appends the batch of one partition for a Produce, or refuses it.

A batch is checked here for what the log does not know: room on the disk, the backlog quota, the codec in the
request's version, and its transaction. The log judges everything else. Quota and room refuse a batch with
NOT_ENOUGH_REPLICAS before anything is written. Every client takes this error as intended: nothing was
written, send the batch again. librdkafka and aiokafka give up on THROTTLING_QUOTA_EXCEEDED. The error message
names the quota.

Batches come here from a decoded request, from a repeat of an earlier one (`ProduceRepeats` in produce.py),
and from one that waited (produce_late.py). All are judged alike.

The answer waits for the flush of the records. A local disk writes or fails, so nobody waits for long. A
bucket may be away for hours, so the wait for it ends when the time is up that the client gave. Records whose
wait has ended stay in the log and become durable later; a producer that sends them again is answered with
their offsets then.

Source: Kafka's ReplicaManager.appendRecords and appendToLocalLog, AddPartitionsToTxnManager, DelayedProduce.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, TypeAlias

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.load import inter_broker_listener
from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer, TransactionRefused
from seqgate.gateway.handlers.answering.api import CloseConnection, Peer, RequestContext, client_of
from seqgate.gateway.handlers.records.produce_order import Key, Refusals, note_stored, refused_before
from seqgate.gateway.protocol.produce_codec import ProduceRow
from seqgate.gateway.quota.backlog import ProduceGate
from seqgate.gateway.runtime.backlog import Backlog
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart, TransactionsElsewhere
from seqgate.gateway.runtime.partitions.batch_threads import BatchThreads, PreparedBatch
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import BatchCounters, NodeServices, Services
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from seqgate.gateway.sizes import size_in_words
from seqgate.log import (
    Appended,
    DerivedProducer,
    EarlierBatchRefused,
    InvalidRecord,
    InvalidTimestamp,
    LogError,
    MalformedBatch,
)
from seqgate.log.format.batch_validation import DONE, IF_QUICK, TakesLong, check_frame
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
_BATCH_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_PRODUCER: Final = Struct(">qh")
_PRODUCER_POSITION: Final = 43
FIRST_ZSTD_VERSION: Final = 7
FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
"""First version of Produce in which a batch adds its partition to the transaction (KIP-890)."""

REFUSED: Final = int(ErrorCode.not_enough_replicas)
STORAGE_ERROR: Final = int(ErrorCode.kafka_storage_error)
INVALID_PRODUCER_EPOCH: Final = int(ErrorCode.invalid_producer_epoch)
"""The error is found before the append for transactional batches only
(UnifiedLog.maybeStartTransactionVerification).
"""
_RETRIED: Final = {STORAGE_ERROR: logging.WARNING, REFUSED: logging.INFO}
"""The errors with which the same batch is refused many times a second, and the level of their log lines."""
_TIMED_OUT: Final = int(ErrorCode.request_timed_out)
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
_BUCKET_BEHIND: Final = (
    "too many records are not in the bucket yet (seqgate.cluster.unwritten.max.bytes); "
    "send the batch again later"
)
_NO_RIGHT_TO_DERIVE: Final = "a producer id of dead letters needs CLUSTER_ACTION on the cluster"
_NO_TRANSACTIONAL_ID: Final = "a transactional batch without a transactional id"


TopicRows = tuple[str | bytes, list[ProduceRow]]
Topics = list[TopicRows]


class ProduceServices(msgspec.Struct):
    """The services of Produce: partitions, transactions, limits that may refuse a batch, and threads for
    batches. They are direct attributes, because every batch needs them and a longer look-up costs time.
    """

    node: NodeServices
    partitions: Partitions
    counters: BatchCounters
    transactions: TransactionCoordinator
    elsewhere: TransactionsElsewhere
    backlog: Backlog
    disk_room: DiskRoom
    batch_threads: BatchThreads
    waits: ProduceWaits | None
    """The limit of the wait for a bucket; None where records go to a local disk."""
    refusals: RefusalLimit
    """The refused batches that all connections track."""
    append: Callable[..., Appended]
    """`Partition.append`, or now and then the same with a look at the clock."""

    @classmethod
    def of(cls, services: Services) -> ProduceServices:
        times = services.partitions.append_times
        selected = cls(
            node=services.node,
            partitions=services.partitions.registry,
            counters=services.partitions.counters,
            transactions=services.coordinators.transactions,
            elsewhere=services.coordinators.elsewhere,
            backlog=services.upkeep.backlog,
            disk_room=services.upkeep.disk_room,
            batch_threads=services.partitions.batch_threads,
            waits=ProduceWaits(services.node.loop) if services.partitions.flusher.unwritten else None,
            refusals=services.partitions.refusals,
            append=Partition.append,
        )
        if times is not None:
            times.follow(partial(setattr, selected, "append"))
        return selected


ProduceContext: TypeAlias = RequestContext[ProduceServices]


def append_batch(  # noqa: C901, PLR0912 - the steps of every batch, in their order and in one call
    services: ProduceServices,
    api_version: int,
    peer: Peer,
    client_id: str,
    key: Key,
    partition: Partition,
    records: memoryview | None,
    transactional_id: str | None,
    now_ms: int,
    outcome: PreparedBatch | None = None,
    took_part: TookPart | None = None,
) -> Appended | ProduceRow:
    """Append the batch of one partition; return its offsets, or the row that refuses it. Note a refusal on
    the connection, because later batches of the producer must not overtake the batch. `key` names the topic
    in the request. `records` are checked as they were sent. After a thread has checked them, `outcome` is
    appended in their place, or refuses them as the log would. `took_part` is the answer of the gateway that
    coordinates the transaction, where that is another one. Raises TakesLong where a thread must check them.
    """
    if records is None:
        row = refused_row(partition, int(ErrorCode.invalid_record), "no records", appended=False)
        return _final_refusal(services, peer, client_id, key, partition, records, row)
    attributes = records[ATTRIBUTES_POSITION] if len(records) > ATTRIBUTES_POSITION else 0
    begins_at_zero = False
    gate = partition.gate
    try:
        if gate is not None or services.disk_room.is_short:
            _check_room(services, partition, gate, records, now_ms)
        if attributes & _SPECIAL_BITS:
            _check_attributes(api_version, partition, attributes, transactional_id)
            if attributes & TRANSACTIONAL_FLAG:
                _take_part(services, api_version, partition, records, transactional_id, took_part)
                begins_at_zero = api_version >= FIRST_PRODUCE_THAT_ADDS
        before = None
        if peer.refused is not None or partition.strict_until_ms:
            before = refused_before(peer, key, partition, now_ms)
        stored, record_check = records, IF_QUICK
        if outcome is not None:
            stored, record_check = _prepared(outcome), DONE
        try:
            info = services.append(
                partition,
                stored,
                now_ms,
                begins_at_zero=begins_at_zero,
                before=before,
                record_check=record_check,
            )
        except DerivedProducer:
            if not _is_from_gateway(services, peer, partition):
                raise
            info = partition.append(stored, now_ms, may_derive=True, record_check=record_check)
        except TakesLong:
            if not partition.log.is_repeated(parse_header(stored), now_ms):
                raise
            info = partition.append(stored, now_ms, record_check=DONE)
    except LogError as error:
        row = _row_of_error(services, partition, attributes, error)
        waits = isinstance(error, EarlierBatchRefused)
        return _final_refusal(services, peer, client_id, key, partition, records, row, waits)
    except _Refused as refusal:
        return _final_refusal(services, peer, client_id, key, partition, records, refusal.row)
    batch = info.batch
    if info.is_duplicate:
        _note_duplicate(services, peer, client_id, partition, stored, now_ms, info)
    elif gate is not None and batch is not None:
        gate.count_append(batch.size_bytes)
    if batch is not None and (
        batch.producer_id != peer.producer_id or batch.producer_epoch != peer.producer_epoch
    ):
        peer.producer_id, peer.producer_epoch = batch.producer_id, batch.producer_epoch
        services.counters.clients.note(
            batch.producer_id, batch.producer_epoch, client_of(peer, client_id), now_ms
        )
    if peer.refused is not None:
        note_stored(peer, key, partition.index, records)
    return info


def _note_duplicate(
    services: ProduceServices,
    peer: Peer,
    client_id: str,
    partition: Partition,
    stored: memoryview,
    now_ms: int,
    info: Appended,
) -> None:
    # batches that the log drops by their producer names have no offsets; the log counts them itself
    if info.has_offsets:
        services.counters.duplicates += 1
        services.counters.verdicts.duplicate(
            partition.topic, partition.index, stored, now_ms, info.base_offset, client_of(peer, client_id)
        )


class _Refused(Exception):
    """The batch is refused before the log has judged it. The row has no log_start_offset."""

    def __init__(self, partition: Partition, code: int | ErrorCode, message: str) -> None:
        super().__init__(message)
        self.row = refused_row(partition, int(code), message, appended=False)


def _is_from_gateway(services: ProduceServices, peer: Peer, partition: Partition) -> bool:
    """Return whether another gateway may send the dead letters of its partitions on this connection. Raises
    _Refused for one that lacks the right, so that its letters wait.
    """
    node = services.node
    if node.brokers.is_alone or peer.listener_name != inter_broker_listener(node.config):
        return False
    if node.access.is_on and not node.access.allows(
        peer.principal, peer.peer_host, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise _Refused(partition, ErrorCode.cluster_authorization_failed, _NO_RIGHT_TO_DERIVE)
    return True


def _prepared(outcome: PreparedBatch) -> memoryview:
    """Return the batch as it is to be stored. Raises the LogError that refuses the batch."""
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
    return row._replace(
        record_errors=error.record_errors if isinstance(error, InvalidRecord | InvalidTimestamp) else ()
    )


def _check_room(
    services: ProduceServices,
    partition: Partition,
    gate: ProduceGate | None,
    records: memoryview,
    now_ms: int,
) -> None:
    """Check that quota, disk space and a slow bucket allow a batch; duplicates by sequence pass. Raises
    _Refused.
    """
    room = services.disk_room
    is_closed = gate is not None and gate.is_closed
    if not (is_closed or room.is_short) or len(records) < HEADER_BYTES:
        return
    if partition.log.is_repeated(parse_header(records), now_ms):
        return
    if gate is not None and is_closed:
        services.counters.backlog_refusals += 1
        raise _Refused(partition, REFUSED, gate.refuse())
    room.refused_batches += 1
    if room.is_disk_short:
        free = size_in_words(room.min_free_bytes)
        message = f"the disk has less than {free} free (seqgate.log.min.free.bytes)"
        raise _Refused(partition, STORAGE_ERROR, message)
    raise _Refused(partition, REFUSED, _BUCKET_BEHIND)


def _check_attributes(
    api_version: int, partition: Partition, attributes: int, transactional_id: str | None
) -> None:
    if attributes & TRANSACTIONAL_FLAG and transactional_id is None:
        error = ErrorCode.transactional_id_authorization_failed
        raise _Refused(partition, error, no_transactional_id(partition.index))
    if attributes & CODEC_BITS == ZSTD and api_version < FIRST_ZSTD_VERSION:
        message = f"zstd came with Produce v{FIRST_ZSTD_VERSION}; this is v{api_version}"
        raise _Refused(partition, ErrorCode.unsupported_compression_type, message)


def _take_part(
    services: ProduceServices,
    api_version: int,
    partition: Partition,
    records: memoryview,
    transactional_id: str | None,
    took_part: TookPart | None,
) -> None:
    """Check that the batch's transaction has the partition, or add it (version 2). Raises _Refused."""
    if len(records) < HEADER_BYTES or partition.log.offline:
        return  # The log refuses this batch later, so the transaction is not asked.
    producer = producer_of(records)
    if producer.producer_id < 0:
        return  # Without a producer there is no transaction (ProducerStateManager knows nothing of it).
    _check_before_taking_part(services, partition, records, producer)
    if not transactional_id:
        raise _Refused(partition, ErrorCode.invalid_request, _NO_TRANSACTIONAL_ID)
    try:
        if took_part is not None:
            took_part.check(partition)
        elif services.elsewhere.coordinator_of(transactional_id) is None or needs_answer(
            services, partition, producer, api_version
        ):
            place = partition.topic, partition.index
            services.transactions.verify_or_add(
                transactional_id, producer, place, client_version(api_version)
            )
    except (TransactionRefused, Unavailable) as error:
        code = produce_error_code(error, api_version)
        message = f"the transaction of {transactional_id} can't be written to: {error}"
        raise _Refused(partition, code, message) from None


def producer_of(records: memoryview) -> Producer:
    return Producer(*_PRODUCER.unpack_from(records, _PRODUCER_POSITION))


def client_version(api_version: int) -> int:
    """Return the version of transactions that a Produce of this version speaks."""
    return VERSION_2 if api_version >= FIRST_PRODUCE_THAT_ADDS else 0


def needs_answer(
    services: ProduceServices, partition: Partition, producer: Producer, api_version: int
) -> bool:
    """Return whether the batch needs the answer of another gateway that coordinates its transaction."""
    if api_version < FIRST_PRODUCE_THAT_ADDS and not services.transactions.verifies:
        return False
    return not services.elsewhere.is_open_in(partition, producer)


def _check_before_taking_part(
    services: ProduceServices, partition: Partition, records: memoryview, producer: Producer
) -> None:
    """Refuse a batch before its partition joins the transaction. Raises _Refused. Source: Kafka's
    ProduceRequest.validateRecords, UnifiedLog.maybeStartTransactionVerification.
    """
    try:
        check_one_batch(records)
    except LogError as error:
        raise _Refused(partition, error.kafka_error_code, str(error)) from None
    known = partition.log.producers.get(producer.producer_id)
    if known is None or producer.producer_epoch >= known.producer_epoch:
        return
    services.counters.rejections += 1
    message = (
        f"producer {producer.producer_id} sent producer epoch {producer.producer_epoch}; "
        f"the partition knows the newer producer epoch {known.producer_epoch}"
    )
    raise _Refused(partition, INVALID_PRODUCER_EPOCH, message)


def check_one_batch(records: memoryview) -> None:
    """Check that a transactional entry of a header or more is one batch, before its partition joins the
    transaction. Raises CorruptRecord, MalformedBatch.
    """
    (batch_length,) = _BATCH_LENGTH.unpack_from(records, _LENGTH_POSITION)
    if batch_length + LOG_OVERHEAD_BYTES != len(records) or records[_MAGIC_POSITION] != MAGIC:
        check_frame(records)


def no_transactional_id(index: int) -> str:
    """Return the message for a transactional batch in a request without a transactional id."""
    return f"The batch for partition {index} is transactional; the request has no transactional id."


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
    """Return the row of a refusal; it has a log_start_offset only if the log itself refused the batch."""
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
    waits: bool = False,
) -> ProduceRow:
    """Return the row of a refused batch, which perhaps only `waits` for an earlier one; note and log why.
    Another gateway that leads the partition by now may know a newer producer epoch or earlier batches, so the
    client must ask for the leader.
    """
    if services.partitions.may_be_led_elsewhere:
        message = "another gateway may lead the partition by now"
        row = refused_row(partition, int(ErrorCode.not_leader_or_follower), message, appended=False)
    Refusals(services.refusals, peer).note(key, partition.index, records, row.error_code, waits=waits)
    client = client_of(peer, client_id)
    verdict = services.counters.verdicts.refusal(
        partition.topic,
        partition.index,
        records,
        services.node.clock.now_ms(),
        row.error_code,
        client,
        row.error_message or "",
    )
    level, left_out = _RETRIED.get(row.error_code), None
    if level is not None:
        left_out = services.counters.retried.left_out(row.error_code, services.node.clock.now_ms())
        if left_out is None:
            return row
    owner = None
    if row.error_code == INVALID_PRODUCER_EPOCH:
        owner = services.counters.clients.newest(verdict.producer_id)
    logger.log(
        level or logging.INFO,
        "refused a batch of %s for %s-%d with %s: %s%s%s",
        client,
        partition.topic,
        partition.index,
        verdict.outcome,
        row.error_message,
        "" if owner in {None, client} else f"; the producer belongs to {owner} now",
        f"; {left_out} more since the last such line" if left_out else "",
    )
    return row


def close_on_error(topics: Topics) -> None:
    """Close the connection after an error: acks=0 has no answer, and the client then refreshes metadata."""
    for _, rows in topics:
        for row in rows:
            if row.error_code:
                raise CloseConnection(
                    f"an acks=0 request failed with {ErrorCode(row.error_code).name.upper()}"
                )


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
    """Return the row of records in the log that the bucket did not have in time. Producers resend them."""
    message = "the records are not in the bucket yet"
    return ProduceRow(partition, _TIMED_OUT, -1, -1, -1, message)


CHECK_S: Final = 1.0
"""The seconds between two checks of the requests that wait, so a wait may last so much longer."""


class ProduceWaits:
    """Rows of answers whose records are not in the bucket yet. Belongs to one event loop; may be idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Wait, None] = {}
        self._is_checking = False

    def __len__(self) -> int:
        """Return the number of rows that wait."""
        return len(self._waiting)

    def limited(
        self, timeout_ms: int, decided: Callable[[bool], None], expired: Callable[[], None]
    ) -> Callable[[bool], None]:
        """Return the callback for the records' durability: `decided`, unless `expired` was called before."""
        wait = _Wait(self._waiting, self._loop.time() + timeout_ms / 1000, decided, expired)
        self._waiting[wait] = None
        if not self._is_checking:
            self._check_later()
        return wait.decide

    def _check_later(self) -> None:
        self._is_checking = True
        self._loop.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        self._is_checking = False
        now_s = self._loop.time()
        for wait in [wait for wait in self._waiting if wait.deadline_s <= now_s]:
            wait.expire()
        if self._waiting:
            self._check_later()


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
