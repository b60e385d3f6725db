"""TxnOffsetCommit (key 28, versions 0–6): commit offsets that take effect when the transaction is committed.
Rights: `WRITE` on the transactional id; `READ` on the group; `READ` on the topic.

From v5 on this request adds the partition of the group's offsets to the transaction (KIP-890); before,
AddOffsetsToTxn does. From v6 on topics are named by id, and a member learns that its group is unknown or its
epoch stale (KIP-1319); before, both are ILLEGAL_GENERATION. A share group, which commits nothing, is unknown
in every version. The request need not name the member for which the producer commits. A member of a classic
group may commit what it read before a rebalance. A member of a consumer or streams group may commit any
partition at its own epoch, and at an older one those that it has held since then (KIP-1251); others are
ILLEGAL_GENERATION, or STALE_MEMBER_EPOCH (`may_commit` of each kind of group, which
`OffsetCommits.check` asks for OffsetCommit too). Source: Kafka's KafkaApis.handleTxnOffsetCommitRequest,
OffsetMetadataManager.commitTransactionalOffset.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change, Pending
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition, Topics
from seqgate.gateway.coordinator.transaction.rules import VERSION_2, Producer, TransactionRefused
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import metadata_fits
from seqgate.gateway.handlers.answering.rights import refused_topics
from seqgate.gateway.handlers.transactions.end_txn import refuse_late
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TookPart
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import InvalidProducerEpoch

FIRST_WITH_LOADING: Final = 2
FIRST_WITH_MEMBER: Final = 3
FIRST_WITH_ABORTABLE: Final = 4
FIRST_THAT_ADDS: Final = 5
"""First version in which the commit adds its partition to the transaction."""
FIRST_WITH_TOPIC_IDS: Final = 6
_BEFORE_TOPIC_IDS: Final = {
    ErrorCode.group_id_not_found: ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch: ErrorCode.illegal_generation,
}

Errors = dict[tuple[str | uuid.UUID | None, int], ErrorCode]
"""The error of each partition, by the topic as the request names it."""


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Hold the valid offsets until the transaction ends; each partition gets its own result."""
    refusal = _refusal(context, request)
    if refusal is not ErrorCode.none:
        places = (
            (_key(topic), entry.partition_index) for topic in request.topics for entry in topic.partitions
        )
        return _response(context, request, dict.fromkeys(places, refusal))
    by_name = context.services.partitions.registry.by_name
    names = [_name(context, topic) for topic in request.topics]
    hidden = await refused_topics(context, Operation.READ, (name for name in names if name is not None))
    unknown: Errors = {}
    oversize: Errors = {}
    records: dict[tuple[str | uuid.UUID | None, int], OffsetCommitRecord] = {}
    now_ms = context.node.clock.now_ms()
    for topic, name in zip(request.topics, names, strict=True):
        for entry in topic.partitions:
            place = _key(topic), entry.partition_index
            if name is None:
                unknown[place] = ErrorCode.unknown_topic_id
            elif name in hidden:
                unknown[place] = ErrorCode.topic_authorization_failed
            elif (found := by_name.get(name)) is None or not found.has(entry.partition_index):
                unknown[place] = ErrorCode.unknown_topic_or_partition
            elif not metadata_fits(context.node, entry.committed_metadata or ""):
                oversize[place] = ErrorCode.offset_metadata_too_large
            else:
                stored_at = name, entry.partition_index
                records[place] = _record(request.group_id, stored_at, found.topic_id_bytes, entry, now_ms)
    error = ErrorCode.none
    if records or oversize:
        error = await _commit(context, request, list(records.values()))
    errors = {**dict.fromkeys([*records, *oversize], error), **unknown}
    if error is ErrorCode.none:
        errors |= oversize
    return _response(context, request, errors)


def _key(topic: Any) -> str | uuid.UUID | None:
    """Return the topic as the request names it; None for the id that is zero."""
    key: str | uuid.UUID | None = topic.topic_id if hasattr(topic, "topic_id") else topic.name
    return key


def _name(context: RequestContext[Services], topic: Any) -> str | None:
    """Return the name of a topic of the request; None for an id that nobody has."""
    if context.api_version < FIRST_WITH_TOPIC_IDS:
        return str(topic.name)
    found = context.services.partitions.registry.by_id.get(topic.topic_id)
    return None if found is None else found.name


def _refusal(context: RequestContext[Services], request: Any) -> ErrorCode:
    """Return the error if the client may not use the transactional id or the group; else NONE."""
    if not context.may_transactional_id(Operation.WRITE, request.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    if not context.may_group(Operation.READ, request.group_id):
        return ErrorCode.group_authorization_failed
    return ErrorCode.none


def _record(
    group_id: str, place: TopicPartition, topic_id: bytes, entry: Any, now_ms: int
) -> OffsetCommitRecord:
    value = CommittedOffset(
        offset=entry.committed_offset,
        leader_epoch=getattr(entry, "committed_leader_epoch", -1),
        metadata=entry.committed_metadata or "",
        commit_timestamp_ms=now_ms,
        topic_id=topic_id,
    )
    return OffsetCommitRecord(group_id, *place, value)


async def _commit(
    context: RequestContext[Services], request: Any, records: list[OffsetCommitRecord]
) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.invalid_group_id
    version = context.api_version
    committer = Committer(request.group_id)
    if version >= FIRST_WITH_MEMBER:
        committer = Committer(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
    producer = Producer(request.producer_id, request.producer_epoch)
    client_version = VERSION_2 if version >= FIRST_THAT_ADDS else 0
    if client_version < VERSION_2:
        connections = context.services.coordinators.transactions.connections_of_offsets
        refuse_late(connections, context.peer, producer)
    took_part = await _ask_elsewhere(context, request, producer, client_version)

    def take_part(place: TopicPartition) -> tuple[Partition, int] | None:
        """Add the group's partition to the transaction where the client speaks version 2; else check that
        AddOffsetsToTxn has added it. Return the partition and offset of the transaction's newest record while
        it is not durable. Raises TransactionRefused, Unavailable.
        """
        if not request.transactional_id:
            raise TransactionRefused(ErrorCode.invalid_request)
        if took_part is not None:
            took_part.check(context.services.partitions.registry.get(*place))
            return None
        return context.services.coordinators.transactions.verify_or_add(
            request.transactional_id, producer, place, client_version
        )

    try:
        return await commit_in_transaction(
            context.services.coordinators.groups, committer, producer, records, take_part, version
        )
    except TransactionRefused as refused:
        return _error_code(refused, version)
    except Unavailable as error:
        is_loading = error.error_code is ErrorCode.coordinator_load_in_progress
        if is_loading and version < FIRST_WITH_LOADING:
            return ErrorCode.coordinator_not_available
        return error.error_code


async def commit_in_transaction(
    groups: GroupCoordinator,
    committer: Committer,
    producer: tuple[int, int],
    records: Sequence[OffsetCommitRecord],
    take_part: Callable[[TopicPartition], tuple[Partition, int] | None],
    api_version: int,
) -> ErrorCode:
    """Hold offsets, durably, until the producer's transaction ends. Raises Unavailable, and the errors of
    `take_part`. `take_part` adds the partition that holds the group to the transaction, also for offsets that
    the group then refuses. It returns the partition and the offset of that change, which must be durable too.
    """
    loaded = groups.loaded(committer.group_id)
    taken_part: list[tuple[Partition, int]] = []

    def operation(shard: GroupShard, now_ms: int) -> Change[ErrorCode]:
        known = loaded.partition.log.producers.get(producer[0])
        if known is not None and producer[1] < known.producer_epoch:
            return Change(ErrorCode.invalid_producer_epoch)
        written = take_part((OFFSETS_TOPIC, loaded.partition.index))
        if written is not None:
            taken_part.append(written)
        if not all(_is_present(shard.topics, record) for record in records):
            return Change(ErrorCode.unknown_topic_or_partition)
        error = check_in_transaction(shard, committer, records, now_ms, api_version)
        if error is ErrorCode.none:
            error = shard.commits.check_room(records, loaded.max_batch_bytes, groups.largest_offset_bytes)
        if error is not ErrorCode.none:
            return Change(error)
        return Change(error, [Pending(*producer, record) for record in records])

    try:
        error = await groups.shards.run(loaded, operation)
    except InvalidProducerEpoch:
        return ErrorCode.invalid_producer_epoch
    for partition, last_offset in taken_part:
        if not await partition.persisted(last_offset):
            raise Unavailable(ErrorCode.not_coordinator)
    return error


def _is_present(topics: Topics, record: OffsetCommitRecord) -> bool:
    """Return whether the topic of an offset still exists: it may have been deleted, and created again, while
    another gateway was asked about the transaction.
    """
    described = topics.describe(record.topic)
    return described is not None and record.value is not None and record.value.is_of(described[0].bytes)


def check_in_transaction(
    shard: GroupShard,
    committer: Committer,
    records: Sequence[OffsetCommitRecord],
    now_ms: int,
    api_version: int,
) -> ErrorCode:
    """Return whether a TxnOffsetCommit may commit these offsets: an error code. A share group is unknown, the
    request need not name the member for which the producer commits, and a rebalance is no reason to refuse;
    otherwise the checks of an OffsetCommit count.
    """
    if committer.group_id in shard.shares.groups:
        return ErrorCode.group_id_not_found
    if committer.is_anonymous and shard.knows(committer.group_id):
        return ErrorCode.none
    error = shard.commits.check(committer, records, now_ms)
    if error is ErrorCode.rebalance_in_progress:
        return ErrorCode.none  # members may commit what they read before the rebalance
    return error if api_version >= FIRST_WITH_TOPIC_IDS else _BEFORE_TOPIC_IDS.get(error, error)


async def _ask_elsewhere(
    context: RequestContext[Services], request: Any, producer: Producer, client_version: int
) -> TookPart | None:
    """Ask the gateway that coordinates the transaction whether the group's partition takes part, or to add
    it. None where this gateway coordinates the transaction, or the group's partition is not here.
    """
    coordinators = context.services.coordinators
    elsewhere = coordinators.elsewhere
    if not request.transactional_id or elsewhere.coordinator_of(request.transactional_id) is None:
        return None
    try:
        partition = coordinators.groups.shards.of(request.group_id).partition
    except Unavailable:
        return None  # the commit is refused for that
    is_unchecked = client_version < VERSION_2 and not coordinators.transactions.verifies
    if is_unchecked or elsewhere.is_open_in(partition, producer):
        return elsewhere.unasked(partition, producer)
    (answer,) = await elsewhere.ask(request.transactional_id, producer, [partition], client_version)
    return answer


def _response(context: RequestContext[Services], request: Any, errors: Errors) -> Any:
    topics = [
        {
            "topic_id" if hasattr(topic, "topic_id") else "name": _key(topic),
            "partitions": [
                {"partition_index": index, "error_code": errors[_key(topic), index]}
                for index in (entry.partition_index for entry in topic.partitions)
            ],
        }
        for topic in request.topics
        if topic.partitions
    ]
    return context.answer(topics=topics)


def _error_code(error: TransactionRefused, api_version: int) -> ErrorCode:
    """Return the code for a transaction's offsets: INVALID_PRODUCER_EPOCH for PRODUCER_FENCED, and to older
    clients INVALID_TXN_STATE for TRANSACTION_ABORTABLE and COORDINATOR_NOT_AVAILABLE for
    CONCURRENT_TRANSACTIONS.
    """
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and api_version < FIRST_THAT_ADDS:
        return ErrorCode.coordinator_not_available
    return code


API = Api(key=28, versions=(0, 6), reaches=api.everything, handle=handle, is_eager=True)
