"""Fetch (key 1, versions 4–18): return records from an offset on, at once or when enough bytes have arrived.

Readers of committed records (isolation_level 1) get the records below the last stable offset, and the list of
aborted transactions that they must filter out. Sessions (v7), leader epochs (v9), log truncation checks (v12)
and topic ids (v13) as in Kafka. A fetch that must wait holds back later requests of its own connection only.

A partition of a topic without READ gets TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not; the
other partitions are still waited for. A fetch with a replica id needs CLUSTER_ACTION on the cluster instead.
The answer names the partitions that were read first, then those of unknown topic ids, then all others that
are unknown or denied.

From v11 on, another gateway than the leader may serve uploaded records of a bucket (KIP-392,
`replica.selector.class`). An isolation level that the protocol does not define gets UNKNOWN_SERVER_ERROR for
the whole request, if a partition exists that the client may read. Up to v12 the error also stands beside each
partition that the request names; from v13 on the answer names none.
Source: Kafka's KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, FetchRequest, FetchSession,
KIP-74, KIP-227; UnifiedLog.lastStableOffset, LocalLog.addAbortedTransactions, KIP-98.

Chooses the partitions that a fetch reads and those that its answer names, for whole requests and for
sessions (KIP-227).

    session id  session epoch   the fetch is
    0           −1              whole, without a session
    0           0               whole, and asks for a session
    n           −1              whole, and ends session n
    n           0               whole, and replaces session n
    n           e > 0           incremental in session n, when e is its next epoch

Source: Kafka's FetchManager.newContext and its FetchContext classes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Answer, Api, Deferred, HoldingBack, RequestContext
from seqgate.gateway.handlers.answering.leaders import name_leaders
from seqgate.gateway.protocol.fetch_codec import (
    REFUSED,
    FetchPosition,
    FetchRequest,
    FetchRow,
    Piece,
    TopicKey,
    TopicRows,
    encode_fetch_response,
    error_row,
    fetch_reader,
)
from seqgate.gateway.protocol.primitives import NodeEndpoint
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.cold_reads import Wanted
from seqgate.gateway.runtime.partitions.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SESSIONLESS,
    DelayedFetch,
    FetchSession,
    PartitionKey,
    SessionPartition,
)
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import FileRegion, LogError, NotCached, OffsetOutOfRange, PartitionLog, Place

if TYPE_CHECKING:
    from seqgate.gateway.cluster.parts.manifest import PartitionKey as StoredKey
    from seqgate.gateway.cluster.reading.bucket_reads import Waiter
    from seqgate.gateway.handlers.records.fetch_replicas import ReplicaReads

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
PLACES_BROUGHT_IN_AT_ONCE = 16
"""The most places that one fetch reads into the page cache at a time; the others follow afterwards."""
MANY_PARTITIONS: Final = 500
"""A fetch of more partitions than this is read in slices, so that other requests get their turn. Opening a
partition for the first time is slow.
"""
FIRST_WITH_LEADERS: Final = 16
"""The first version whose answers name the leader that the client should ask (KIP-951)."""
LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch)))
SENT_BY_THE_KERNEL_BYTES = 64 << 10
"""Runs of records of at least this size are sent with sendfile, which then costs less than reading and
writing them.
"""
RowOf = tuple[PartitionKey, FetchRow]


class _Read:
    """The result of one pass over all requested partitions."""

    __slots__ = (
        "loading",
        "missing",
        "must_answer",
        "partitions",
        "record_bytes",
        "refused",
        "rows",
        "sizes",
        "unknown_ids",
    )

    def __init__(self) -> None:
        self.rows: list[RowOf] = []
        self.unknown_ids: list[RowOf] = []
        """The rows of partitions whose topic id no topic has, which follow `rows` in the answer."""
        self.refused: list[RowOf] = []
        """The rows of other partitions that are unknown or denied; the last ones of the answer."""
        self.partitions: list[Partition] = []
        self.record_bytes = 0
        self.sizes: list[tuple[Partition, int]] = []
        """The bytes of records of each partition that has some."""
        self.missing: list[Place] = []
        """The places that must be read into the page cache first, of at most `PLACES_BROUGHT_IN_AT_ONCE`
        partitions.
        """
        self.loading: list[StoredKey] = []
        """The partitions of other gateways whose records are being fetched from the bucket."""
        self.must_answer = False
        """Whether a partition has an error, a diverging epoch or a preferred replica, which the reader should
        learn without waiting.
        """

    def add(self, key: PartitionKey, row: FetchRow, partition: Partition | None) -> int:
        """Add the row of a partition; return the bytes of its records. `partition` is None where another
        gateway leads it.
        """
        self.rows.append((key, row))
        if row.error_code or row.diverging_epoch is not None or row.preferred_read_replica >= 0:
            self.must_answer = True
        elif partition is not None:
            self.partitions.append(partition)
        size = len(row.records)
        self.record_bytes += size
        if size and partition is not None:
            self.sizes.append((partition, size))
        return size

    def refuse(self, key: PartitionKey, error: ErrorCode) -> None:
        """Add the row of a partition that is unknown or denied; an unknown one ends the wait."""
        rows = self.unknown_ids if error is ErrorCode.unknown_topic_id else self.refused
        rows.append((key, error_row(key[1], error)))
        if error is not ErrorCode.topic_authorization_failed:
            self.must_answer = True

    def in_order(self) -> list[RowOf]:
        """Return all rows in the order of the answer."""
        if self.unknown_ids or self.refused:
            return self.rows + self.unknown_ids + self.refused
        return self.rows


def begin(context: RequestContext[PartitionServices], request: FetchRequest) -> Answer | Deferred:
    """Answer with the records that the logs have now, or wait until enough bytes have arrived."""
    fetch_context, error = open_context(context, request)
    if fetch_context is None:
        return _frame(encode_fetch_response(context.api_version, context.correlation_id, int(error), 0, ()))
    if context.node.access.is_on:
        fetch_context.rights = _FetchRights(context, request)
    if request.isolation_level not in ISOLATION_LEVELS and _reads_any(context, fetch_context):
        return _unknown_isolation(context, request)
    limit = context.node.config.int("fetch.max.bytes")
    max_bytes = min(request.max_bytes, limit)
    if context.charge is not None:
        max_bytes = context.charge.most_fetched(max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    max_wait_ms = request.max_wait_ms
    if fetch_context.count > MANY_PARTITIONS:
        return _Waiting(context, request, fetch_context, max_bytes, min_bytes).begin_in_slices()
    read = _read_all(context, request, fetch_context, max_bytes)
    if not _must_bring_in(read, min_bytes) and (
        read.must_answer or max_wait_ms <= 0 or not read.partitions or read.record_bytes >= min_bytes
    ):
        return _answer(context, request, fetch_context, read)
    return _Waiting(context, request, fetch_context, max_bytes, min_bytes).begin(read)


def _reads_any(context: RequestContext[PartitionServices], fetch_context: FetchContext) -> bool:
    """Return whether any partition of the fetch exists and may be read."""
    return any(_resolve(context, fetch_context, key)[1] not in REFUSED for key, _ in fetch_context.wanted())


def _unknown_isolation(context: RequestContext[PartitionServices], request: FetchRequest) -> Answer:
    """Return the answer to an isolation level that the protocol does not define."""
    error = int(ErrorCode.unknown_server_error)
    topics: list[TopicRows] = []
    if context.api_version < FIRST_TOPIC_ID_VERSION:
        topics = by_topic([(key, FetchRow(key[1], error, -1, -1, -1, (), b"")) for key in request.positions])
    session_id = request.session_id
    return _frame(
        encode_fetch_response(context.api_version, context.correlation_id, error, session_id, topics)
    )


def _must_bring_in(read: _Read, min_bytes: int) -> bool:
    """Return whether the cached data is too little for an answer, so that data must be read from the disk
    first.
    """
    return (
        bool(read.missing or read.loading) and not read.must_answer and read.record_bytes < max(1, min_bytes)
    )


class _Waiting:
    """A fetch that waits for `min_bytes`.

    Bytes that were written may not be visible yet, so the fetch reads again after each wake-up. The fetch
    first waits until old data is in the page cache, however long that takes.
    """

    def __init__(
        self,
        context: RequestContext[PartitionServices],
        request: FetchRequest,
        fetch_context: FetchContext,
        max_bytes: int,
        min_bytes: int,
    ) -> None:
        self.context = context
        self.request = request
        self.fetch_context = fetch_context
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.deadline_s = context.node.loop.time() + request.max_wait_ms / 1000
        self.deferred = HoldingBack()
        self.delayed: DelayedFetch | None = None
        self.wanted: Wanted | Waiter | None = None
        self.brought_in: set[Place] = set()
        self.waits_for_disk = False
        self.abandoned = False
        self.reading: asyncio.Task[None] | None = None
        """The task that reads many partitions slice by slice."""

    def begin(self, read: _Read) -> Deferred:
        self.deferred.on_abandoned = self._abandon
        self._wait(read, self.request.max_wait_ms)
        return self.deferred

    def begin_in_slices(self) -> Deferred:
        self.deferred.on_abandoned = self._abandon
        self._look()
        return self.deferred

    def _wait(self, read: _Read, max_wait_ms: int) -> None:
        if _must_bring_in(read, self.min_bytes):
            if not read.missing:
                reads = self.context.services.bucket_reads
                assert reads is not None
                self.wanted = reads.want(read.loading, self._look)
                return
            # If all these places were read into the page cache before, memory is so short that the kernel has
            # dropped them again. Then read them from the disk.
            self.waits_for_disk = self.brought_in.issuperset(read.missing)
            self.brought_in.update(read.missing)
            self.wanted = self.context.services.cold_reads.want(read.missing, self._look)
            return
        self.brought_in.clear()
        self.delayed = DelayedFetch(
            self.context.node.loop,
            read.partitions,
            min_bytes=self.min_bytes - read.record_bytes,
            max_wait_ms=max_wait_ms,
            committed_only=self.request.isolation_level == READ_COMMITTED,
            complete=self._look,
        )

    def _abandon(self) -> None:
        self.abandoned = True
        if self.delayed is not None:
            self.delayed.cancel()
        if self.wanted is not None:
            self.wanted.cancel()
        if self.reading is not None:
            self.reading.cancel()

    def _look(self) -> None:
        if self.abandoned:
            return
        if self.fetch_context.count > MANY_PARTITIONS:
            self.reading = self.context.node.loop.create_task(self._look_in_slices())
            return
        try:
            read = _read_all(
                self.context,
                self.request,
                self.fetch_context,
                self.max_bytes,
                waits_for_disk=self.waits_for_disk,
            )
            if not self._waits_on(read):
                self.deferred.resolve(_answer(self.context, self.request, self.fetch_context, read))
        except Exception:
            logger.exception("Fetch v%d of %s failed", self.context.api_version, self.context.peer.name)
            self.deferred.fail()

    async def _look_in_slices(self) -> None:
        read = _Read()
        partitions = _read_partitions(
            self.context, self.request, self.fetch_context, self.max_bytes, read, waits=self.waits_for_disk
        )
        try:
            async for _ in in_slices(partitions):
                pass
            if not self._waits_on(read):
                self.deferred.resolve(_answer(self.context, self.request, self.fetch_context, read))
        except Exception:
            logger.exception("Fetch v%d of %s failed", self.context.api_version, self.context.peer.name)
            self.deferred.fail()

    def _waits_on(self, read: _Read) -> bool:
        """Return whether the data read is too little, and the fetch may still wait for more."""
        left_ms = int((self.deadline_s - self.context.node.loop.time()) * 1000)
        waits = _must_bring_in(read, self.min_bytes) or (left_ms > 0 and self._needs_more(read))
        if waits:
            self._wait(read, left_ms)
        return waits

    def _needs_more(self, read: _Read) -> bool:
        ended = read.must_answer or any(partition.closed for partition in read.partitions)
        return bool(read.partitions) and not ended and read.record_bytes < self.min_bytes


def _answer(
    context: RequestContext[PartitionServices],
    request: FetchRequest,
    fetch_context: FetchContext,
    read: _Read,
) -> Answer:
    charge = context.charge
    if charge is not None and not charge.may_fetch(read.record_bytes):
        # The client is over its quota, so the answer has no records and creates no fetch session (KIP-219).
        session_id = fetch_context.session_id
        return _frame(encode_fetch_response(context.api_version, context.correlation_id, 0, session_id, ()))
    if read.missing:
        context.services.cold_reads.bring_in_ahead(read.missing)
    for partition, size in read.sizes:
        partition.fetched_bytes += size
    session_id, answered = fetch_context.answer(read.in_order(), context)
    topics: Sequence[TopicRows] = answered
    endpoints: Sequence[NodeEndpoint] = ()
    if read.must_answer and context.api_version >= FIRST_WITH_LEADERS:
        topics, endpoints = name_leaders(context, topics, LED_ELSEWHERE, to_follower=request.replica_id >= 0)
    pieces = encode_fetch_response(
        context.api_version, context.correlation_id, 0, session_id, topics, endpoints
    )
    if charge is not None:
        charge.count_fetched_beside(sum(map(len, pieces)) - read.record_bytes)
    return _frame(pieces)


def _frame(pieces: list[Piece]) -> Answer:
    """Join the answer into one frame in memory, unless the kernel should send its records."""
    in_memory = [piece for piece in pieces if isinstance(piece, bytes)]
    return b"".join(in_memory) if len(in_memory) == len(pieces) else pieces


def _read_all(
    context: RequestContext[PartitionServices],
    request: FetchRequest,
    fetch_context: FetchContext,
    max_bytes: int,
    *,
    waits_for_disk: bool = False,
) -> _Read:
    """Read partition after partition until `max_bytes`; the first batch may be larger (KIP-74).

    A partition whose data is not in the page cache gets no records, unless `waits_for_disk` is set.
    """
    read = _Read()
    for _ in _read_partitions(context, request, fetch_context, max_bytes, read, waits=waits_for_disk):
        pass
    return read


def _replicas(
    context: RequestContext[PartitionServices], request: FetchRequest, read: _Read
) -> ReplicaReads | None:
    """Return what serves the fetch beside the leaders; None where only leaders serve."""
    if context.services.replicas is None:
        return None
    from seqgate.gateway.handlers.records.fetch_replicas import replica_reads  # noqa: PLC0415 - only clusters with a selector need it

    return replica_reads(context, request, read.loading)


def _read_partitions(
    context: RequestContext[PartitionServices],
    request: FetchRequest,
    fetch_context: FetchContext,
    max_bytes: int,
    read: _Read,
    *,
    waits: bool,
) -> Iterator[None]:
    """Read the partitions into `read`. Yield after each partition, so that the caller can serve other
    requests in between.
    """
    cold_reads = context.services.cold_reads
    storage = cold_reads.storage
    waits = waits or not cold_reads.is_on
    left = max_bytes
    committed_only = request.isolation_level == READ_COMMITTED
    is_deposed = context.services.registry.may_be_led_elsewhere
    replicas = _replicas(context, request, read)
    for key, wanted in fetch_context.wanted():
        partition, error = _resolve(context, fetch_context, key)
        if partition is None and error in REFUSED:
            read.refuse(key, error)
            yield
            continue
        if partition is not None and (request.replica_id >= 0 or is_deposed):
            error = (
                ErrorCode.not_leader_or_follower if is_deposed else _error_of_a_follower(partition, wanted)
            )
            partition = None
        row = None
        if replicas is not None:
            row = replicas.row(key, partition, error, wanted, left, min_one_batch=not read.record_bytes)
        if row is not None:
            pass
        elif partition is None:
            row = error_row(key[1], error)
        else:
            storage.waits = waits
            try:
                row = _read_partition(
                    partition,
                    wanted,
                    left,
                    min_one_batch=not read.record_bytes,
                    committed_only=committed_only,
                )
            except NotCached as cold:
                if len(read.missing) < PLACES_BROUGHT_IN_AT_ONCE:
                    read.missing += cold.places
                row = _row_of(partition, b"", [] if committed_only else None, None)
            finally:
                storage.waits = True
        left = max(0, left - read.add(key, row, partition))
        yield


# One partition of a fetch.


def _resolve(
    context: RequestContext[PartitionServices], fetch_context: FetchContext, key: PartitionKey
) -> tuple[Partition | None, ErrorCode]:
    """Return a partition that the client may read; None and the error where it can't be read."""
    topic_key, index = key
    if fetch_context.rights is not None and fetch_context.rights.denies(topic_key):
        return None, ErrorCode.topic_authorization_failed
    topic = context.services.registry.by_key.get(topic_key)
    if topic is None:
        if isinstance(topic_key, bytes):
            return None, _error_of_a_deleted(context, fetch_context, key)
        return None, ErrorCode.unknown_topic_or_partition
    partition = topic.get(index)
    return partition, ErrorCode.none if partition is not None else topic.error_without(index)


def _error_of_a_deleted(
    context: RequestContext[PartitionServices], fetch_context: FetchContext, key: PartitionKey
) -> ErrorCode:
    """Return the error for a topic id that no topic has.

    A fetch session knows the name that the id had. It answers as for this name, and INCONSISTENT_TOPIC_ID if
    another topic has the name now. Source: Kafka's CachedPartition.maybeResolveUnknownName,
    KafkaApis.handleFetchRequest, ReplicaManager.readFromLog.
    """
    name = fetch_context.known_name(key)
    if name is None:
        return ErrorCode.unknown_topic_id
    if fetch_context.rights is not None and fetch_context.rights.denies(name):
        return ErrorCode.topic_authorization_failed
    topic = context.services.registry.by_name.get(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition
    return topic.refusal(key[1]) or ErrorCode.inconsistent_topic_id


def _error_of_a_follower(partition: Partition, wanted: FetchPosition) -> ErrorCode:
    """Return the error for a fetch with a replica id. No partition has followers.

    Source: Kafka's Partition.followerReplicaOrThrow.
    """
    if wanted.current_leader_epoch < 0:
        return ErrorCode.not_leader_or_follower
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    return ErrorCode.unknown_leader_epoch if error is ErrorCode.none else error


def _read_partition(
    partition: Partition, wanted: FetchPosition, left: int, *, min_one_batch: bool, committed_only: bool
) -> FetchRow:
    """Return the row of a partition, with records of at most `left` bytes.

    Where there are records, a limit below 0 gets UNKNOWN_SERVER_ERROR, as from Kafka's LogSegment.read.
    """
    # Fetch treats every negative epoch as "no epoch" (FetchRequest.optionalEpoch)
    if wanted.current_leader_epoch >= 0:
        error = partition.check_leader_epoch(wanted.current_leader_epoch)
        if error is not ErrorCode.none:
            return error_row(partition.index, error)
    log = partition.log
    upper_bound = log.last_stable_offset if committed_only else log.high_watermark
    aborted: list[tuple[int, int]] | None = [] if committed_only else None
    try:
        diverging = _diverging_epoch(log, wanted)
        if diverging is not None:
            return _row_of(partition, b"", None, diverging)
        max_bytes = min(wanted.partition_max_bytes, left)
        region = log.find(
            wanted.fetch_offset,
            max(0, max_bytes),
            upper_bound=upper_bound,
            min_one_batch=min_one_batch or max_bytes < 0,
        )
        if max_bytes < 0 and region is not None:
            return error_row(partition.index, ErrorCode.unknown_server_error)
        if committed_only:
            aborted = log.aborted_in(wanted.fetch_offset, region)
        records = _records(log, region)
    except OffsetOutOfRange:
        return error_row(partition.index, ErrorCode.offset_out_of_range)
    except LogError as failure:
        return error_row(partition.index, ErrorCode(failure.kafka_error_code))
    return _row_of(partition, records, aborted, None)


def _records(log: PartitionLog, region: FileRegion | None) -> bytes | FileRegion:
    """Return the records for the answer: few as bytes, many as a region of the file, which the kernel sends."""
    if region is None:
        return b""
    return region.kept() if len(region) >= SENT_BY_THE_KERNEL_BYTES else log.read_region(region)


def _diverging_epoch(log: PartitionLog, wanted: FetchPosition) -> tuple[int, int] | None:
    """Return the epoch and offset at which the reader's log and this log diverge (KIP-595;
    UnifiedLog.endOffsetForEpoch).
    """
    if wanted.last_fetched_epoch < 0:
        return None
    leader_epoch, end_offset = log.epochs.end_offset(wanted.last_fetched_epoch, log.log_end_offset)
    if leader_epoch < 0:
        raise OffsetOutOfRange(f"no records of leader epoch {wanted.last_fetched_epoch} or before")
    if leader_epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return leader_epoch, end_offset
    return None


def _row_of(
    partition: Partition,
    records: bytes | FileRegion,
    aborted_transactions: list[tuple[int, int]] | None,
    diverging: tuple[int, int] | None,
) -> FetchRow:
    """Return the row of a partition that was read."""
    log = partition.log
    return FetchRow(
        partition.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted_transactions,
        records,
        diverging,
    )


class _FetchRights:
    """The right of one fetch to read its topics; exists only where there is an authorizer.

    A consumer needs READ on each topic, a follower CLUSTER_ACTION on the cluster. A topic is asked for once
    in a request, when it is first read. A right that is taken away while the fetch waits therefore counts
    from the next fetch on, as in Kafka. Source: Kafka's KafkaApis.handleFetchRequest.
    """

    __slots__ = ("_context", "_decided", "_is_refused_follower", "_reads_as_follower")

    def __init__(self, context: RequestContext[PartitionServices], request: FetchRequest) -> None:
        self._context = context
        self._decided: dict[TopicKey, bool] = {}
        self._reads_as_follower = request.replica_id >= 0
        self._is_refused_follower = self._reads_as_follower and not context.may_cluster(
            Operation.CLUSTER_ACTION
        )

    def denies(self, key: TopicKey) -> bool:
        """Return whether the client may not read the topic, whether it exists or not.

        An id that nobody has is not denied to a consumer; it is asked for again once a topic has it.
        """
        if self._reads_as_follower:
            return self._is_refused_follower
        decided = self._decided.get(key)
        if decided is None:
            name = self._context.services.registry.name_of(key)
            if name is None:
                return False
            decided = self._decided[key] = not self._context.may_topic(Operation.READ, name)
        return decided


# The partitions that a fetch reads and those that its answer names, for whole requests and for sessions.

FIRST_SESSION_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13


class FetchContext:
    """A fetch without a session, or the first of one: every partition that it names is read and answered."""

    rights: _FetchRights | None = None
    """The rights of the client; None where it may read everything."""

    def __init__(
        self, positions: dict[PartitionKey, FetchPosition], *, wants_session: bool, uses_topic_ids: bool
    ) -> None:
        self.positions = positions
        self.wants_session = wants_session
        self.uses_topic_ids = uses_topic_ids

    @property
    def count(self) -> int:
        """Return the number of partitions to read."""
        return len(self.positions)

    @property
    def session_id(self) -> int:
        """The id of the session that the fetch belongs to already."""
        return SESSIONLESS

    def wanted(self) -> Iterable[tuple[PartitionKey, FetchPosition]]:
        """Return the partitions to read, in order."""
        return self.positions.items()

    def known_name(self, key: PartitionKey) -> str | None:
        """Return the name that the fetch session has kept for a topic id; None without a session."""
        del key
        return None

    def answer(
        self, rows: Sequence[tuple[PartitionKey, FetchRow]], context: RequestContext[PartitionServices]
    ) -> tuple[int, list[TopicRows]]:
        """Return the session id for the answer, and its rows by topic."""
        session_id = SESSIONLESS
        if self.wants_session:
            room = context.services.fetch_sessions.room
            session = None
            if room.has(len(rows)):
                session = context.services.fetch_sessions.create(
                    self.uses_topic_ids, context.node.clock.now_ms()
                )
            if session is not None:
                room.partitions += len(rows)
                session_id = session.session_id
                registry = context.services.registry
                for key, row in rows:
                    cached = SessionPartition(self.positions[key])
                    cached.topic_name = registry.name_of(key[0])
                    _has_news(cached, row)
                    session.partitions[key] = cached
        return session_id, by_topic(rows)


class IncrementalFetchContext(FetchContext):
    """A fetch in a session: all partitions of the session are read, those with news are answered."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__({}, wants_session=False, uses_topic_ids=session.uses_topic_ids)
        self.session = session

    @property
    def count(self) -> int:
        return len(self.session.partitions)

    @property
    def session_id(self) -> int:
        return self.session.session_id

    def wanted(self) -> Iterable[tuple[PartitionKey, FetchPosition]]:
        return [(key, cached.position) for key, cached in self.session.partitions.items()]

    def known_name(self, key: PartitionKey) -> str | None:
        cached = self.session.partitions.get(key)
        return None if cached is None else cached.topic_name

    def answer(
        self, rows: Sequence[tuple[PartitionKey, FetchRow]], context: RequestContext[PartitionServices]
    ) -> tuple[int, list[TopicRows]]:
        news = []
        partitions = self.session.partitions
        for key, row in rows:
            cached = partitions.get(key)
            if cached is None:
                continue
            if cached.topic_name is None:
                cached.topic_name = context.services.registry.name_of(key[0])
            if not _has_news(cached, row):
                continue
            news.append((key, row))
            if row.records:
                # partitions that got data go last, so that every partition has its turn
                partitions.move_to_end(key)
        return self.session.session_id, by_topic(news)


def open_context(
    context: RequestContext[PartitionServices], request: FetchRequest
) -> tuple[FetchContext | None, ErrorCode]:
    """Return the context of a fetch request, or the error that answers the whole request."""
    version = context.api_version
    uses_topic_ids = version >= FIRST_TOPIC_ID_VERSION
    if version < FIRST_SESSION_VERSION:
        return FetchContext(request.positions, wants_session=False, uses_topic_ids=False), ErrorCode.none
    cache = context.services.fetch_sessions
    if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
        if request.session_id != SESSIONLESS:
            cache.remove(request.session_id)
        wants_session = request.session_epoch == INITIAL_EPOCH
        whole = FetchContext(request.positions, wants_session=wants_session, uses_topic_ids=uses_topic_ids)
        return whole, ErrorCode.none
    session = cache.get(request.session_id)
    if session is None:
        return None, ErrorCode.fetch_session_id_not_found
    if session.session_epoch != request.session_epoch:
        return None, ErrorCode.invalid_fetch_session_epoch
    if session.uses_topic_ids != uses_topic_ids:
        return None, ErrorCode.fetch_session_topic_id_error
    if not cache.room.has(sum(key not in session.partitions for key in request.positions)):
        # a client without a session sends whole requests
        cache.remove(session.session_id)
        return None, ErrorCode.fetch_session_id_not_found
    before = len(session.partitions)
    _update(session, request)
    cache.room.partitions += len(session.partitions) - before
    cache.touch(session, context.node.clock.now_ms())
    if not session.partitions:
        cache.remove(session.session_id)
        # A partition that the request both names and forgets is read once more.
        whole = FetchContext(request.positions, wants_session=False, uses_topic_ids=uses_topic_ids)
        return whole, ErrorCode.none
    session.advance()
    return IncrementalFetchContext(session), ErrorCode.none


def _update(session: FetchSession, request: FetchRequest) -> None:
    """Add the named partitions to the session and drop the forgotten partitions."""
    for key, position in request.positions.items():
        cached = session.partitions.get(key)
        if cached is None:
            session.partitions[key] = SessionPartition(position)
        else:
            cached.position = position
    for key in request.forgotten:
        session.partitions.pop(key, None)


def _has_news(cached: SessionPartition, row: FetchRow) -> bool:
    return cached.has_news(
        row.error_code,
        len(row.records),
        row.high_watermark,
        row.log_start_offset,
        row.diverging_epoch is not None or row.preferred_read_replica >= 0,
    )


def by_topic(rows: Sequence[tuple[PartitionKey, FetchRow]]) -> list[TopicRows]:
    """Group consecutive rows of the same topic."""
    topics: list[tuple[str | bytes, list[FetchRow]]] = []
    for (topic_key, _), row in rows:
        if not topics or topics[-1][0] != topic_key:
            topics.append((topic_key, []))
        topics[-1][1].append(row)
    return list(topics)


API = Api(1, "Fetch", 4, 18, api.partitions, begin=begin, reader=fetch_reader, names_much=True)
