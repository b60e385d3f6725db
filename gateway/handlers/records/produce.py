"""Produce (key 0, versions 3–13): append batches, answer when their records are persisted and visible.

The first stage appends every partition's batch in the order of arrival. The second stage waits until the high
watermark has passed the records: until their flush, which requests share, or not at all where
`flush.messages` chooses Kafka's page cache. If a batch added its partition to a transaction (KIP-890), the
transaction's state must be durable, too. acks=1 means the same as acks=all, because a partition has one
replica; acks=0 has no answer.

The client needs WRITE on each topic, and on the transactional id of a batch in a transaction; both are
checked before anything else, also before a request is held.

Versions 0–2 are advertised but refused, because librdkafka before 2.8 takes a missing Produce v0 for a
broker without compression (KAFKA-18659; Kafka 4 answers the same way).
Source: Kafka's KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, ProduceRequest.

Splits a Produce into the topics that the client may write to, and the answer for the others.

Kafka checks the right before it looks for the partition, so the answer for a topic without WRITE is the same
whether or not the topic exists. A topic id that nobody has is not secret: it gets UNKNOWN_TOPIC_ID.
Source: Kafka's KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import Answer, Api, CloseConnection, Deferred, RequestContext
from seqgate.gateway.handlers.records.produce_answer import (
    PendingAnswer,
    ProduceServices,
    TopicRows,
    Topics,
    produce_frame,
)
from seqgate.gateway.handlers.records.produce_append import (
    REFUSED,
    append_batch,
    appended_row,
    close_on_error,
    copied,
    failing,
    final_refusal,
    has_transactional,
    hold,
    kept_entry,
    refusal_of_all,
)
from seqgate.gateway.handlers.records.produce_late import (
    LateBatch,
    Recompression,
    Verification,
    must_ask,
    must_recompress,
)
from seqgate.gateway.handlers.records.produce_order import Refusals, note_stored, refused_before
from seqgate.gateway.handlers.records.produce_repeats import ProduceRepeats
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.protocol.produce_codec import (
    PartitionRecords,
    ProduceRequest,
    ProduceRow,
    produce_reader,
)
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.recompressor import Outcome
from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
from seqgate.gateway.security.acls.access import Operation

API_KEY = 0
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
INVALID_TOPIC = int(ErrorCode.invalid_topic_exception)


def begin(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    refused: Sequence[TopicRows] | None = None,
) -> Answer | Deferred | None:
    """Check the client's rights, and append the request's batches now, or later if a backlog quota makes the
    request wait.

    The answer follows when the records are persisted. `refused` has the rows of the topics that the client
    may not write to; it is None if the rights have not been checked yet.
    """
    if refused is None:
        refused = ()
        if context.node.access.is_on:
            refusal = refusal_of_all(request, partial(context.may_transactional_id, Operation.WRITE))
            if refusal is not None:
                return refuse_or_close(context, request, *refusal)
            if len(request.topics) > MANY_PARTITIONS:
                deferred = split_in_slices(context, request, begin)
                if deferred is not None:
                    return deferred
            request, refused = split_by_right(context, request)
    if context.services.backlog.holds:
        held = hold(context, request, partial(append, refused=refused))
        if held is not None:
            return held
    return append(context, request, refused)


def append(
    context: RequestContext[ProduceServices], request: ProduceRequest, refused: Sequence[TopicRows] = ()
) -> Answer | Deferred | None:
    """Append all batches of the request now. The answer follows when the records are persisted.

    `refused` are the rows of the topics that the client may not write to, which `request` no longer has.
    """
    if request.acks not in {-1, 0, 1}:
        return refuse_acks(context, request, refused)
    appending = _Appending(context, request, refused)
    steps = appending.steps()
    if appending.is_single and (request.transactional_id is not None or not has_transactional(request)):
        next(steps)
        return appending.answer()
    refusal = refusal_of_all(request)
    if refusal is not None:
        return refuse_or_close(context, request, *refusal, refused=refused)
    now_s = context.node.loop.time
    until_s = now_s() if _takes_long(context, request) else now_s() + LONG_S
    for _ in steps:
        if now_s() >= until_s and appending.has_more and not appending.refuses:
            deferred = _append_in_slices(context, appending, steps)
            if deferred is not None:
                return deferred
            appending.refuses = True
    return appending.answer()


def _takes_long(context: RequestContext[ProduceServices], request: ProduceRequest) -> bool:
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


def _append_in_slices(
    context: RequestContext[ProduceServices], appending: _Appending, steps: Iterator[None]
) -> Deferred | None:
    """Append the remaining batches in later turns; None where there is no room to keep them until then."""
    room = context.services.backlog.held.room
    kept_bytes = appending.left_bytes
    if not room.try_keep(kept_bytes):
        return None
    appending.go_on_later()
    deferred = Deferred(holds_back=True)

    async def work() -> None:
        try:
            with failing(context, deferred):
                async for _ in in_slices(steps):
                    pass
                deferred.follow(appending.answer())
        finally:
            room.release_kept(kept_bytes)

    context.node.tasks.start(context.node.tasks.begin("produce to many partitions", is_brief=True), work())
    return deferred


class _Appending:
    """A request whose batches are being appended."""

    def __init__(
        self, context: RequestContext[ProduceServices], request: ProduceRequest, refused: Sequence[TopicRows]
    ) -> None:
        self._context = context
        self.refuses = False
        """Whether the remaining batches are refused, so that the client sends them again."""
        self._request = request
        self._topics: Topics = [*refused]
        self._pending: PendingAnswer | None = None
        self._late: list[LateBatch] = []
        """The batches that must be recompressed, and are appended after that."""
        self._unverified: list[LateBatch] = []
        """The batches that wait for the gateway that coordinates their transaction."""
        self._left = entries_by_topic(context.services.partitions, request)

    def steps(self) -> Iterator[None]:
        """Append the batch of one partition after the other; yield after each."""
        now_ms = self._context.node.clock.now_ms()
        for key, topic, entries in self._left:
            if not entries:
                continue
            rows: list[ProduceRow] = []
            self._topics.append((key, rows))
            while entries:
                self._append(rows, key, topic, entries.popleft(), now_ms)
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
        """Return the size in bytes of the records that are not appended yet."""
        left = [entry for _, _, entries in self._left for entry in entries]
        left += [batch.entry for batch in (*self._late, *self._unverified)]
        return sum(len(entry.records or b"") for entry in left)

    def go_on_later(self) -> None:
        """Copy the batches that are not appended yet, because the receive buffer is reused."""
        for _, _, entries in self._left:
            entries.extend([kept_entry(entries.popleft()) for _ in range(len(entries))])
        self._late = [batch._replace(entry=kept_entry(batch.entry)) for batch in self._late]
        self._unverified = [batch._replace(entry=kept_entry(batch.entry)) for batch in self._unverified]

    def _append(
        self,
        rows: list[ProduceRow],
        key: str | bytes,
        topic: TopicPartitions | None,
        entry: PartitionRecords,
        now_ms: int,
    ) -> None:
        context, request = self._context, self._request
        if self.refuses and topic is not None and topic.has(entry.partition):
            self._note_refusal(key, entry.partition, entry.records, REFUSED)
            rows.append(ProduceRow(entry.partition, REFUSED, -1, -1, -1, _NO_ROOM))
            return
        partition = None if topic is None else topic.get(entry.partition)
        if partition is None:
            code = missing(key, topic, entry.partition)
            self._note_refusal(key, entry.partition, entry.records, code)
            rows.append(ProduceRow(entry.partition, code, -1, -1, -1))
            return
        if partition.topic in INTERNAL_TOPICS:
            # the gateway keeps its own state in internal topics (ReplicaManager.appendToLocalLog)
            rows.append(ProduceRow(entry.partition, INVALID_TOPIC, -1, -1, -1))
            return
        compression = partition.compression
        if (
            request.transactional_id
            and topic is not None
            and must_ask(context, partition, entry.records, request.transactional_id)
        ):
            self._unverified.append(LateBatch(rows, len(rows), key, topic, partition, compression, entry))
            rows.append(ProduceRow(entry.partition, 0, -1, -1, -1))
            return
        if (
            compression is not None
            and topic is not None
            and must_recompress(context.api_version, partition, compression.codec, entry.records, now_ms)
        ):
            self._late.append(LateBatch(rows, len(rows), key, topic, partition, compression, entry))
            rows.append(ProduceRow(entry.partition, 0, -1, -1, -1))
            return
        rows.append(self._store(rows, len(rows), key, partition, entry.records, now_ms))

    def _note_refusal(self, key: str | bytes, index: int, records: memoryview | None, code: int) -> None:
        context = self._context
        Refusals(context.services.refusals, context.peer).note(key, index, records, code)

    def _store(
        self,
        rows: list[ProduceRow],
        position: int,
        key: str | bytes,
        partition: Partition,
        records: memoryview | None,
        now_ms: int,
        outcome: Outcome | None = None,
        took_part: TookPart | None = None,
    ) -> ProduceRow:
        """Append one batch; return its row, which will be at `position`. If the batch must be flushed first,
        the answer waits.
        """
        context, request = self._context, self._request
        peer = context.peer
        info = append_batch(
            context.services,
            context.api_version,
            partition,
            records,
            request.transactional_id,
            now_ms,
            outcome,
            took_part,
            None
            if peer.refused is None and not partition.strict_until_ms
            else refused_before(peer, key, partition, now_ms),
        )
        if isinstance(info, ProduceRow):
            return final_refusal(context.services, peer, context.client_id, key, partition, records, info)
        if peer.refused is not None and records is not None:
            note_stored(peer, key, partition.index, records)
        if request.acks and not partition.is_persisted(info.answer_after):
            pending = self._pending
            if pending is None:
                pending = self._pending = PendingAnswer(context, self._topics, request.timeout_ms)
            pending.wait(rows, position, partition, info)
        return appended_row(partition, info)

    def _append_verified(self, batch: LateBatch, took_part: TookPart) -> None:
        """Append a batch whose coordinator has answered, or leave it to the threads that recompress."""
        batch = batch._replace(took_part=took_part)
        compression, partition = batch.compression, batch.partition
        version, now_ms = self._context.api_version, self._context.node.clock.now_ms()
        if compression is not None and must_recompress(
            version, partition, compression.codec, batch.entry.records, now_ms
        ):
            self._late.append(batch)
        else:
            self._append_late(batch)

    def _append_late(self, batch: LateBatch, outcome: Outcome | None = None) -> None:
        """Append a batch that waited, also amid a stop, unless its topic was deleted or another gateway leads
        the partition now.
        """
        context, partition = self._context, batch.partition
        topic = context.services.partitions.by_key.get(batch.key)
        if topic is not batch.topic or batch.topic.peek(partition.index) is not partition:
            code = missing(batch.key, topic if topic is batch.topic else None, partition.index)
            self._note_refusal(batch.key, partition.index, batch.entry.records, code)
            batch.rows[batch.position] = ProduceRow(partition.index, code, -1, -1, -1)
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

    def _answer_late(self) -> Answer | Deferred | None:
        """Return the future of an answer that must wait for a coordinator, or for recompression. Without room
        for that, refuse the batches.
        """
        deferred: Deferred | None
        if self._unverified:
            late, self._unverified = self._unverified, []
            self.go_on_later()
            deferred = Verification(
                self._context, self._request, late, self._append_verified, self.answer, self.left_bytes
            ).begin()
        else:
            late, self._late = self._late, []
            deferred = Recompression(self._context, late, self._append_late, self.answer).begin()
        if deferred is not None:
            return deferred
        for batch in late:
            self._note_refusal(batch.key, batch.partition.index, batch.entry.records, REFUSED)
            batch.rows[batch.position] = ProduceRow(batch.partition.index, REFUSED, -1, -1, -1, _NO_ROOM)
        return self.answer()

    def answer(self) -> Answer | Deferred | None:
        """Return the answer once all steps are done. Raises CloseConnection."""
        if self._unverified or self._late:
            return self._answer_late()
        if self._request.acks == 0:
            close_on_error(self._topics)
            return None
        return _answer(self._context, self._request, self._topics, self._pending)


def _answer(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    topics: Topics,
    pending: PendingAnswer | None,
) -> Answer | Deferred:
    if request.transactional_id:
        state = context.services.transactions.unpersisted(request.transactional_id)
        if state is not None:
            pending = pending or PendingAnswer(context, topics, request.timeout_ms)
            pending.wait_for_state(*state)
    if pending is not None:
        return pending.complete()
    return produce_frame(context, topics)


# The batches of a Produce by topic.


def entries_by_topic(
    partitions: Partitions, request: ProduceRequest
) -> list[tuple[str | bytes, TopicPartitions | None, deque[PartitionRecords]]]:
    """Return the entries of the partitions by topic.

    Of a partition named twice only the last entry counts, as in Kafka.
    """
    grouped: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for key, entries in request.topics:
        last = grouped.setdefault(key, {})
        for entry in entries:
            last[entry.partition] = entry
    return [(key, partitions.by_key.get(key), deque(last.values())) for key, last in grouped.items()]


# Refuses a Produce for all its partitions, and names the error of a partition that is missing.

UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
UNKNOWN_TOPIC_ID: Final = int(ErrorCode.unknown_topic_id)
_WRONG_ACKS: Final = int(ErrorCode.invalid_required_acks)


def refuse_or_close(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    error: ErrorCode,
    message: str,
    *,
    refused: Sequence[TopicRows] = (),
) -> Answer:
    """Refuse the request for all its partitions. Raises CloseConnection under acks=0, which has no answer."""
    if request.acks == 0:
        raise CloseConnection(f"an acks=0 request is refused: {message}")
    return refuse_all(context, request, error, message, refused=refused)


def refuse_all(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    error: ErrorCode,
    message: str | None = None,
    *,
    refused: Sequence[TopicRows] = (),
) -> Answer:
    """Return the answer with the error for all partitions of the request, and with the rows of partitions
    that were refused earlier.
    """
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


def refuse_acks(
    context: RequestContext[ProduceServices], request: ProduceRequest, refused: Sequence[TopicRows]
) -> Answer:
    """Refuse the request for its number of acknowledgements.

    As in Kafka, unknown partitions get their own error first.
    """
    topics: Topics = []
    for key, entries in request.topics:
        topic = context.services.partitions.by_key.get(key)
        rows = [
            ProduceRow(
                entry.partition,
                _WRONG_ACKS
                if topic is not None and topic.has(entry.partition)
                else missing(key, topic, entry.partition),
                -1,
                -1,
                -1,
            )
            for entry in entries
        ]
        topics.append((key, rows))
    return produce_frame(context, [*topics, *refused])


def missing(key: str | bytes, topic: TopicPartitions | None, index: int) -> int:
    """Return the error for a partition that can't be appended to."""
    if topic is not None:
        return int(topic.error_without(index))
    return UNKNOWN_TOPIC_ID if isinstance(key, bytes) else UNKNOWN_TOPIC


GoOn: TypeAlias = Callable[
    [RequestContext[ProduceServices], ProduceRequest, Topics], Answer | Deferred | None
]
"""Carries out a request whose rights were checked."""

_DENIED: Final = int(ErrorCode.topic_authorization_failed)
_UNKNOWN_ID: Final = int(ErrorCode.unknown_topic_id)


def split_by_right(
    context: RequestContext[ProduceServices], request: ProduceRequest
) -> tuple[ProduceRequest, Topics]:
    """Return the request with the topics that the client may write to, and the rows of the other topics."""
    keys = {topic.key for topic in request.topics}
    errors = {key: error for key in keys if (error := _error(context, key))}
    return _split(context, request, errors)


def split_in_slices(
    context: RequestContext[ProduceServices], request: ProduceRequest, go_on: GoOn
) -> Deferred | None:
    """Split a request that names many topics in later turns, then go on with it; None where there is no room
    to keep it.
    """
    room = context.services.backlog.held.room
    kept_bytes = sum(len(entry.records or b"") for _, entries in request.topics for entry in entries)
    if not room.try_keep(kept_bytes):
        return None
    kept = copied(request)
    deferred = Deferred(holds_back=True)

    async def work() -> None:
        try:
            with failing(context, deferred):
                keys = {topic.key for topic in kept.topics}
                errors = {key: error async for key in in_slices(keys) if (error := _error(context, key))}
                deferred.follow(go_on(context, *_split(context, kept, errors)))
        finally:
            room.release_kept(kept_bytes)

    context.node.tasks.start(context.node.tasks.begin("produce to many topics", is_brief=True), work())
    return deferred


def _error(context: RequestContext[ProduceServices], key: str | bytes) -> int:
    """Return the error of a topic that the request can't write to; 0 if the client may write to it."""
    if isinstance(key, str):
        return 0 if context.may_topic(Operation.WRITE, key) else _DENIED
    topic = context.services.partitions.by_key.get(key)
    if topic is None:
        # Refuse the unknown id now. Otherwise a topic that gets this id while the request waits would be
        # written to without a check.
        return _UNKNOWN_ID
    return 0 if context.may_topic(Operation.WRITE, topic.name) else _DENIED


def _split(
    context: RequestContext[ProduceServices], request: ProduceRequest, errors: Mapping[str | bytes, int]
) -> tuple[ProduceRequest, Topics]:
    if not errors:
        return request, []
    refusals = Refusals(context.services.refusals, context.peer)
    refused: dict[str | bytes, dict[int, ProduceRow]] = {}
    for key, entries in request.topics:
        if key in errors:
            rows = refused.setdefault(key, {})
            for entry in entries:
                refusals.note(key, entry.partition, entry.records, errors[key])
                rows[entry.partition] = _row(entry.partition, errors[key])
    allowed = [topic for topic in request.topics if topic.key not in errors]
    return request._replace(topics=allowed), [(key, list(rows.values())) for key, rows in refused.items()]


def _row(index: int, code: int) -> ProduceRow:
    return ProduceRow(index, code, -1, -1, -1)


API = Api(
    key=API_KEY,
    name="Produce",
    min_version=3,
    max_version=13,
    reaches=ProduceServices.of,
    begin=begin,
    reader=produce_reader,
    repeats=ProduceRepeats,
    advertised_min_version=0,
)
