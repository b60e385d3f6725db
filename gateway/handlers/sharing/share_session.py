"""The shared part of ShareFetch and ShareAcknowledge: the session, the acknowledgements, and the frame of the
answer.

    share_session_epoch   the request
    0                     begins a session; it can't acknowledge anything yet
    n > 0                 is the next one of the session
    −1                    ends the session, and releases the acquired records

Source: Kafka's SharePartitionManager.newContext, ShareSession, KIP-932,
KafkaApis.processShareFetchResponse, processShareAcknowledgeResponse.

ShareAcknowledge (key 79, versions 1–2): accept, release, reject or renew acquired records one by one
(KIP-932). Rights: `READ` on the group; `READ` on the topic.

`coordinator/share/share_partition.py` decides. Source: Kafka's KafkaApis.handleShareAcknowledgeRequest.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import is_name_group
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.share.records import MAX_GROUP_ID_BYTES, SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    InvalidRecordState,
    NeverAcquired,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_ids
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareSession
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_WITH_RENEW: Final = 2
MAX_EPOCH: Final = 2**31 - 1
NO_TOPIC: Final = uuid.UUID(int=0)


class ShareRequestRefused(Exception):
    """The whole request is refused. The answer has this error code and message."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class AcknowledgeResult(NamedTuple):
    """The result of one partition's acknowledgements."""

    error_code: ErrorCode
    message: str | None = None


def check_request(context: RequestContext[Services], request: Any) -> None:
    """Check the client's right to read as a member, the group and the member. Raises ShareRequestRefused."""
    if request.group_id is not None and not context.may_group(Operation.READ, request.group_id):
        raise ShareRequestRefused(ErrorCode.group_authorization_failed, "Group authorization failed.")
    if request.group_id is None or not request.member_id:
        text = "The group id or the member id is missing."
        raise ShareRequestRefused(ErrorCode.invalid_request, text)
    if len(request.group_id.encode()) > MAX_GROUP_ID_BYTES:
        text = f"The group id has more than {MAX_GROUP_ID_BYTES} bytes."
        raise ShareRequestRefused(ErrorCode.invalid_group_id, text)
    if is_name_group(request.group_id):
        text = f"The group id {request.group_id!r} stands for a producer name, not for a share group."
        raise ShareRequestRefused(ErrorCode.invalid_group_id, text)


def continue_session(context: RequestContext[Services], request: Any) -> ShareSession:
    """Return the session of a request with an epoch other than 0. Raises ShareRequestRefused."""
    session = context.services.coordinators.shares.sessions.get((request.group_id, request.member_id))
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        text = "A share session begins with a ShareFetch; it can't be continued at epoch 0."
        raise ShareRequestRefused(ErrorCode.invalid_share_session_epoch, text)
    if session is None:
        text = f"Member {request.member_id} of {request.group_id} has no share session."
        raise ShareRequestRefused(ErrorCode.share_session_not_found, text)
    if epoch != FINAL_EPOCH:
        if epoch != session.epoch:
            text = f"The share session is at epoch {session.epoch}, not {epoch}."
            raise ShareRequestRefused(ErrorCode.invalid_share_session_epoch, text)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
    return session


async def begin_session(context: RequestContext[Services], request: Any) -> ShareSession:
    """Begin a session in place of the member's former one. Raises ShareRequestRefused, Unavailable."""
    if not request.group_id:
        raise ShareRequestRefused(ErrorCode.invalid_request, "The group id is empty.")
    shares = context.services.coordinators.shares
    if not await shares.has_group(request.group_id):
        text = f"There is no share group {request.group_id}."
        raise ShareRequestRefused(ErrorCode.group_id_not_found, text)
    key = request.group_id, request.member_id
    limit = context.node.config.int("group.share.max.share.sessions")
    if key not in shares.sessions and len(shares.sessions) >= limit:
        shares.release_strangers()
    if key not in shares.sessions and len(shares.sessions) >= limit:
        text = f"There are {limit} share sessions, as many as group.share.max.share.sessions allows."
        raise ShareRequestRefused(ErrorCode.share_session_limit_reached, text)
    if any(entry.acknowledgement_batches for topic in request.topics for entry in topic.partitions):
        text = "Nothing can be acknowledged in the first request of a share session."
        raise ShareRequestRefused(ErrorCode.invalid_request, text)
    return shares.begin_session(*key, context.peer)


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
    return topic.refusal(place[1])


async def unreadable(
    context: RequestContext[Services], request: Any, places: Iterable[Place]
) -> AbstractSet[uuid.UUID]:
    """Return the topics of the request and of these places that the client may not read."""
    if not context.node.access.is_on:
        return NOTHING
    ids = {place[0] for place in places}
    ids.update(topic.topic_id or NO_TOPIC for topic in request.topics)
    return await refused_ids(context, Operation.READ, ids, context.services.partitions.registry.by_id)


async def acknowledge(
    context: RequestContext[Services], request: Any, topics: Iterable[Any], hidden: AbstractSet[uuid.UUID]
) -> dict[Place, AcknowledgeResult]:
    """Apply acknowledgements durably, by partition. The client may not read the topics in `hidden`. The
    partitions whose states are stored together share one flush.
    """
    renews = context.api_version >= FIRST_WITH_RENEW and request.is_renew_ack
    places: list[Place] = []
    asked: list[Coroutine[Any, Any, AcknowledgeResult]] = []
    for topic in topics:
        for entry in topic.partitions:
            if not entry.acknowledgement_batches:
                continue
            place = (topic.topic_id or NO_TOPIC, entry.partition_index)
            said = [
                Acknowledgement(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
                for batch in entry.acknowledgement_batches
            ]
            places.append(place)
            asked.append(
                _acknowledge_one(context, request, place, said, renews=renews, is_hidden=place[0] in hidden)
            )
    outcomes = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
    return dict(zip(places, outcomes, strict=True))


async def _acknowledge_one(
    context: RequestContext[Services],
    request: Any,
    place: Place,
    said: Sequence[Acknowledgement],
    *,
    renews: bool,
    is_hidden: bool,
) -> AcknowledgeResult:
    partition = partition_of(context, place)
    if partition is ErrorCode.unknown_topic_id:
        return AcknowledgeResult(partition)
    complaint = _complaint(said, renews=renews)
    if complaint is not None:
        return AcknowledgeResult(ErrorCode.invalid_request, complaint)
    if is_hidden:
        return AcknowledgeResult(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
    if isinstance(partition, ErrorCode):
        return AcknowledgeResult(partition)
    key = SharePartitionKey(request.group_id, *place)
    try:
        await context.services.coordinators.shares.acknowledge(key, request.member_id, said)
    except InvalidRecordState as error:
        return AcknowledgeResult(ErrorCode.invalid_record_state, str(error))
    except NeverAcquired as error:
        return AcknowledgeResult(ErrorCode.invalid_request, str(error))
    except Unavailable as error:
        return AcknowledgeResult(error.error_code)
    return AcknowledgeResult(ErrorCode.none)


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
    response_type: Any,
    topic_type: Any,
    rows: Iterable[tuple[Place, Any]],
    lock_duration_ms: int,
    leaders: ShareLeaders,
) -> Any:
    """Return the answer with the partitions' rows, by topic in the order in which topics first appear."""
    by_topic: dict[uuid.UUID, list[Any]] = {}
    for place, row in rows:
        by_topic.setdefault(place[0], []).append(leaders.named_in(place, row))
    responses = tuple(
        build(topic_type, topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic.items()
    )
    return build(
        response_type,
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=timedelta(milliseconds=lock_duration_ms),
        responses=responses,
        node_endpoints=leaders.endpoints,
    )


def refused(response_type: Any, error: ErrorCode, message: str | None) -> Any:
    """Return the answer that refuses the whole request."""
    return build(
        response_type,
        error_code=error,
        error_message=message,
        acquisition_lock_timeout=timedelta(0),
        responses=(),
        node_endpoints=(),
    )


_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch)))


def no_leader(module: ModuleType) -> Any:
    """Return the leader of a row that names none. Kafka sends zeros here, too."""
    return build(module.LeaderIdAndEpoch, leader_id=0, leader_epoch=0)


class ShareLeaders:
    """The leaders that one answer names."""

    def __init__(self, context: RequestContext[Any], module: ModuleType) -> None:
        """Begin without leaders. `module` has the classes of the answer."""
        self._brokers = context.node.brokers
        self._listener_name = context.listener_name
        self._module = module
        self._endpoints: dict[int, Any] = {}

    def named_in(self, place: Place, row: Any) -> Any:
        """Return the row, with the partition's leader if the row has an error about leadership."""
        codes = {int(row.error_code), int(getattr(row, "acknowledge_error_code", 0))}
        leader = None if codes.isdisjoint(_LED_ELSEWHERE) else self._leader_of(place)
        if leader is None:
            return row
        node_id, leader_epoch = leader
        named = build(self._module.LeaderIdAndEpoch, leader_id=node_id, leader_epoch=leader_epoch)
        return replace(row, current_leader=named)

    @property
    def endpoints(self) -> tuple[Any, ...]:
        """Return the addresses of the leaders that were named."""
        return tuple(self._endpoints.values())

    def _leader_of(self, place: Place) -> tuple[int, int] | None:
        leader = self._brokers.leader_in(place[0].bytes, place[1])
        broker = None if leader is None else self._brokers.find_live(leader[0], self._listener_name)
        if broker is not None:
            self._endpoints[broker.node_id] = build(
                self._module.NodeEndpoint,
                node_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
            )
        return leader


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Apply the acknowledgements; the answer leaves when they are durable."""
    module = context.response_module
    shares = context.services.coordinators.shares
    try:
        check_request(context, request)
        continue_session(context, request)
    except ShareRequestRefused as error:
        return refused(module.ShareAcknowledgeResponse, error.error_code, str(error))
    except Unavailable as error:
        return refused(module.ShareAcknowledgeResponse, error.error_code, None)
    hidden = await unreadable(context, request, ())
    outcomes = await acknowledge(context, request, request.topics, hidden)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.release_member(request.group_id, request.member_id)
    rows = ((place, _partition(module, place[1], outcome)) for place, outcome in outcomes.items())
    return answer(
        module.ShareAcknowledgeResponse,
        module.ShareAcknowledgeTopicResponse,
        rows,
        shares.limits(request.group_id).lock_duration_ms,
        ShareLeaders(context, module),
    )


def _partition(module: Any, index: int, outcome: AcknowledgeResult) -> Any:
    return build(
        module.PartitionData,
        partition_index=index,
        error_code=outcome.error_code,
        error_message=outcome.message,
        current_leader=no_leader(module),
    )


API = Api(79, "ShareAcknowledge", 1, 2, api.everything, handle=handle)
