"""Produce (key 0, versions 3–13): append batches, answer when their records are persisted and visible.
Rights: `WRITE` on the topic; `WRITE` on the transactional id (batches in a transaction).

The first stage appends every partition's batch in the order of arrival. The second stage waits until the high
watermark has passed the records: until their flush, which requests share, or not at all where
`flush.messages` chooses Kafka's page cache. If a batch added its partition to a transaction (KIP-890), the
transaction's state must be durable, too. acks=1 means the same as acks=all, because a partition has one
replica; acks=0 has no answer.

Both rights are checked before anything else, also before a request is held. Kafka checks the right before it
looks for the partition, so the answer for a topic without WRITE is the same whether or not the topic exists.
A topic id that nobody has is not secret: it gets UNKNOWN_TOPIC_ID.

Kafka reads the first batch of one partition after the other, up to the first transactional one, to find out
whether the request writes in a transaction. So a frame before it that can't be read, or a transactional batch
without a transactional id that the client may write with, refuses the request for all its partitions.

Versions 0–2 are advertised but refused, because librdkafka before 2.8 takes a missing Produce v0 for a
broker without compression (KAFKA-18659; Kafka 4 answers the same way).

The fast path takes requests that equal an earlier one except for correlation id and records, from v5 on and
without a transactional id.
Nearly all requests of a producer are such repeats. The prefix of a request for one partition is the part
before its records: client id, acks, topic, partition. A producer sends the same prefix each time, so the
gateway decodes it once, and caches for it the partition and the constant parts of the answer. The batch
itself is judged by the same code as in other requests. With an authorizer, each request asks for its right
anew, because clients with other rights may send the same prefix; without the right it is decoded, and refused
as any other. `produce_prefix.py` has the layout of such a request.

`produce_append.py` has the append of one batch, `produce_late.py` what is carried out later,
`produce_order.py` the order behind refused batches.
Source: Kafka's KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest,
RequestUtils.hasTransactionalRecords; ProduceRequest.json, ProduceResponse.json.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import (
    NOT_REPEATED,
    Api,
    CloseConnection,
    Deferred,
    NotRepeated,
    Peer,
    ResponseBytes,
)
from seqgate.gateway.handlers.answering.leaders import name_leaders
from seqgate.gateway.handlers.records.produce_append import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    REFUSED,
    ProduceContext,
    ProduceServices,
    TopicRows,
    Topics,
    append_batch,
    close_on_error,
    expired_row,
    no_transactional_id,
    note_unsettled,
    unflushed_row,
)
from seqgate.gateway.handlers.records.produce_late import (
    OBJECTS_BYTES,
    Begun,
    InThreads,
    Late,
    LateBatch,
    copied,
    hold,
    kept_entry,
    must_ask,
    must_recompress,
    size_of,
    verify,
)
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.protocol.produce_codec import (
    PartitionRecords,
    ProduceRequest,
    ProduceRow,
    encode_produce_response,
    produce_reader,
)
from seqgate.gateway.protocol.produce_codec import TopicRows as CodecTopicRows
from seqgate.gateway.protocol.produce_prefix import is_for_one_partition, split_request
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.loop.clock import NS_PER_MS
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.batch_threads import PreparedBatch
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.log import Appended, CorruptRecord
from seqgate.log.format.batch_validation import TakesLong, is_transactional_frame
from seqgate.log.format.record_batch import TRANSACTIONAL_FLAG

logger = logging.getLogger(__name__)

MANY_PARTITIONS: Final = 1000
"""A request with more partitions, which no known client sends, is appended in slices, so that other requests
get their turn.
"""
MANY_TO_OPEN: Final = 16
"""A request that must open more partitions than this is appended in slices, too."""
LONG_S: Final = 0.05
"""After this time the rest of a request is appended in later turns. Judging the records of many batches may
take long.
"""
_NO_ROOM: Final = "too many requests that take long are under way (queued.max.request.bytes)"
_INVALID_TOPIC: Final = int(ErrorCode.invalid_topic_exception)
_UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_UNKNOWN_TOPIC_ID: Final = int(ErrorCode.unknown_topic_id)
_WRONG_ACKS: Final = int(ErrorCode.invalid_required_acks)
_UNSETTLED: Final = int(ErrorCode.not_enough_replicas_after_append)
_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower),))
FIRST_WITH_LEADERS: Final = 10
"""The first version whose answers name the leader that the client should ask (KIP-951)."""
_DENIED: Final = int(ErrorCode.topic_authorization_failed)


def begin(
    context: ProduceContext, request: ProduceRequest, refused: Sequence[TopicRows] | None = None
) -> Begun:
    """Check the client's rights, and append the batches now, or later if a backlog quota makes them wait. The
    answer follows when the records are persisted. `refused` has the rows of topics that the client may not
    write to; None if the rights are not checked yet.
    """
    if refused is None:
        refused = ()
        if context.node.access.is_on:
            refusal = refusal_of_all(request, partial(context.may_transactional_id, Operation.WRITE))
            if refusal is not None:
                return _refuse_all(context, request, *refusal)
            if len(request.topics) > MANY_PARTITIONS:
                deferred = _begin_in_slices(context, request)
                if deferred is not None:
                    return deferred
            keys = {topic.key for topic in request.topics}
            errors = {key: error for key in keys if (error := _error_of_right(context, key))}
            request, refused = _split(context, request, errors)
    if context.services.backlog.holds:
        held = hold(context, request, lambda kept: append(context, kept, refused))
        if held is not None:
            return held
    return append(context, request, refused)


def append(context: ProduceContext, request: ProduceRequest, refused: Sequence[TopicRows] = ()) -> Begun:
    """Append all batches of the request now. The answer follows when the records are persisted. `refused` are
    the rows of the topics that the client may not write to, which `request` no longer has.
    """
    if request.acks not in {-1, 0, 1}:
        return _refuse_acks(context, request, refused)
    appending = _Appending(context, request, refused)
    steps = appending.steps()
    if appending.is_single and (request.transactional_id is not None or not _has_transactional(request)):
        for _ in steps:
            pass
        return appending.answer()
    refusal = refusal_of_all(request)
    if refusal is not None:
        return _refuse_all(context, request, *refusal, refused=refused)
    now_s = context.node.loop.time
    until_s = now_s() if _takes_long(context, request) else now_s() + LONG_S
    for _ in steps:
        if now_s() >= until_s and appending.has_more and not appending.refuses:
            deferred = appending.go_on_in_slices(steps)
            if deferred is not None:
                return deferred
            appending.refuses = True
    return appending.answer()


def _has_transactional(request: ProduceRequest) -> bool:
    """Return whether a batch seems to be transactional, so that `refusal_of_all` must look at the request."""
    for _, entries in request.topics:
        for entry in entries:
            records = entry.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_POSITION
                and records[ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG
            ):
                return True
    return False


def _takes_long(context: ProduceContext, request: ProduceRequest) -> bool:
    count = sum(len(entries) for _, entries in request.topics)
    if count <= MANY_TO_OPEN:
        return False
    if count > MANY_PARTITIONS:
        return True
    by_key = context.services.partitions.by_key
    to_open = 0
    for key, entries in request.topics:
        topic = by_key.get(key)
        if topic is not None:
            to_open += sum(
                topic.has(entry.partition) and topic.peek(entry.partition) is None for entry in entries
            )
    return to_open > MANY_TO_OPEN


class _Appending:
    def __init__(
        self, context: ProduceContext, request: ProduceRequest, refused: Sequence[TopicRows]
    ) -> None:
        """Take the batches by topic. Of a partition named twice only the last batch counts, as in Kafka."""
        self._context = context
        self.refuses = False
        """Whether the remaining batches are refused, so that the client sends them again."""
        self._request = request
        self._topics: Topics = [*refused]
        self._pending: PendingAnswer | None = None
        self._late: list[LateBatch] = []
        """The batches that threads must check or recompress, and that are appended after that."""
        self._unverified: list[LateBatch] = []
        """The batches that wait for the gateway that coordinates their transaction."""
        self._kept: Late | None = None
        """The work with the room of the batches that are not appended yet; None while they are no copies."""
        grouped: dict[str | bytes, dict[int, PartitionRecords]] = {}
        for key, entries in request.topics:
            last = grouped.setdefault(key, {})
            for entry in entries:
                last[entry.partition] = entry
        by_key = context.services.partitions.by_key
        self._left = [(key, by_key.get(key), deque(last.values())) for key, last in grouped.items()]

    def steps(self) -> Iterator[None]:
        """Append the batch of one partition after the other; yield after each."""
        now_ms = self._context.node.clock.now_ns() // NS_PER_MS
        for key, topic, entries in self._left:
            if not entries:
                continue
            rows: list[ProduceRow] = []
            self._topics.append((key, rows))
            while entries:
                rows.append(self._append(rows, key, topic, entries.popleft(), now_ms))
                yield

    @property
    def is_single(self) -> bool:
        """Whether the request names exactly one partition, as most requests do."""
        left = self._left
        return len(left) == 1 and len(left[0][2]) == 1

    @property
    def has_more(self) -> bool:
        """Whether a partition is left to append to."""
        return any(entries for _, _, entries in self._left)

    @property
    def left_bytes(self) -> int:
        """Return the memory of the batches that are not appended yet."""
        left = sum(
            len(entry.records or b"") + OBJECTS_BYTES for _, _, entries in self._left for entry in entries
        )
        return left + sum(batch.size_bytes for batch in (*self._late, *self._unverified))

    def _copy(self) -> None:
        """Copy the batches that are not appended yet, because the receive buffer is reused."""
        for _, _, entries in self._left:
            entries.extend([kept_entry(entries.popleft()) for _ in range(len(entries))])
        self._late = [batch.copied() for batch in self._late]
        self._unverified = [batch.copied() for batch in self._unverified]

    def _keep(self, late: Late) -> bool:
        """Keep the batches that are not appended yet, in room of `late`; return whether there is room."""
        if self._kept is not None:
            late.keep_on(self._kept)
        elif late.keep(self.left_bytes):
            with late.released_on_error():
                self._copy()
        else:
            return False
        self._kept = late
        return True

    def go_on_in_slices(self, steps: Iterator[None]) -> Deferred | None:
        """Append the other batches in later turns; None where there is no room to keep them until then."""
        late = Late(self._context)
        if not self._keep(late):
            return None

        async def work() -> Begun:
            async for _ in in_slices(steps):
                pass
            return self.answer()

        return late.start("produce to many partitions", work())

    def _append(
        self,
        rows: list[ProduceRow],
        key: str | bytes,
        topic: TopicPartitions | None,
        entry: PartitionRecords,
        now_ms: int,
    ) -> ProduceRow:
        """Append one batch, now or with those appended late; return its row, the next of `rows`."""
        context, request = self._context, self._request
        if self.refuses and topic is not None and topic.has(entry.partition):
            return self._refuse(key, entry, REFUSED, _NO_ROOM)
        partition = None if topic is None else topic.get(entry.partition)
        if topic is None or partition is None:
            return self._refuse(key, entry, _missing(key, topic, entry.partition))
        if partition.topic in INTERNAL_TOPICS:
            # the gateway keeps its own state in internal topics (ReplicaManager.appendToLocalLog)
            return ProduceRow(entry.partition, _INVALID_TOPIC, -1, -1, -1)
        compression, late = partition.compression, None
        if request.transactional_id and must_ask(context, partition, entry.records, request.transactional_id):
            late = self._unverified
        elif compression is not None and must_recompress(
            context.api_version, partition, compression.codec, entry.records, now_ms
        ):
            late = self._late
        if late is not None:
            late.append(LateBatch(rows, len(rows), key, topic, partition, compression, entry))
            return ProduceRow(entry.partition, 0, -1, -1, -1)
        try:
            return self._store(rows, len(rows), key, partition, entry.records, now_ms)
        except TakesLong:
            self._late.append(LateBatch(rows, len(rows), key, topic, partition, None, entry))
            return ProduceRow(entry.partition, 0, -1, -1, -1)

    def _refuse(
        self, key: str | bytes, entry: PartitionRecords, code: int, message: str | None = None
    ) -> ProduceRow:
        """Return the row of a batch that is refused before its partition was asked; note the refusal."""
        context = self._context
        refusals = Refusals(context.services.refusals, context.peer)
        refusals.note(key, entry.partition, entry.records, code)
        return ProduceRow(entry.partition, code, -1, -1, -1, message)

    def _store(
        self,
        rows: list[ProduceRow],
        position: int,
        key: str | bytes,
        partition: Partition,
        records: memoryview | None,
        now_ms: int,
        outcome: PreparedBatch | None = None,
        took_part: TookPart | None = None,
    ) -> ProduceRow:
        """Append one batch; return its row, at `position`. If it must be flushed first, the answer waits.
        Raises TakesLong where a thread must check the batch first.
        """
        context, request = self._context, self._request
        info = append_batch(
            context.services,
            context.api_version,
            context.peer,
            context.client_id,
            key,
            partition,
            records,
            request.transactional_id,
            now_ms,
            outcome,
            took_part,
        )
        if isinstance(info, ProduceRow):
            return info
        if request.acks and not partition.is_persisted(info.answer_after):
            pending = self._pending
            if pending is None:
                pending = self._pending = PendingAnswer(context, self._topics, request.timeout_ms)
            pending.wait(rows, position, partition, info)
        return ProduceRow(
            partition.index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset
        )

    def _append_verified(self, batch: LateBatch) -> None:
        """Append a batch whose coordinator has answered, or leave it to the threads."""
        context, compression = self._context, batch.compression
        now_ms = context.node.clock.now_ms()
        if compression is not None and must_recompress(
            context.api_version, batch.partition, compression.codec, batch.entry.records, now_ms
        ):
            self._late.append(batch)
            return
        try:
            self._append_late(batch)
        except TakesLong:
            self._late.append(batch._replace(compression=None))

    def _append_late(self, batch: LateBatch, outcome: PreparedBatch | None = None) -> None:
        """Append a batch that waited, also amid a stop, if its topic exists and is still led here."""
        context, partition = self._context, batch.partition
        topic = context.services.partitions.by_key.get(batch.key)
        if topic is not batch.topic or batch.topic.peek(partition.index) is not partition:
            code = _missing(batch.key, topic if topic is batch.topic else None, partition.index)
            batch.rows[batch.position] = self._refuse(batch.key, batch.entry, code)
            return
        batch.rows[batch.position] = self._store(
            batch.rows,
            batch.position,
            batch.key,
            partition,
            batch.entry.records,
            context.node.clock.now_ms(),
            outcome,
            batch.took_part,
        )

    def answer(self) -> Begun:
        """Return the answer once all steps are done. Raises CloseConnection."""
        context, request, pending = self._context, self._request, self._pending
        if self._unverified or self._late:
            return self._answer_late()
        if request.acks == 0:
            close_on_error(self._topics)
            return None
        if request.transactional_id:
            state = context.services.transactions.unpersisted(request.transactional_id)
            if state is not None:
                pending = pending or PendingAnswer(context, self._topics, request.timeout_ms)
                pending.wait_for_state(*state)
        return produce_frame(context, self._topics) if pending is None else pending.complete()

    def _answer_late(self) -> Begun:
        """Return the future of an answer that awaits a coordinator or threads; refuse without room."""
        late = Late(self._context)
        has_room = self._keep(late)
        is_unverified = bool(self._unverified)
        if is_unverified:
            batches, self._unverified = self._unverified, []
        else:
            batches, self._late = self._late, []
        if not has_room:
            for batch in batches:
                batch.rows[batch.position] = self._refuse(batch.key, batch.entry, REFUSED, _NO_ROOM)
            return self.answer()
        if not is_unverified:
            return InThreads(late, batches, self._append_late, self.answer).begin()

        async def work() -> Begun:
            transactional_id = self._request.transactional_id or ""
            await verify(self._context, transactional_id, batches, self._append_verified)
            return self.answer()

        return late.start("verify a transaction", work())


# The answer, which waits until the records are persisted.


def produce_frame(context: ProduceContext, topics: Sequence[CodecTopicRows]) -> bytes:
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
        """Delay the answer until the transaction's state, which lists the rows' partitions, is durable."""
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
        """Refuse all rows with a retriable error: after a crash their batches might be in no transaction."""
        message = "the state of the transaction could not be flushed"
        for _, rows in self.topics:
            for position, row in enumerate(rows):
                if not row.error_code:
                    rows[position] = ProduceRow(row.partition, _UNSETTLED, -1, -1, -1, message)


# The right to write to each topic.


def _begin_in_slices(context: ProduceContext, request: ProduceRequest) -> Deferred | None:
    """Check the rights on many topics in later turns, then begin the request; None where there is no room."""
    late = Late(context)
    if not late.keep(size_of(request)):
        return None
    with late.released_on_error():
        kept = copied(request)

    async def work() -> Begun:
        keys = {topic.key for topic in kept.topics}
        errors = {key: error async for key in in_slices(keys) if (error := _error_of_right(context, key))}
        late.release()  # the request takes the room that it needs from now on
        return begin(context, *_split(context, kept, errors))

    return late.start("produce to many topics", work())


def _error_of_right(context: ProduceContext, key: str | bytes) -> int:
    """Return the error of a topic that the request can't write to; 0 if the client may write to it."""
    if isinstance(key, str):
        return 0 if context.may_topic(Operation.WRITE, key) else _DENIED
    topic = context.services.partitions.by_key.get(key)
    if topic is None:
        # Refuse the unknown id now. Otherwise a topic that gets this id while the request waits would be
        # written to without a check.
        return _UNKNOWN_TOPIC_ID
    return 0 if context.may_topic(Operation.WRITE, topic.name) else _DENIED


def _split(
    context: ProduceContext, request: ProduceRequest, errors: Mapping[str | bytes, int]
) -> tuple[ProduceRequest, Topics]:
    """Return the request with the topics that the client may write to, and the rows of the other topics."""
    if not errors:
        return request, []
    refusals = Refusals(context.services.refusals, context.peer)
    refused: dict[str | bytes, dict[int, ProduceRow]] = {}
    for key, entries in request.topics:
        if key in errors:
            rows = refused.setdefault(key, {})
            for entry in entries:
                refusals.note(key, entry.partition, entry.records, errors[key])
                rows[entry.partition] = ProduceRow(entry.partition, errors[key], -1, -1, -1)
    allowed = [topic for topic in request.topics if topic.key not in errors]
    return request._replace(topics=allowed), [(key, list(rows.values())) for key, rows in refused.items()]


# The refusals of a request for all its partitions.


def refusal_of_all(
    request: ProduceRequest, may_write_as: Callable[[str], bool] | None = None
) -> tuple[ErrorCode, str] | None:
    """Return the error and message that refuse a request for all its partitions, or None. `may_write_as`
    returns whether the client may write with a transactional id; None if it may write with all.
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


def _refusal_of_id(
    transactional_id: str | None, index: int, may_write_as: Callable[[str], bool] | None
) -> tuple[ErrorCode, str] | None:
    if transactional_id is None:
        return ErrorCode.transactional_id_authorization_failed, no_transactional_id(index)
    if may_write_as is None or may_write_as(transactional_id):
        return None
    message = f"The batch for partition {index} is transactional; it needs WRITE on its transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


def _refuse_all(
    context: ProduceContext,
    request: ProduceRequest,
    error: ErrorCode,
    message: str,
    *,
    refused: Sequence[TopicRows] = (),
) -> ResponseBytes:
    """Return the answer with the error for all partitions of the request, and with the rows of partitions
    that were refused earlier. Raises CloseConnection under acks=0, which has no answer.
    """
    if request.acks == 0:
        raise CloseConnection(f"an acks=0 request is refused: {message}")
    topics: Topics = [
        (key, [ProduceRow(entry.partition, int(error), -1, -1, -1, message) for entry in entries])
        for key, entries in request.topics
    ]
    refusals = Refusals(context.services.refusals, context.peer)
    for key, entries in request.topics:
        for entry in entries:
            refusals.note(key, entry.partition, entry.records, int(error))
    topics += refused
    return produce_frame(context, topics)


def _refuse_acks(
    context: ProduceContext, request: ProduceRequest, refused: Sequence[TopicRows]
) -> ResponseBytes:
    """Refuse the number of acknowledgements; as in Kafka, unknown partitions get their own error first."""
    topics: Topics = []
    for key, entries in request.topics:
        topic = context.services.partitions.by_key.get(key)
        rows = [
            ProduceRow(
                entry.partition,
                _WRONG_ACKS
                if topic is not None and topic.has(entry.partition)
                else _missing(key, topic, entry.partition),
                -1,
                -1,
                -1,
            )
            for entry in entries
        ]
        topics.append((key, rows))
    return produce_frame(context, [*topics, *refused])


def _missing(key: str | bytes, topic: TopicPartitions | None, index: int) -> int:
    """Return the error for a partition that can't be appended to, also if its topic is deleted by now."""
    if topic is not None and topic.count:
        return int(topic.error_without(index))
    return _UNKNOWN_TOPIC_ID if isinstance(key, bytes) else _UNKNOWN_TOPIC


# The fast path: requests that equal an earlier one except for correlation id and records.

MAX_PREFIXES: Final = 4096
"""Prefixes cached for each version. One more empties the table."""
MAX_PREFIX_BYTES: Final = 512
"""Longer prefixes are not cached; only unusually long client ids or topic names make them."""
_VALID_ACKS: Final = frozenset((-1, 0, 1))
FIRST_REPEATED_VERSION: Final = 5
"""The first version whose answers have rows with log_start_offset. Older requests are always decoded."""
_MARKED_ROW: Final = (0x5EA96A7E00000001, 0x5EA96A7E00000002, 0x5EA96A7E00000003)
_MARK: Final = Struct(">qqq").pack(*_MARKED_ROW)


class RepeatedAnswer:
    """The answer to a request with a known prefix whose batch was appended. Only four numbers change."""

    __slots__ = ("_after", "_before", "_pack", "_size_bytes")

    def __init__(self, api_version: int, key: str | bytes, partition: int) -> None:
        """Pack the answer for a topic and partition; `key` is the topic name or id that the request has.
        Raises struct.error for a name that is too long for an answer.
        """
        frame = encode_produce_response(api_version, 0, [(key, [ProduceRow(partition, 0, *_MARKED_ROW)])])
        row_at = frame.index(_MARK)
        self._size_bytes = len(frame) - 4
        self._before = frame[8:row_at]
        self._after = frame[row_at + len(_MARK) :]
        self._pack = Struct(f">ii{len(self._before)}sqqq{len(self._after)}s").pack

    def encode(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the whole frame, size included."""
        return self._pack(
            self._size_bytes,
            correlation_id,
            self._before,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            self._after,
        )


class _Target:
    """The partition that the requests of one prefix go to, and the constant parts of their answer."""

    __slots__ = (
        "_api_version",
        "_encode",
        "_services",
        "acks",
        "client_id",
        "key",
        "partition",
        "timeout_ms",
    )

    def __init__(
        self, context: ProduceContext, request: ProduceRequest, key: str | bytes, partition: Partition
    ) -> None:
        self.client_id = context.client_id
        self.key = key
        self.partition = partition
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._services = context.services
        self._api_version = context.api_version
        self._encode: Callable[[int, int, int, int], bytes] | None = None

    def confirm(self, correlation_id: int, info: Appended) -> ResponseBytes:
        """Return the answer to a batch that was appended."""
        encode = self._encode
        if encode is None:
            encode = self._encode = RepeatedAnswer(self._api_version, self.key, self.partition.index).encode
        base_offset, _, log_append_time_ms, log_start_offset, _, _, _ = info
        return encode(correlation_id, base_offset, log_append_time_ms, log_start_offset)

    def refuse(self, correlation_id: int, row: ProduceRow) -> ResponseBytes:
        """Return the answer to a batch that was refused."""
        return encode_produce_response(self._api_version, correlation_id, [(self.key, [row])])

    def answer(
        self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended, persisted: bool
    ) -> None:
        """Answer a batch that was appended, after its flush."""
        if persisted:
            deferred.resolve(self.confirm(correlation_id, info))
        else:
            self._refuse_appended(deferred, peer, correlation_id, info, unflushed_row(self.partition.index))

    def expire(self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended) -> None:
        """Answer a batch that was appended, and is not durable after the request's time."""
        self._refuse_appended(deferred, peer, correlation_id, info, expired_row(self.partition.index))

    def _refuse_appended(
        self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended, row: ProduceRow
    ) -> None:
        note_unsettled(self._services, peer, self.key, info, row)
        deferred.resolve(self.refuse(correlation_id, row))


class ProduceRepeats:
    """Recognizes repeats of Produce requests of one version; appends their batches without decoding them."""

    def __init__(self, services: ProduceServices, api_version: int) -> None:
        self._services = services
        self._node = services.node
        self._clock = services.node.clock
        self._api_version = api_version
        self.begun = 0
        self._targets: dict[bytes, _Target] = {}
        """The targets by the prefix of their requests."""
        self._prefixes: dict[Partition, list[bytes]] = {}
        services.partitions.when_closed.append(self._forget)
        services.partitions.tables.extend((self._targets, self._prefixes))

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> ResponseBytes | Deferred | NotRepeated | None:
        api_version = self._api_version
        split = split_request(frame, api_version, client_id_bytes)
        if split is None:
            return NOT_REPEATED
        prefix, records = split
        target = self._targets.get(prefix)
        if target is None:
            return NOT_REPEATED
        partition = target.partition
        if partition.closed or partition.gate is not None:
            return NOT_REPEATED
        access = self._node.access
        if access.is_on and not access.allows(
            peer.principal, peer.peer_host, Operation.WRITE, ResourceType.TOPIC, partition.topic
        ):
            return NOT_REPEATED
        compression = partition.compression
        if compression is not None and (
            len(records) <= ATTRIBUTES_POSITION
            or records[ATTRIBUTES_POSITION] & CODEC_BITS != compression.codec
        ):
            return NOT_REPEATED
        acks = target.acks
        try:
            info = append_batch(
                self._services,
                api_version,
                peer,
                target.client_id,
                target.key,
                partition,
                records,
                None,
                self._clock.now_ns() // NS_PER_MS,
            )
        except TakesLong:
            return NOT_REPEATED
        self.begun += 1
        if isinstance(info, ProduceRow):
            if not acks:
                close_on_error([(target.key, [info])])
            return target.refuse(correlation_id, info)
        if not acks:
            return None
        if not partition.is_persisted(info.answer_after):
            deferred = Deferred()
            decided: Callable[[bool], None] = partial(target.answer, deferred, peer, correlation_id, info)
            waits = self._services.waits
            if waits is not None:
                expired = partial(target.expire, deferred, peer, correlation_id, info)
                decided = waits.limited(target.timeout_ms, decided, expired)
            partition.when_decided(info.answer_after, decided)
            return deferred
        return target.confirm(correlation_id, info)

    def learn(self, frame: memoryview, context: ProduceContext, request: ProduceRequest) -> None:
        if (
            len(request.topics) != 1
            or len(request.topics[0].partitions) != 1
            or request.acks not in _VALID_ACKS
            or context.api_version < FIRST_REPEATED_VERSION
        ):
            return
        key, (entry,) = request.topics[0]
        topic = context.services.partitions.by_key.get(key)
        if topic is None or (
            self._node.access.is_on and not context.could(Operation.WRITE, ResourceType.TOPIC, topic.name)
        ):
            return
        partition = topic.get(entry.partition)
        client_id_bytes = int.from_bytes(frame[8:10], "big", signed=True)
        if partition is None or partition.topic in INTERNAL_TOPICS:
            return
        if not is_for_one_partition(frame, context.api_version, client_id_bytes):
            return
        split = split_request(frame, context.api_version, client_id_bytes)
        if split is None or len(split[0]) > MAX_PREFIX_BYTES:
            return
        if len(self._targets) >= MAX_PREFIXES:
            self._targets.clear()
            self._prefixes.clear()
        prefix = split[0]
        if prefix not in self._targets:
            self._prefixes.setdefault(partition, []).append(prefix)
        self._targets[prefix] = _Target(context, request, key, partition)

    def _forget(self, partition: Partition) -> None:
        """Drop a partition whose topic is deleted, so that its memory is freed."""
        for prefix in self._prefixes.pop(partition, ()):
            self._targets.pop(prefix, None)


API = Api(
    key=0,
    versions=(3, 13),
    reaches=ProduceServices.of,
    begin=begin,
    reader=produce_reader,
    repeats=ProduceRepeats,
    advertised_but_refused=(0, 2),  # a request of these versions closes the connection
)
