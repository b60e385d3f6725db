"""ShareFetch (key 78, versions 1–2): acquire records, and acknowledge earlier ones in the same request
(KIP-932). Rights: `READ` on the group; `READ` on the topic.

The member holds the records of the answer until it acknowledges them, or their lock times out, or its session
or connection ends, or the leader of the partition changes. Delayed records (`delivery.delay.header`) are
skipped until they are due. `SharePartition.acquire` in `coordinator/share/share_partition.py` decides which
records the member gets. When no record can be acquired, the request waits for `max_wait`; it tries again when
the high watermark moves, when records are released, and when a delayed record is due. A request with
acknowledgements never waits, and none waits for one partition while another has records or an error. A
request asks for its rights once, when it begins. `check_request` decides about the group and the right to
read as its member, `open_session` about the session, `_fetch` and `_wait` about the waiting. Source: Kafka's
KafkaApis.handleShareFetchRequest, DelayedShareFetch.

A group acquires whole batches. A group that reads committed records skips an aborted batch as if the log did
not contain it: the bytes of the answer may contain the batch, but nobody acquires it. Source: Kafka's
SharePartition.maybeFilterAbortedTransactionalAcquiredRecords.

The requests of both APIs belong to the share session of the member:

    share_session_epoch   the request
    0                     begins a session; it can't acknowledge anything yet
    n > 0                 is the next one of the session
    −1                    ends the session, and releases the acquired records

Source: Kafka's SharePartitionManager.newContext, ShareSession, KIP-932,
KafkaApis.processShareFetchResponse, processShareAcknowledgeResponse.

ShareAcknowledge (key 79, versions 1–2): accept, release, reject or renew acquired records one by one
(KIP-932). Rights: `READ` on the group; `READ` on the topic.

`SharePartition.acknowledge` in `coordinator/share/share_partition.py` decides about the records. Source:
Kafka's KafkaApis.handleShareAcknowledgeRequest.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Self

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import is_name_group
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.share.records import MAX_GROUP_ID_BYTES, SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    InvalidRecordState,
    NeverAcquired,
    SharePartition,
    len_of,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_ids
from seqgate.gateway.protocol.frames import NodeEndpoint
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareCoordinator, ShareSession
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import NEVER_DUE, FileRegion, LogError, PartitionLog
from seqgate.log.format.record_batch import BatchHeader, whole_batches
from seqgate.log.format.records import read_end_marker

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
NO_TOPIC: Final = uuid.UUID(int=0)
RECORD_LIMIT: Final = 1
DELAYED_READ_BYTES: Final = 1 << 20
"""Bytes read at once from a log with delayed records, of which only a few may be due."""


class ShareFetchRow(NamedTuple):
    """The part of the answer for one partition."""

    error_code: ErrorCode = ErrorCode.none
    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()


async def handle_fetch(context: RequestContext[Services], request: Any) -> Any:
    """Apply the acknowledgements, then acquire records, and wait for records when there are none."""
    fetch = _ShareFetch(context, request)
    try:
        fetch.check_request()
        fetch.check_renewing()
        await fetch.shares.ensure_topic()
        await fetch.open_session()
    except (ShareRequestRefused, Unavailable) as error:
        return refused(context, error)
    return await fetch.carried_out()


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


# The share session, the acknowledgements, and the frame of the answers of both APIs.


class ShareRequestRefused(Exception):
    """The whole request is refused. The answer has this error code and message."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class AcknowledgeResult(NamedTuple):
    """The result of one partition's acknowledgements."""

    error_code: ErrorCode
    message: str | None = None


NO_ERROR: Final = AcknowledgeResult(ErrorCode.none)


class _ShareRequest:
    """A ShareFetch or a ShareAcknowledge of a member."""

    def __init__(self, context: RequestContext[Services], request: Any) -> None:
        self.context = context
        self.request = request
        self.shares = context.services.coordinators.shares
        self.member = request.group_id, request.member_id
        self.is_final = request.share_session_epoch == FINAL_EPOCH

    def check_request(self) -> None:
        """Check the right to read as a member, the group and the member. Raises ShareRequestRefused."""
        group_id, member_id = self.member
        if group_id is not None and not self.context.may_group(Operation.READ, group_id):
            raise ShareRequestRefused(ErrorCode.group_authorization_failed, "Group authorization failed.")
        if group_id is None or not member_id:
            text = "The group id or the member id is missing."
            raise ShareRequestRefused(ErrorCode.invalid_request, text)
        if len(group_id.encode()) > MAX_GROUP_ID_BYTES:
            text = f"The group id has more than {MAX_GROUP_ID_BYTES} bytes."
            raise ShareRequestRefused(ErrorCode.invalid_group_id, text)
        if is_name_group(group_id):
            text = f"The group id {group_id!r} stands for a producer name, not for a share group."
            raise ShareRequestRefused(ErrorCode.invalid_group_id, text)

    def continue_session(self) -> ShareSession:
        """Return the session of a request with an epoch other than 0. Raises ShareRequestRefused."""
        session = self.shares.sessions.get(self.member)
        epoch = self.request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            text = "A share session begins with a ShareFetch; it can't be continued at epoch 0."
            raise ShareRequestRefused(ErrorCode.invalid_share_session_epoch, text)
        if session is None:
            text = f"Member {self.request.member_id} of {self.request.group_id} has no share session."
            raise ShareRequestRefused(ErrorCode.share_session_not_found, text)
        if not self.is_final:
            if epoch != session.epoch:
                text = f"The share session is at epoch {session.epoch}, not {epoch}."
                raise ShareRequestRefused(ErrorCode.invalid_share_session_epoch, text)
            session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return session

    async def unreadable(self, places: Iterable[Place]) -> AbstractSet[uuid.UUID]:
        """Return the topics of the request and of these places that the client may not read."""
        if not self.context.node.access.is_on:
            return NOTHING
        ids = {place[0] for place in places}
        ids.update(topic.topic_id or NO_TOPIC for topic in self.request.topics)
        registry = self.context.services.partitions.registry
        return await refused_ids(self.context, Operation.READ, ids, registry.by_id)

    async def acknowledge(self, hidden: AbstractSet[uuid.UUID]) -> dict[Place, AcknowledgeResult]:
        """Apply acknowledgements durably, by partition. The client may not read the topics in `hidden`. The
        partitions whose states are stored together share one flush. The last request of a session then
        releases what the member has acquired.
        """
        places: list[Place] = []
        asked: list[Coroutine[Any, Any, AcknowledgeResult]] = []
        for place, entry in places_of(self.request.topics):
            if not entry.acknowledgement_batches:
                continue
            said = [
                Acknowledgement(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
                for batch in entry.acknowledgement_batches
            ]
            places.append(place)
            asked.append(self._acknowledge_one(place, said, is_hidden=place[0] in hidden))
        outcomes = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        if self.is_final:
            self.shares.release_member(*self.member)
        return dict(zip(places, outcomes, strict=True))

    async def _acknowledge_one(
        self, place: Place, said: Sequence[Acknowledgement], *, is_hidden: bool
    ) -> AcknowledgeResult:
        partition = partition_of(self.context, place)
        if partition is ErrorCode.unknown_topic_id:
            return AcknowledgeResult(partition)
        complaint = _complaint(said, renews=getattr(self.request, "is_renew_ack", False))
        if complaint is not None:
            return AcknowledgeResult(ErrorCode.invalid_request, complaint)
        if is_hidden:
            return AcknowledgeResult(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
        if isinstance(partition, ErrorCode):
            return AcknowledgeResult(partition)
        key = SharePartitionKey(self.request.group_id, *place)
        try:
            await self.shares.acknowledge(key, self.request.member_id, said)
        except InvalidRecordState as error:
            return AcknowledgeResult(ErrorCode.invalid_record_state, str(error))
        except NeverAcquired as error:
            return AcknowledgeResult(ErrorCode.invalid_request, str(error))
        except Unavailable as error:
            return AcknowledgeResult(error.error_code)
        return AcknowledgeResult(ErrorCode.none)


class _ShareFetch(_ShareRequest):
    """A ShareFetch, and the session to which it belongs."""

    session: ShareSession

    def check_renewing(self) -> None:
        """Refuse a request that renews locks and asks for records (KIP-1222). Raises ShareRequestRefused."""
        request = self.request
        if not getattr(request, "is_renew_ack", False):
            return
        if request.max_wait or request.min_bytes or request.max_bytes or request.max_records:
            text = "A request that renews acknowledgements can't ask for records."
            raise ShareRequestRefused(ErrorCode.invalid_request, text)

    async def open_session(self) -> None:
        """Begin or continue the session, with the partitions that the request adds and without those that it
        forgets. Raises ShareRequestRefused, Unavailable.
        """
        begins = self.request.share_session_epoch == INITIAL_EPOCH
        self.session = await self._begin_session() if begins else self.continue_session()
        self._check_room()
        for place, _ in places_of(self.request.topics):
            self.session.places.setdefault(place)
        for topic in self.request.forgotten_topics_data:
            for partition in topic.partitions:
                self.session.places.pop((topic.topic_id or NO_TOPIC, partition), None)

    async def _begin_session(self) -> ShareSession:
        """Begin a session in place of the member's former one. Raises ShareRequestRefused, Unavailable."""
        request, shares = self.request, self.shares
        if not request.group_id:
            raise ShareRequestRefused(ErrorCode.invalid_request, "The group id is empty.")
        if not await shares.has_group(request.group_id):
            text = f"There is no share group {request.group_id}."
            raise ShareRequestRefused(ErrorCode.group_id_not_found, text)
        limit = self.context.node.config.int("group.share.max.share.sessions")
        if self.member not in shares.sessions and len(shares.sessions) >= limit:
            shares.release_strangers()
        if self.member not in shares.sessions and len(shares.sessions) >= limit:
            text = f"There are {limit} share sessions, as many as group.share.max.share.sessions allows."
            raise ShareRequestRefused(ErrorCode.share_session_limit_reached, text)
        if any(entry.acknowledgement_batches for _, entry in places_of(request.topics)):
            text = "Nothing can be acknowledged in the first request of a share session."
            raise ShareRequestRefused(ErrorCode.invalid_request, text)
        return shares.begin_session(*self.member, self.context.peer)

    def _check_room(self) -> None:
        """Refuse more partitions than all share sessions together may have. Raises ShareRequestRefused."""
        wanted = {place for place, _ in places_of(self.request.topics)}
        more = len(wanted.difference(self.session.places))
        if not more:
            return
        held = sum(len(other.places) for other in self.shares.sessions.values())
        limit = self.context.node.config.int("seqgate.fetch.session.max.partitions")
        if held + more > limit:
            text = (
                f"Share sessions hold {held} partitions, and {more} more would exceed "
                f"seqgate.fetch.session.max.partitions ({limit})."
            )
            raise ShareRequestRefused(ErrorCode.share_session_limit_reached, text)

    async def carried_out(self) -> Any:
        """Return the answer of a request with a session."""
        places, request = self.session.places, self.request
        hidden = await self.unreadable(places)
        outcomes = await self.acknowledge(hidden)
        rows: dict[Place, ShareFetchRow] = {}
        if not self.is_final and request.max_records and request.max_bytes:
            rows = await self._fetch(hidden, waits=not outcomes)
            if hidden:
                denied = [place for place in places if place[0] in hidden]
                rows |= dict.fromkeys(denied, ShareFetchRow(ErrorCode.topic_authorization_failed))
            if request.share_session_epoch == INITIAL_EPOCH:
                rows = {place: rows.get(place, ShareFetchRow()) for place in (*rows, *places)}
        partitions = (
            (place, _partition(place[1], rows.get(place, ShareFetchRow()), outcomes.get(place, NO_ERROR)))
            for place in dict.fromkeys((*rows, *outcomes))
        )
        return answer(self.context, request.group_id, partitions)

    async def _fetch(self, hidden: AbstractSet[uuid.UUID], *, waits: bool) -> dict[Place, ShareFetchRow]:
        """Acquire records of the session's partitions, but for the topics in `hidden`, and wait for them."""
        loop = self.context.node.loop
        deadline_s = loop.time() + milliseconds(self.request.max_wait) / 1000
        while not self._has_ended():
            places = list(self.session.places)
            if hidden:
                places = [place for place in places if place[0] not in hidden]
            with _Watch(self.shares) as watch:
                rows = await self._acquire_all(places, watch)
                left_s = deadline_s - loop.time()
                if rows or not waits or left_s <= 0 or not places:
                    return rows
                if not await self._wait(watch, left_s):
                    waits = False
        return {}  # The member is gone, and nobody would acknowledge records that it acquires now.

    def _has_ended(self) -> bool:
        """Return whether the client has disconnected, or has begun a new session."""
        return self.shares.sessions.get(self.member) is not self.session

    async def _acquire_all(self, places: Sequence[Place], watch: _Watch) -> dict[Place, ShareFetchRow]:
        """Acquire from partition after partition until there is enough; partitions that gave records go last
        next time. Partitions that don't exist are named in every answer.
        """
        rows: dict[Place, ShareFetchRow] = {}
        left_bytes = min(self.request.max_bytes, self.context.services.partitions.fetch_max_bytes)
        left_records = self.request.max_records
        async for place in in_slices(places):
            if left_bytes <= 0 or left_records <= 0:
                missing = error_without(self.context, place)
                if missing is not None:
                    rows[place] = ShareFetchRow(missing)
                continue
            partition = partition_of(self.context, place)
            if isinstance(partition, ErrorCode):
                rows[place] = ShareFetchRow(partition)
                continue
            # Watch the partition before it is read: the partitions after it may take a while.
            key = SharePartitionKey(self.request.group_id, *place)
            watch.add(key, partition)
            row = await self._acquire(key, partition, left_bytes, left_records)
            if row.error_code is not ErrorCode.none or row.acquired:
                rows[place] = row
                # Another request may have removed the partition from the session meanwhile.
                if place in self.session.places:
                    self.session.places.move_to_end(place)
            left_bytes -= len(row.records)
            left_records -= sum(len_of(one) for one in row.acquired)
        return rows

    async def _acquire(
        self, key: SharePartitionKey, partition: Partition, max_bytes: int, max_records: int
    ) -> ShareFetchRow:
        context, request, shares, log = self.context, self.request, self.shares, partition.log
        try:
            found = await shares.open(key, partition)
            while True:
                if self._has_ended():
                    return ShareFetchRow()
                log.record_states.release_due(context.node.clock.now_ms())
                batches = await read(context, request.group_id, log, found, max_bytes)
                if batches is None or self._has_ended():
                    return ShareFetchRow()
                if shares.find(key) is not found:
                    # the state was dropped meanwhile; the next fetch reads what is stored
                    return ShareFetchRow()
                acquired = found.acquire(
                    request.member_id,
                    [(batch.base_offset, batch.last_offset) for batch in batches.places],
                    max_records,
                    shares.limits(request.group_id),
                    shares.now_ms(),
                    is_strict=getattr(request, "share_acquire_mode", None) == RECORD_LIMIT,
                    batch_size=request.batch_size,
                    delays=log.record_states.delayed,
                    read_from=batches.first_offset,
                )
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
        has_delays = log.record_states.delayed is not None
        records = batches.holding(acquired) if has_delays else batches.spanning(acquired)
        partition.fetched_bytes += len(records)
        return ShareFetchRow(records=records, acquired=tuple(acquired))

    async def _wait(self, watch: _Watch, left_s: float) -> bool:
        """Wait until a record may be available; return False when the gateway stops or time is up."""
        next_due_ms = min(
            (partition.log.record_states.next_due_ms for _, partition in watch.watched), default=NEVER_DUE
        )
        due_s = max(0, next_due_ms - self.context.node.clock.now_ms()) / 1000
        try:
            await asyncio.wait_for(watch.happened.wait(), min(left_s, due_s))
        except TimeoutError:
            if left_s <= due_s:
                return False
        return not any(partition.closed for _, partition in watch.watched)


class _Watch:
    """The partitions that one pass of a fetch reads; `happened` is set when one may have further records."""

    def __init__(self, shares: ShareCoordinator) -> None:
        self._waiters = shares.waiters
        self.watched: list[tuple[SharePartitionKey, Partition]] = []
        self.happened = asyncio.Event()

    def add(self, key: SharePartitionKey, partition: Partition) -> None:
        """Watch a partition until the block ends."""
        self.watched.append((key, partition))
        self._waiters.add(key, self.happened.set)
        partition.watch(self, self.happened.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key, partition in self.watched:
            self._waiters.remove(key, self.happened.set)
            partition.unwatch(self)


def places_of(topics: Iterable[Any]) -> Iterator[tuple[Place, Any]]:
    """Yield the partitions that a request names, each with its entry."""
    for topic in topics:
        for entry in topic.partitions:
            yield (topic.topic_id or NO_TOPIC, entry.partition_index), entry


def _partition(index: int, row: ShareFetchRow, outcome: AcknowledgeResult) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": row.error_code,
        "error_message": None,
        "acknowledge_error_code": int(outcome.error_code),
        "acknowledge_error_message": outcome.message,
        "current_leader": NO_LEADER,
        "records": row.records,
        "acquired_records": [one._asdict() for one in row.acquired],
    }


def partition_of(context: RequestContext[Services], place: Place) -> Partition | ErrorCode:
    """Return the partition at a place, or the error if there is none."""
    topic = context.services.partitions.registry.by_id.get(place[0])
    if topic is None:
        return ErrorCode.unknown_topic_id
    partition = topic.get(place[1])
    if partition is not None and context.services.partitions.registry.may_be_led_elsewhere:
        return ErrorCode.not_leader_or_follower
    return partition or topic.error_without(place[1])


def error_without(context: RequestContext[Services], place: Place) -> ErrorCode | None:
    """Return the error for a place that is no partition here; None for one. No partition is opened."""
    topic = context.services.partitions.registry.by_id.get(place[0])
    if topic is None:
        return ErrorCode.unknown_topic_id
    return topic.unknown_or_led_elsewhere(place[1])


def _complaint(said: Sequence[Acknowledgement], *, renews: bool) -> str | None:
    """Return the error message for malformed acknowledgements, or None. The check needs no state: it does not
    ask which records the member has acquired.
    """
    latest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    previous = -1
    for first_offset, last_offset, types in said:
        if first_offset > last_offset:
            return f"The first offset {first_offset} is greater than the last offset {last_offset}."
        if first_offset < previous:
            return f"The batch at offset {first_offset} is out of order or overlaps another one."
        if not types or len(types) not in {1, last_offset - first_offset + 1}:
            return f"There are {len(types)} acknowledge types for {last_offset - first_offset + 1} offsets."
        if not all(AcknowledgeType.GAP <= kind <= latest for kind in types):
            return f"An acknowledge type is unknown: {tuple(types)}."
        previous = last_offset
    return None


def answer(
    context: RequestContext[Services], group_id: str, rows: Iterable[tuple[Place, dict[str, Any]]]
) -> Any:
    """Return the answer with the partitions' rows, by topic in the order in which topics first appear."""
    leaders = _Leaders(context)
    by_topic: dict[uuid.UUID, list[dict[str, Any]]] = {}
    for place, row in rows:
        by_topic.setdefault(place[0], []).append(row | leaders.named_in(place, row))
    limits = context.services.coordinators.shares.limits(group_id)
    return context.answer(
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=timedelta(milliseconds=limits.lock_duration_ms),
        responses=[{"topic_id": topic_id, "partitions": some} for topic_id, some in by_topic.items()],
        node_endpoints=list(leaders.endpoints.values()),
    )


def refused(context: RequestContext[Services], error: ShareRequestRefused | Unavailable) -> Any:
    """Return the answer that refuses the whole request."""
    return context.answer(
        error_code=error.error_code,
        error_message=str(error) if isinstance(error, ShareRequestRefused) else None,
        acquisition_lock_timeout=timedelta(0),
        responses=(),
        node_endpoints=(),
    )


_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch)))


NO_LEADER: Final = {"leader_id": 0, "leader_epoch": 0}
"""The leader of a row that names none. Kafka sends zeros here, too."""


class _Leaders:
    """The leaders that one answer names."""

    def __init__(self, context: RequestContext[Any]) -> None:
        self._brokers = context.node.brokers
        self._listener_name = context.listener_name
        self.endpoints: dict[int, dict[str, Any]] = {}
        """The addresses of the leaders that were named, by node id."""

    def named_in(self, place: Place, row: dict[str, Any]) -> dict[str, Any]:
        """Return the field with the partition's leader if the row has an error about leadership."""
        codes = {int(row["error_code"]), row.get("acknowledge_error_code", 0)}
        leader = None if codes.isdisjoint(_LED_ELSEWHERE) else self._leader_of(place)
        if leader is None:
            return {}
        return {"current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]}}

    def _leader_of(self, place: Place) -> tuple[int, int] | None:
        leader = self._brokers.leader_in(place[0].bytes, place[1])
        broker = None if leader is None else self._brokers.find_live(leader[0], self._listener_name)
        if broker is not None:
            self.endpoints[broker.node_id] = NodeEndpoint(*broker[:4])._asdict()
        return leader


async def handle_acknowledge(context: RequestContext[Services], request: Any) -> Any:
    """Apply the acknowledgements; the answer leaves when they are durable."""
    asked = _ShareRequest(context, request)
    try:
        asked.check_request()
        asked.continue_session()
    except ShareRequestRefused as error:
        return refused(context, error)
    outcomes = await asked.acknowledge(await asked.unreadable(()))
    rows = ((place, _acknowledged(place[1], outcome)) for place, outcome in outcomes.items())
    return answer(context, request.group_id, rows)


def _acknowledged(index: int, outcome: AcknowledgeResult) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": outcome.error_code,
        "error_message": outcome.message,
        "current_leader": NO_LEADER,
    }


SHARE_FETCH_API = Api(key=78, versions=(1, 2), reaches=api.everything, handle=handle_fetch)
SHARE_ACKNOWLEDGE_API = Api(key=79, versions=(1, 2), reaches=api.everything, handle=handle_acknowledge)
