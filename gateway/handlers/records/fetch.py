"""Fetch (key 1, versions 4–18): return records from an offset on, at once or when enough bytes have arrived.
Rights: `READ` on the topic; `CLUSTER_ACTION` on the cluster (instead, with a replica id).

Readers of committed records (isolation_level 1) get the records below the last stable offset, and the list of
aborted transactions that they must filter out. Sessions (v7), leader epochs (v9), log truncation checks (v12)
and topic ids (v13) as in Kafka. A fetch that must wait holds back later requests of its own connection only.

A partition of a topic without READ gets TOPIC_AUTHORIZATION_FAILED, by name whether the topic exists or not
(topic ids are not secret); the other partitions are still waited for. The answer names the partitions that
were read first, then those of unknown topic ids, then all others that are unknown or denied.

From v11 on, another gateway than the leader may serve uploaded records of a bucket (KIP-392,
`replica.selector.class`); `fetch_replicas.py` decides which. An isolation level that the protocol does not
define gets UNKNOWN_SERVER_ERROR for the whole request, if a partition exists that the client may read. Up to
v12 the error also stands beside each partition that the request names; from v13 on the answer names none.
Source: Kafka's KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, FetchRequest, FetchSession,
KIP-74, KIP-227; UnifiedLog.lastStableOffset, LocalLog.addAbortedTransactions, KIP-98.

A fetch names the partitions that it reads, or continues a session that knows them (KIP-227).

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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, Deferred, HoldingBack, RequestContext, ResponseBytes
from seqgate.gateway.handlers.answering.leaders import name_leaders
from seqgate.gateway.protocol.fetch_codec import (
    FetchPosition,
    FetchRequest,
    FetchRow,
    Piece,
    TopicKey,
    TopicRows,
    encode_fetch_response,
    fetch_reader,
)
from seqgate.gateway.protocol.frames import NodeEndpoint
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.cold_reads import ColdReader
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
from seqgate.log import FileRegion, LogError, NotCached, OffsetOutOfRange, PageRange, PartitionLog

if TYPE_CHECKING:
    from seqgate.gateway.cluster.bucket_reads import Waiter
    from seqgate.gateway.cluster.parts.manifest import PartitionKey as StoredKey
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
        self.missing: list[PageRange] = []
        """The places to read into the page cache first, of at most `PLACES_BROUGHT_IN_AT_ONCE` partitions."""
        self.loading: list[StoredKey] = []
        """The partitions of other gateways whose records are being fetched from the bucket."""
        self.must_answer = False
        """Whether an error, diverging epoch or preferred replica must reach the reader without waiting."""

    def add(self, key: PartitionKey, row: FetchRow, partition: Partition | None) -> int:
        """Add a partition's row; return the bytes of its records. `partition` None: it is led elsewhere."""
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
        if self.unknown_ids or self.refused:
            return self.rows + self.unknown_ids + self.refused
        return self.rows


def begin(context: RequestContext[PartitionServices], request: FetchRequest) -> ResponseBytes | Deferred:
    """Answer with the records that the logs have now, or wait until enough bytes have arrived."""
    fetch, error = open_fetch(context, request)
    if fetch is None:
        return _frame(encode_fetch_response(context.api_version, context.correlation_id, int(error), 0, ()))
    if context.node.access.is_on:
        fetch.rights = _FetchRights(context, request)
    if request.isolation_level not in ISOLATION_LEVELS and fetch.reads_any():
        return fetch.unknown_isolation()
    max_bytes = min(request.max_bytes, context.services.fetch_max_bytes)
    if context.charge is not None:
        max_bytes = context.charge.most_fetched(max_bytes)
    fetch.max_bytes = max_bytes
    fetch.min_bytes = min(request.min_bytes, max_bytes)
    if fetch.count > MANY_PARTITIONS:
        return _Waiting(fetch).begin_in_slices()
    read = fetch.read()
    if not fetch.must_bring_in(read) and (
        read.must_answer
        or request.max_wait_ms <= 0
        or not read.partitions
        or read.record_bytes >= fetch.min_bytes
    ):
        return fetch.answer(read)
    return _Waiting(fetch).begin(read)


class _Waiting:
    """A fetch that waits for `min_bytes`, first until old data is in the page cache, however long that takes.
    Bytes that were written may not be visible yet, so the fetch reads again after each wake-up.
    """

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.loop = fetch.context.node.loop
        self.services = fetch.context.services
        self.deadline_s = self.loop.time() + fetch.request.max_wait_ms / 1000
        self.deferred = HoldingBack()
        self.delayed: DelayedFetch | None = None
        self.wanted: ColdReader | Waiter | None = None
        self.brought_in: set[PageRange] = set()
        self.waits_for_disk = False
        self.abandoned = False
        self.reading: asyncio.Task[None] | None = None
        """The task that reads many partitions slice by slice."""

    def begin(self, read: _Read) -> Deferred:
        self.deferred.on_abandoned = self._abandon
        self._wait(read, self.fetch.request.max_wait_ms)
        return self.deferred

    def begin_in_slices(self) -> Deferred:
        self.deferred.on_abandoned = self._abandon
        self._read_again()
        return self.deferred

    def _wait(self, read: _Read, max_wait_ms: int) -> None:
        if self.fetch.must_bring_in(read):
            if not read.missing:
                reads = self.services.bucket_reads
                assert reads is not None
                self.wanted = reads.want(read.loading, self._read_again)
                return
            # If all these places were read into the page cache before, memory is so short that the kernel has
            # dropped them again. Then read them from the disk.
            self.waits_for_disk = self.brought_in.issuperset(read.missing)
            self.brought_in.update(read.missing)
            self.wanted = self.services.cold_reads.want(read.missing, self._read_again)
            return
        self.brought_in.clear()
        self.delayed = DelayedFetch(
            self.loop,
            read.partitions,
            min_bytes=self.fetch.min_bytes - read.record_bytes,
            max_wait_ms=max_wait_ms,
            committed_only=self.fetch.request.isolation_level == READ_COMMITTED,
            complete=self._read_again,
        )

    def _abandon(self) -> None:
        self.abandoned = True
        if self.delayed is not None:
            self.delayed.cancel()
        if self.wanted is not None:
            self.wanted.cancel()
        if self.reading is not None:
            self.reading.cancel()

    def _read_again(self) -> None:
        if self.abandoned:
            return
        if self.fetch.count > MANY_PARTITIONS:
            self.reading = self.loop.create_task(self._read_in_slices())
            return
        with self._failing():
            self._resolve(self.fetch.read(waits_for_disk=self.waits_for_disk))

    async def _read_in_slices(self) -> None:
        read = _Read()
        with self._failing():
            async for _ in in_slices(self.fetch.read_partitions(read, waits=self.waits_for_disk)):
                pass
            self._resolve(read)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Run the block; log its error and fail the answer."""
        try:
            yield
        except Exception:
            context = self.fetch.context
            logger.exception("Fetch v%d of %s failed", context.api_version, context.peer.name)
            self.deferred.fail()

    def _resolve(self, read: _Read) -> None:
        if not self._waits_on(read):
            self.deferred.resolve(self.fetch.answer(read))

    def _waits_on(self, read: _Read) -> bool:
        """Return whether the data read is too little, and the fetch may still wait for more."""
        left_ms = int((self.deadline_s - self.loop.time()) * 1000)
        waits = self.fetch.must_bring_in(read) or (left_ms > 0 and self._needs_more(read))
        if waits:
            self._wait(read, left_ms)
        return waits

    def _needs_more(self, read: _Read) -> bool:
        ended = read.must_answer or any(partition.closed for partition in read.partitions)
        return bool(read.partitions) and not ended and read.record_bytes < self.fetch.min_bytes


def _frame(pieces: list[Piece]) -> ResponseBytes:
    """Join the answer into one frame in memory, unless the kernel should send its records."""
    in_memory = [piece for piece in pieces if isinstance(piece, bytes)]
    return b"".join(in_memory) if len(in_memory) == len(pieces) else pieces


# One partition of a fetch.

REFUSED: Final = frozenset(
    {ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed}
)
"""The errors of partitions that are unknown or denied: nothing is read of them."""


def error_row(index: int, error: ErrorCode) -> FetchRow:
    """Return the row of a partition that can't be read. As in Kafka, a partition that is unknown or denied
    has an empty list of aborted transactions, any other a null.
    """
    return FetchRow(index, int(error), -1, -1, -1, () if error in REFUSED else None, b"")


FIRST_WITH_STORAGE_ERROR: Final = 6


def _without_storage_error(row: FetchRow) -> FetchRow:
    """Return the row for a client that does not know KAFKA_STORAGE_ERROR. Source: Kafka's
    KafkaApis.maybeDownConvertStorageError.
    """
    if row.error_code != ErrorCode.kafka_storage_error:
        return row
    return row._replace(error_code=int(ErrorCode.not_leader_or_follower))


def _error_of_a_follower(partition: Partition, wanted: FetchPosition) -> ErrorCode:
    """Return the error: no partition has followers. Source: Kafka's Partition.followerReplicaOrThrow."""
    if wanted.current_leader_epoch < 0:
        return ErrorCode.not_leader_or_follower
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    return ErrorCode.unknown_leader_epoch if error is ErrorCode.none else error


def _read_partition(
    partition: Partition, wanted: FetchPosition, left: int, *, min_one_batch: bool, committed_only: bool
) -> FetchRow:
    """Return the row of a partition, with records of at most `left` bytes. Where there are records, a limit
    below 0 gets UNKNOWN_SERVER_ERROR, as from Kafka's LogSegment.read.
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
    """Return the records for the answer: few as bytes, many as a file region, which the kernel sends."""
    if region is None:
        return b""
    return region.kept() if len(region) >= SENT_BY_THE_KERNEL_BYTES else log.read_region(region)


def _diverging_epoch(log: PartitionLog, wanted: FetchPosition) -> tuple[int, int] | None:
    """Return the epoch and offset where reader and log diverge (KIP-595; UnifiedLog.endOffsetForEpoch)."""
    if wanted.last_fetched_epoch < 0:
        return None
    leader_epoch, end_offset = log.epochs.end_offset(wanted.last_fetched_epoch, log.log_end_offset)
    if leader_epoch < 0:
        raise OffsetOutOfRange(f"no records of leader epoch {wanted.last_fetched_epoch} or before")
    if wanted.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"offset {wanted.fetch_offset} is below the start, {log.log_start_offset}")
    if leader_epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return leader_epoch, end_offset
    return None


def _row_of(
    partition: Partition,
    records: bytes | FileRegion,
    aborted_transactions: list[tuple[int, int]] | None,
    diverging: tuple[int, int] | None,
) -> FetchRow:
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
    """The right of one fetch to read its topics; exists only where there is an authorizer. A consumer needs
    READ on each topic, a follower CLUSTER_ACTION on the cluster. A topic is asked for once in a request, when
    it is first read. A right that is taken away while the fetch waits therefore counts from the next fetch
    on, as in Kafka. Source: Kafka's KafkaApis.handleFetchRequest.
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
        """Return whether the client may not read the topic, whether it exists or not. An id that nobody has
        is not denied to a consumer; it is asked for again once a topic has it.
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


class Fetch:
    """A fetch without a session, or the first of one: every partition that it names is read and answered."""

    rights: _FetchRights | None = None
    """The rights of the client; None where it may read everything."""
    max_bytes = min_bytes = 0
    """The most bytes of records in the answer, and the bytes for which the fetch waits."""

    def __init__(
        self,
        context: RequestContext[PartitionServices],
        request: FetchRequest,
        *,
        wants_session: bool = False,
    ) -> None:
        self.context = context
        self.request = request
        self.wants_session = wants_session

    @property
    def count(self) -> int:
        """Return the number of partitions to read."""
        return len(self.request.positions)

    @property
    def session_id(self) -> int:
        """The id of the session that the fetch belongs to already."""
        return SESSIONLESS

    def wanted(self) -> Iterable[tuple[PartitionKey, FetchPosition]]:
        """Return the partitions to read, in order."""
        return self.request.positions.items()

    def known_name(self, key: PartitionKey) -> str | None:
        """Return the name that the fetch session has kept for a topic id; None without a session."""
        del key
        return None

    def grouped(self, rows: Sequence[RowOf]) -> tuple[int, list[TopicRows]]:
        """Return the session id for the answer, and its rows by topic."""
        session_id = SESSIONLESS
        if self.wants_session:
            services = self.context.services
            cache = services.fetch_sessions
            session = None
            now_ms = self.context.node.clock.now_ms()
            if cache.make_room(len(rows), now_ms):
                session = cache.create(self.context.api_version >= FIRST_TOPIC_ID_VERSION, now_ms)
            if session is not None:
                cache.partitions += len(rows)
                session_id = session.session_id
                for key, row in rows:
                    cached = SessionPartition(self.request.positions[key])
                    cached.topic_name = services.registry.name_of(key[0])
                    _has_news(cached, row)
                    session.partitions[key] = cached
        return session_id, by_topic(rows)

    def read(self, *, waits_for_disk: bool = False) -> _Read:
        """Read partition after partition until `max_bytes`; the first batch may be larger (KIP-74). A
        partition whose data is not in the page cache gets no records, unless `waits_for_disk` is set.
        """
        read = _Read()
        for _ in self.read_partitions(read, waits=waits_for_disk):
            pass
        return read

    def read_partitions(self, read: _Read, *, waits: bool) -> Iterator[None]:
        """Read the partitions into `read`; yield after each, so that the caller can serve other requests."""
        context, request = self.context, self.request
        cold_reads = context.services.cold_reads
        storage = cold_reads.storage
        waits = waits or not cold_reads.is_on
        left = self.max_bytes
        committed_only = request.isolation_level == READ_COMMITTED
        is_deposed = context.services.registry.may_be_led_elsewhere
        replicas = self._replicas(read)
        for key, wanted in self.wanted():
            partition, error = self._resolve(key)
            if partition is None and error in REFUSED:
                read.refuse(key, error)
                yield
                continue
            if partition is not None and (request.replica_id >= 0 or is_deposed):
                error = (
                    ErrorCode.not_leader_or_follower
                    if is_deposed
                    else _error_of_a_follower(partition, wanted)
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

    def must_bring_in(self, read: _Read) -> bool:
        """Return whether an answer needs data from the disk first, because too little of it is cached."""
        return (
            bool(read.missing or read.loading)
            and not read.must_answer
            and read.record_bytes < max(1, self.min_bytes)
        )

    def answer(self, read: _Read) -> ResponseBytes:
        """Return the answer with the records that were read."""
        context, charge = self.context, self.context.charge
        if charge is not None and not charge.may_fetch(read.record_bytes):
            # The client is over its quota, so the answer has no records and creates no fetch session
            # (KIP-219).
            return self._encoded(0, self.session_id, ())
        if read.missing:
            context.services.cold_reads.bring_in_ahead(read.missing)
        for partition, size in read.sizes:
            partition.fetched_bytes += size
        rows = read.in_order()
        if read.must_answer and context.api_version < FIRST_WITH_STORAGE_ERROR:
            rows = [(key, _without_storage_error(row)) for key, row in rows]
        session_id, answered = self.grouped(rows)
        topics: Sequence[TopicRows] = answered
        endpoints: Sequence[NodeEndpoint] = ()
        if read.must_answer and context.api_version >= FIRST_WITH_LEADERS:
            to_follower = self.request.replica_id >= 0
            topics, endpoints = name_leaders(context, topics, LED_ELSEWHERE, to_follower=to_follower)
        pieces = encode_fetch_response(
            context.api_version, context.correlation_id, 0, session_id, topics, endpoints
        )
        if charge is not None:
            charge.count_fetched_beside(sum(map(len, pieces)) - read.record_bytes)
        return _frame(pieces)

    def reads_any(self) -> bool:
        """Return whether any partition of the fetch exists and may be read. One that is led elsewhere or
        offline exists, too.
        """
        return any(self._resolve(key)[1] not in REFUSED for key, _ in self.wanted())

    def unknown_isolation(self) -> ResponseBytes:
        """Return the answer to an isolation level that the protocol does not define."""
        error, topics = int(ErrorCode.unknown_server_error), []
        if self.context.api_version < FIRST_TOPIC_ID_VERSION:
            positions = self.request.positions
            topics = by_topic([(key, FetchRow(key[1], error, -1, -1, -1, (), b"")) for key in positions])
        return self._encoded(error, self.request.session_id, topics)

    def _encoded(self, error: int, session_id: int, topics: Sequence[TopicRows]) -> ResponseBytes:
        context = self.context
        return _frame(
            encode_fetch_response(context.api_version, context.correlation_id, error, session_id, topics)
        )

    def _replicas(self, read: _Read) -> ReplicaReads | None:
        """Return what serves the fetch beside the leaders; None where only leaders serve."""
        if self.context.services.replicas is None:
            return None
        from seqgate.gateway.handlers.records.fetch_replicas import replica_reads  # noqa: PLC0415 - clusters

        return replica_reads(self.context, self.request, read.loading)

    def _resolve(self, key: PartitionKey) -> tuple[Partition | None, ErrorCode]:
        """Return a partition that the client may read; None and the error where it can't be read."""
        topic_key, index = key
        if self.rights is not None and self.rights.denies(topic_key):
            return None, ErrorCode.topic_authorization_failed
        topic = self.context.services.registry.by_key.get(topic_key)
        if topic is None:
            if isinstance(topic_key, bytes):
                return None, self._error_of_a_deleted(key)
            return None, ErrorCode.unknown_topic_or_partition
        partition = topic.get(index)
        return partition, ErrorCode.none if partition is not None else topic.error_without(index)

    def _error_of_a_deleted(self, key: PartitionKey) -> ErrorCode:
        """Return the error for a topic id that no topic has. A fetch session knows the name that the id had.
        It answers as for this name, and INCONSISTENT_TOPIC_ID if another topic has the name now. Source:
        Kafka's CachedPartition.maybeResolveUnknownName, KafkaApis.handleFetchRequest,
        ReplicaManager.readFromLog.
        """
        name = self.known_name(key)
        if name is None:
            return ErrorCode.unknown_topic_id
        if self.rights is not None and self.rights.denies(name):
            return ErrorCode.topic_authorization_failed
        topic = self.context.services.registry.by_name.get(name)
        if topic is None:
            return ErrorCode.unknown_topic_or_partition
        return topic.unknown_or_led_elsewhere(key[1]) or ErrorCode.inconsistent_topic_id


class SessionFetch(Fetch):
    """A fetch in a session: all partitions of the session are read, those with news are answered."""

    def __init__(
        self, context: RequestContext[PartitionServices], request: FetchRequest, session: FetchSession
    ) -> None:
        super().__init__(context, request)
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

    def grouped(self, rows: Sequence[RowOf]) -> tuple[int, list[TopicRows]]:
        news = []
        partitions = self.session.partitions
        for key, row in rows:
            cached = partitions.get(key)
            if cached is None:
                continue
            if cached.topic_name is None:
                cached.topic_name = self.context.services.registry.name_of(key[0])
            if not _has_news(cached, row):
                continue
            news.append((key, row))
            if row.records:
                # partitions that got data go last, so that every partition has its turn
                partitions.move_to_end(key)
        return self.session.session_id, by_topic(news)


def open_fetch(
    context: RequestContext[PartitionServices], request: FetchRequest
) -> tuple[Fetch | None, ErrorCode]:
    """Return the fetch that a request asks for, or the error that answers the whole request."""
    if context.api_version < FIRST_SESSION_VERSION:
        return Fetch(context, request), ErrorCode.none
    cache = context.services.fetch_sessions
    if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
        if request.session_id != SESSIONLESS:
            cache.remove(request.session_id)
        wants_session = request.session_epoch == INITIAL_EPOCH
        return Fetch(context, request, wants_session=wants_session), ErrorCode.none
    session = cache.get(request.session_id)
    if session is None:
        return None, ErrorCode.fetch_session_id_not_found
    if session.session_epoch != request.session_epoch:
        return None, ErrorCode.invalid_fetch_session_epoch
    if session.uses_topic_ids != (context.api_version >= FIRST_TOPIC_ID_VERSION):
        return None, ErrorCode.fetch_session_topic_id_error
    now_ms = context.node.clock.now_ms()
    cache.touch(session, now_ms)  # it does not make room for itself
    if not cache.make_room(sum(key not in session.partitions for key in request.positions), now_ms):
        # a client without a session sends whole requests
        cache.remove(session.session_id)
        return None, ErrorCode.fetch_session_id_not_found
    before = len(session.partitions)
    _update(session, request)
    cache.partitions += len(session.partitions) - before
    if not session.partitions:
        cache.remove(session.session_id)
        # A partition that the request both names and forgets is read once more.
        return Fetch(context, request), ErrorCode.none
    session.advance()
    return SessionFetch(context, request, session), ErrorCode.none


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
    """Return whether the incremental answer must name a partition, which has the row now: for its records, a
    diverging epoch, a preferred read replica, a moved offset or an error. Keep the row's offsets.

    Without an error, −1 stands for an offset that is not known yet, which is no news.
    """
    error_code, high_watermark, log_start_offset = row.error_code, row.high_watermark, row.log_start_offset
    news = bool(row.records) or row.diverging_epoch is not None or row.preferred_read_replica >= 0
    if high_watermark != cached.high_watermark and (high_watermark >= 0 or error_code):
        cached.high_watermark = high_watermark
        news = True
    if log_start_offset != cached.log_start_offset and (log_start_offset >= 0 or error_code):
        cached.log_start_offset = log_start_offset
        news = True
    if error_code:
        # −1 never equals a real watermark, so the next answer names the partition again until the error is
        # gone
        cached.high_watermark = -1
        news = True
    return news


def by_topic(rows: Sequence[RowOf]) -> list[TopicRows]:
    """Group consecutive rows of the same topic."""
    topics: list[tuple[str | bytes, list[FetchRow]]] = []
    for (topic_key, _), row in rows:
        if not topics or topics[-1][0] != topic_key:
            topics.append((topic_key, []))
        topics[-1][1].append(row)
    return list(topics)


API = Api(key=1, versions=(4, 18), reaches=api.partitions, begin=begin, reader=fetch_reader, names_much=True)
