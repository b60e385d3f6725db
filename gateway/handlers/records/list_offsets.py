"""ListOffsets (key 2, versions 1–11): look up the offset at a timestamp, or a special position. Rights:
`DESCRIBE` on the topic.

    timestamp  answer
    −1         the high watermark (read_committed: the last stable offset)
    −2, −4     the log start offset (−4: the local log start; all segments are local)
    −3         the first offset that holds the largest timestamp, also below the log start offset
    −5, −6     none (−1): there is no tiered storage (v9, v11)
    ≥ 0        the first offset whose timestamp is not before it

−3 and ≥ 0 get none (−1) where there is no such record, or it is at or beyond the answer to −1. A batch of
more records than `seqgate.batch.decoded.max.records` is not decoded, and its base offset (for ≥ 0 the log
start offset, if that is higher) stands for all its records.

Topics that the client may not describe come last, with TOPIC_AUTHORIZATION_FAILED whether they exist or not.
An isolation level (v2) that the protocol does not define gets UNKNOWN_SERVER_ERROR beside all partitions,
unless the client may describe none of the topics.
Source: Kafka's KafkaApis.handleListOffsetRequest, ListOffsetsRequest,
UnifiedLog.fetchOffsetByTimestamp, KIP-734.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import refused_topics
from seqgate.gateway.handlers.records.fetch import ISOLATION_LEVELS, READ_COMMITTED
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Found(NamedTuple):
    error: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


_DENIED = _Found(ErrorCode.topic_authorization_failed)
_UNKNOWN_ISOLATION = _Found(ErrorCode.unknown_server_error)


async def handle(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Look up every partition; a partition that is asked for twice gets INVALID_REQUEST, as in Kafka."""
    denied = await refused_topics(context, Operation.DESCRIBE, (topic.name for topic in request.topics))
    isolation_level = request.isolation_level if context.api_version >= 2 else 0
    if isolation_level not in ISOLATION_LEVELS and any(topic.name not in denied for topic in request.topics):
        topics = [await _refused(context, topic, _UNKNOWN_ISOLATION) for topic in request.topics]
        return context.answer(topics=tuple(topics))
    named = ((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)
    times = Counter(named)
    refused: set[tuple[str, int]] = set()
    committed_only = isolation_level == READ_COMMITTED
    topics = []
    for topic in request.topics:
        if topic.name in denied:
            continue
        rows = []
        async for entry in in_slices(topic.partitions):
            key = (topic.name, entry.partition_index)
            if times[key] > 1:
                if key in refused:
                    continue
                refused.add(key)
                found = _Found(ErrorCode.invalid_request)
            else:
                look_up = partial(_look_up, context, topic.name, entry, committed_only)
                found = await context.services.cold_reads.run(look_up)
            rows.append(_row(context, entry.partition_index, found))
        if rows:
            topics.append(context.row("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(rows)))
    for topic in request.topics if denied else ():
        if topic.name in denied:
            topics.append(await _refused(context, topic, _DENIED))
    return context.answer(topics=tuple(topics))


async def _refused(context: RequestContext[PartitionServices], topic: Any, found: _Found) -> Any:
    rows = [_row(context, entry.partition_index, found) async for entry in in_slices(topic.partitions)]
    return context.row("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(rows))


def _row(context: RequestContext[PartitionServices], index: int, found: _Found) -> Any:
    return context.row(
        "ListOffsetsPartitionResponse",
        partition_index=index,
        error_code=found.error,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _look_up(
    context: RequestContext[PartitionServices], topic: str, entry: Any, committed_only: bool
) -> _Found:
    if entry.timestamp < 0 and FIRST_VERSION_OF.get(entry.timestamp, 0) > context.api_version:
        return _Found(ErrorCode.unsupported_version)
    if entry.timestamp < EARLIEST_PENDING_UPLOAD:
        return _Found(ErrorCode.unsupported_version)
    partition = context.services.registry.get(topic, entry.partition_index)
    if partition is not None and context.services.registry.may_be_led_elsewhere:
        return _Found(ErrorCode.not_leader_or_follower)
    if partition is None:
        return _Found(context.services.registry.error_without(topic, entry.partition_index))
    current_leader_epoch = entry.current_leader_epoch if context.api_version >= 4 else -1
    error = partition.check_leader_epoch(current_leader_epoch)
    if error is not ErrorCode.none:
        return _Found(error)
    if partition.log.offline:
        return _Found(ErrorCode.kafka_storage_error)
    try:
        return _position(partition, entry.timestamp, committed_only)
    except LogError as failure:
        return _Found(ErrorCode(failure.kafka_error_code))


def _position(partition: Partition, timestamp: int, committed_only: bool) -> _Found:
    log = partition.log
    end_offset = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return _Found(ErrorCode.none, -1, end_offset, partition.leader_epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        start_offset = log.log_start_offset
        return _Found(ErrorCode.none, -1, start_offset, log.epochs.at(start_offset))
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _Found(ErrorCode.none)
    is_largest = timestamp == MAX_TIMESTAMP
    found = log.first_of_largest_timestamp() if is_largest else log.first_not_before(timestamp)
    if found is None or found.offset >= end_offset:
        return _Found(ErrorCode.none)
    return _Found(ErrorCode.none, found.timestamp, found.offset, found.leader_epoch)


API = Api(key=2, versions=(1, 11), reaches=api.partitions, handle=handle, may_be_given_up=True)
