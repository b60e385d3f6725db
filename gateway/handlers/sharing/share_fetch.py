"""ShareFetch (key 78, versions 1–2): acquire records, and acknowledge earlier ones in the same request
(KIP-932). Rights: `READ` on the group; `READ` on the topic.

The member holds the records of the answer until it acknowledges them or their lock times out. When no record
can be acquired, the request waits for `max_wait`. Delayed records (`delivery.delay.header`) are skipped until
they are due; a waiting request then tries again. A request asks for its rights once, when it begins.
`coordinator/share/share_partition.py` decides. Source: Kafka's KafkaApis.handleShareFetchRequest,
DelayedShareFetch.

Reads the batches that a share group may acquire: whole batches, optionally without those of aborted
transactions.

An aborted batch is skipped as if the log did not contain it. The bytes of the answer may contain it, but
nobody acquires it. Source: Kafka's SharePartition.maybeFilterAbortedTransactionalAcquiredRecords.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import Acquired, SharePartition, len_of
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.sharing.share_session import (
    FINAL_EPOCH,
    FIRST_WITH_RENEW,
    INITIAL_EPOCH,
    NO_TOPIC,
    AcknowledgeResult,
    ShareLeaders,
    ShareRequestRefused,
    acknowledge,
    answer,
    begin_session,
    check_request,
    continue_session,
    error_without,
    no_leader,
    partition_of,
    refused,
    unreadable,
)
from seqgate.gateway.protocol.messages import build, milliseconds, response_type
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareSession
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import Services
from seqgate.log import NEVER_DUE, FileRegion, LogError, PartitionLog
from seqgate.log.format.record_batch import BatchHeader, whole_batches
from seqgate.log.format.records import read_end_marker

FIRST_WITH_STRICT_LIMIT: Final = 2
RECORD_LIMIT: Final = 1
DELAYED_READ_BYTES: Final = 1 << 20
"""Bytes read at once from a log with delayed records, of which only a few may be due."""
NO_ERROR: Final = AcknowledgeResult(ErrorCode.none)


class ShareFetchRow(NamedTuple):
    """The part of the answer for one partition."""

    error_code: ErrorCode = ErrorCode.none
    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Apply the acknowledgements, then acquire records, and wait for records when there are none."""
    services = context.services
    answer_type = response_type(context.api_key, context.api_version)
    try:
        check_request(context, request)
        _check_renewing(context, request)
        await services.coordinators.shares.ensure_topic()
        session = await _session(context, request)
    except ShareRequestRefused as error:
        return refused(answer_type, error.error_code, str(error))
    except Unavailable as error:
        return refused(answer_type, error.error_code, None)
    hidden = await unreadable(context, request, session.places)
    outcomes = await acknowledge(context, request, request.topics, hidden)
    if request.share_session_epoch == FINAL_EPOCH:
        services.coordinators.shares.release_member(request.group_id, request.member_id)
        return _answer(context, request.group_id, {}, outcomes)
    if not request.max_records or not request.max_bytes:
        return _answer(context, request.group_id, {}, outcomes)
    rows = await _fetch(context, request, session, hidden, waits=not outcomes)
    if hidden:
        denied = [place for place in session.places if place[0] in hidden]
        rows |= dict.fromkeys(denied, ShareFetchRow(ErrorCode.topic_authorization_failed))
    if request.share_session_epoch == INITIAL_EPOCH:
        rows = {place: rows.get(place, ShareFetchRow()) for place in (*rows, *session.places)}
    return _answer(context, request.group_id, rows, outcomes)


def _check_renewing(context: RequestContext[Services], request: Any) -> None:
    """Refuse a request that renews locks and asks for records (KIP-1222). Raises ShareRequestRefused."""
    if context.api_version < FIRST_WITH_RENEW or not request.is_renew_ack:
        return
    if request.max_wait or request.min_bytes or request.max_bytes or request.max_records:
        text = "A request that renews acknowledgements can't ask for records."
        raise ShareRequestRefused(ErrorCode.invalid_request, text)


async def _session(context: RequestContext[Services], request: Any) -> ShareSession:
    """Return the session, with the partitions that the request adds and without those that it forgets."""
    if request.share_session_epoch == INITIAL_EPOCH:
        session = await begin_session(context, request)
    else:
        session = continue_session(context, request)
    _check_room(context, request, session)
    for topic in request.topics:
        for entry in topic.partitions:
            session.places.setdefault((topic.topic_id or NO_TOPIC, entry.partition_index))
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            session.places.pop((topic.topic_id or NO_TOPIC, partition), None)
    return session


def _check_room(context: RequestContext[Services], request: Any, session: ShareSession) -> None:
    """Refuse more partitions than all share sessions together may have. Raises ShareRequestRefused."""
    wanted = {
        (topic.topic_id or NO_TOPIC, entry.partition_index)
        for topic in request.topics
        for entry in topic.partitions
    }
    more = len(wanted.difference(session.places))
    if not more:
        return
    held = sum(len(other.places) for other in context.services.coordinators.shares.sessions.values())
    limit = context.node.config.int("seqgate.fetch.session.max.partitions")
    if held + more > limit:
        text = (
            f"Share sessions hold {held} partitions, and {more} more would exceed "
            f"seqgate.fetch.session.max.partitions ({limit})."
        )
        raise ShareRequestRefused(ErrorCode.share_session_limit_reached, text)


async def _fetch(
    context: RequestContext[Services],
    request: Any,
    session: ShareSession,
    hidden: AbstractSet[uuid.UUID],
    *,
    waits: bool,
) -> dict[Place, ShareFetchRow]:
    """Acquire records of the session's partitions, but for the topics in `hidden`, and wait for them."""
    loop = context.node.loop
    deadline_s = loop.time() + milliseconds(request.max_wait) / 1000
    sessions = context.services.coordinators.shares.sessions
    while sessions.get((request.group_id, request.member_id)) is session:
        places = list(session.places)
        if hidden:
            places = [place for place in places if place[0] not in hidden]
        rows = await _acquire_all(context, request, session, places)
        left_s = deadline_s - loop.time()
        if rows or not waits or left_s <= 0 or not places:
            return rows
        if not await _wait(context, request, places, left_s):
            waits = False
    return {}  # The member is gone, and nobody would acknowledge records that it acquires now.


async def _acquire_all(
    context: RequestContext[Services], request: Any, session: ShareSession, places: Sequence[Place]
) -> dict[Place, ShareFetchRow]:
    """Acquire from partition after partition until there is enough; partitions that gave records go last next
    time. Partitions that don't exist are named in every answer.
    """
    rows: dict[Place, ShareFetchRow] = {}
    left_bytes = min(request.max_bytes, context.services.partitions.fetch_max_bytes)
    left_records = request.max_records
    async for place in in_slices(places):
        if left_bytes <= 0 or left_records <= 0:
            missing = error_without(context, place)
            if missing is not None:
                rows[place] = ShareFetchRow(missing)
            continue
        partition = partition_of(context, place)
        if isinstance(partition, ErrorCode):
            rows[place] = ShareFetchRow(partition)
            continue
        row = await _acquire(context, request, session, place, partition, left_bytes, left_records)
        if row.error_code is not ErrorCode.none or row.acquired:
            rows[place] = row
            if (
                place in session.places
            ):  # Another request may have removed the partition from the session meanwhile.
                session.places.move_to_end(place)
        left_bytes -= len(row.records)
        left_records -= sum(len_of(one) for one in row.acquired)
    return rows


async def _acquire(
    context: RequestContext[Services],
    request: Any,
    session: ShareSession,
    place: Place,
    partition: Partition,
    max_bytes: int,
    max_records: int,
) -> ShareFetchRow:
    shares = context.services.coordinators.shares
    log = partition.log
    try:
        key = SharePartitionKey(request.group_id, *place)
        found = await shares.open(key, partition)
        while True:
            if shares.sessions.get((request.group_id, request.member_id)) is not session:
                return ShareFetchRow()  # the client has disconnected, or has begun a new session
            log.record_states.release_due(context.node.clock.now_ms())
            batches = await read(context, request.group_id, log, found, max_bytes)
            if batches is None or shares.sessions.get((request.group_id, request.member_id)) is not session:
                return ShareFetchRow()
            if shares.find(key) is not found:
                return ShareFetchRow()  # the state was dropped meanwhile; the next fetch reads what is stored
            acquired = _acquire_from(context, request, log, found, batches, max_records)
            if acquired:
                break
            if found.next_offset(log.record_states.delayed) <= batches.first_offset:
                return ShareFetchRow()  # nothing was acquired, and no offset was skipped
    except Unavailable as error:
        return ShareFetchRow(error.error_code)
    except LogError as error:
        return ShareFetchRow(ErrorCode(error.kafka_error_code))
    shares.acquired(key, found)
    # With delays, batches without due records are not sent.
    records = batches.spanning(acquired) if log.record_states.delayed is None else batches.holding(acquired)
    partition.fetched_bytes += len(records)
    return ShareFetchRow(records=records, acquired=tuple(acquired))


def _acquire_from(
    context: RequestContext[Services],
    request: Any,
    log: PartitionLog,
    found: SharePartition,
    batches: Batches,
    max_records: int,
) -> list[Acquired]:
    """Acquire the available offsets of the batches for the member."""
    return found.acquire(
        request.member_id,
        [(place.base_offset, place.last_offset) for place in batches.places],
        max_records,
        context.services.coordinators.shares.limits(request.group_id),
        context.services.coordinators.shares.now_ms(),
        is_strict=context.api_version >= FIRST_WITH_STRICT_LIMIT
        and request.share_acquire_mode == RECORD_LIMIT,
        batch_size=request.batch_size,
        delays=log.record_states.delayed,
        read_from=batches.first_offset,
    )


async def read(
    context: RequestContext[Services], group_id: str, log: PartitionLog, found: SharePartition, max_bytes: int
) -> Batches | None:
    """Return the first batches with an offset that may be acquired; None without. Raises LogError."""
    cold_reads = context.services.partitions.cold_reads
    reading = context.services.coordinators.group_configs.of(group_id).share_reading
    if log.record_states.delayed is not None:
        max_bytes = min(max_bytes, DELAYED_READ_BYTES)
    end_offset = reading.end_offset(log)
    next_offset = offset = max(found.next_offset(log.record_states.delayed), log.log_start_offset)
    first_offset = offset
    # A group's start offset may have been set beyond the end of the log. Then there is nothing to read.
    while offset < end_offset:
        batches = await cold_reads.run(
            partial(
                find_batches,
                log,
                offset,
                max_bytes,
                upper_bound=end_offset,
                committed_only=reading.is_committed_only,
            )
        )
        now_next = max(found.next_offset(log.record_states.delayed), log.log_start_offset)
        if now_next == next_offset:
            if batches is None:
                return None
            if batches.places or batches.end_offset <= offset:
                return batches._replace(first_offset=first_offset)
            offset = batches.end_offset
            await asyncio.sleep(0)  # many batches may have been aborted; let other requests run
            now_next = max(found.next_offset(log.record_states.delayed), log.log_start_offset)
        if now_next != next_offset:
            # Records before these batches were released meanwhile, or another member has acquired some of
            # these.
            next_offset = offset = first_offset = now_next
    return None


async def _wait(
    context: RequestContext[Services], request: Any, places: Iterable[Place], left_s: float
) -> bool:
    """Wait until a record may have become available; return False when the gateway stops or time is up."""
    shares = context.services.coordinators.shares
    happened = asyncio.Event()
    watched = [
        (SharePartitionKey(request.group_id, *place), partition)
        for place in places
        if not isinstance(partition := partition_of(context, place), ErrorCode)
    ]
    next_due_ms = min(
        (partition.log.record_states.next_due_ms for _, partition in watched), default=NEVER_DUE
    )
    due_s = max(0, next_due_ms - context.node.clock.now_ms()) / 1000
    waiter = object()
    for key, partition in watched:
        shares.waiters.add(key, happened.set)
        partition.watch(waiter, happened.set)
    try:
        await asyncio.wait_for(happened.wait(), min(left_s, due_s))
    except TimeoutError:
        if left_s <= due_s:
            return False
    finally:
        for key, partition in watched:
            shares.waiters.remove(key, happened.set)
            partition.unwatch(waiter)
    return not any(partition.closed for _, partition in watched)


def _answer(
    context: RequestContext[Services],
    group_id: str,
    rows: dict[Place, ShareFetchRow],
    outcomes: dict[Place, AcknowledgeResult],
) -> Any:
    module = context.response_module
    partitions = (
        (place, _partition(module, place[1], rows.get(place, ShareFetchRow()), outcomes.get(place, NO_ERROR)))
        for place in dict.fromkeys((*rows, *outcomes))
    )
    return answer(
        module.ShareFetchResponse,
        module.ShareFetchableTopicResponse,
        partitions,
        context.services.coordinators.shares.limits(group_id).lock_duration_ms,
        ShareLeaders(context, module),
    )


def _partition(module: Any, index: int, row: ShareFetchRow, outcome: AcknowledgeResult) -> Any:
    return build(
        module.PartitionData,
        partition_index=index,
        error_code=row.error_code,
        error_message=None,
        acknowledge_error_code=int(outcome.error_code),
        acknowledge_error_message=outcome.message,
        current_leader=no_leader(module),
        records=row.records,
        acquired_records=tuple(
            build(
                module.AcquiredRecords,
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                delivery_count=one.delivery_count,
            )
            for one in row.acquired
        ),
    )


class BatchPlace(NamedTuple):
    """A batch: its offsets, both inclusive, and its start and end in the bytes."""

    base_offset: int
    last_offset: int
    position: int
    end: int


class Batches(NamedTuple):
    """The bytes of a region, its batches that may be acquired, and the offset after its last batch. No offset
    from `first_offset` to the first batch may be acquired: the batches there were aborted.
    """

    data: bytes
    places: list[BatchPlace]
    end_offset: int
    first_offset: int = 0

    def spanning(self, acquired: Sequence[Acquired]) -> bytes:
        """Return the bytes from the first to the last batch with any of these offsets, as Kafka does."""
        start = next(place.position for place in self.places if place.last_offset >= acquired[0].first_offset)
        end = next(
            place.end for place in reversed(self.places) if place.base_offset <= acquired[-1].last_offset
        )
        return self.data[start:end]

    def holding(self, acquired: Sequence[Acquired]) -> bytes:
        """Return only the batches with any of these offsets, which are in order."""
        pieces: list[tuple[int, int]] = []
        number = 0
        for place in self.places:
            while number < len(acquired) and acquired[number].last_offset < place.base_offset:
                number += 1
            if number == len(acquired):
                break
            if acquired[number].first_offset > place.last_offset:
                continue
            if pieces and pieces[-1][1] == place.position:
                pieces[-1] = pieces[-1][0], place.end
            else:
                pieces.append((place.position, place.end))
        return b"".join(self.data[start:end] for start, end in pieces)


def find_batches(
    log: PartitionLog, offset: int, max_bytes: int, *, upper_bound: int, committed_only: bool
) -> Batches | None:
    """Read batches from the one that holds `offset`; None when there are none. Raises LogError, NotCached."""
    region = log.find(offset, max_bytes, upper_bound=upper_bound)
    return None if region is None else read_batches(log, offset, region, committed_only=committed_only)


def read_batches(log: PartitionLog, offset: int, region: FileRegion, *, committed_only: bool) -> Batches:
    """Read the batches of a region that was found for `offset`. Raises LogError."""
    aborted = log.aborted_in(offset, region) if committed_only else []
    data = log.read_region(region)
    found = list(_batches(data))
    end_offset = found[-1][1].last_offset + 1 if found else offset
    if aborted:
        found = list(_decided(data, found, aborted))
    return Batches(data, [place for _, place in found], end_offset)


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, BatchPlace]]:
    for position, header in whole_batches(data):
        end = position + header.size_bytes
        yield header, BatchPlace(header.base_offset, header.last_offset, position, end)


def _decided(
    data: bytes, found: list[tuple[BatchHeader, BatchPlace]], aborted: list[tuple[int, int]]
) -> Iterator[tuple[BatchHeader, BatchPlace]]:
    """Yield all batches except those of the `aborted` transactions, (producer_id, first_offset)."""
    to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    for header, place in found:
        while to_come and to_come[-1][1] <= place.last_offset:
            aborting.add(to_come.pop()[0])
        if header.is_control:
            marker = read_end_marker(data[place.position : place.end])
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            continue
        yield header, place


API = Api(78, "ShareFetch", 1, 2, api.everything, handle=handle)
