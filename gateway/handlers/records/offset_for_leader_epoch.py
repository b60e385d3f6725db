"""OffsetForLeaderEpoch (key 23, versions 2–4): return the offset at which a leader epoch ends. Rights:
`DESCRIBE` on the topic; `CLUSTER_ACTION` on the cluster (or this, for all topics).

Consumers use it to find out whether the records that they read were truncated. Topics without a right come
last, with TOPIC_AUTHORIZATION_FAILED whether they exist or not. Source: Kafka's
ReplicaManager.lastOffsetForLeaderEpoch, UnifiedLog.endOffsetForEpoch (KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOTHING, has_on_cluster, refused_topics
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation


async def handle(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Return the largest leader epoch up to the requested one, and its end offset."""
    denied: AbstractSet[str] = NOTHING
    if not has_on_cluster(context, Operation.CLUSTER_ACTION):
        names = (topic.topic for topic in request.topics)
        denied = await refused_topics(context, Operation.DESCRIBE, names)
    # refused topics come last
    asked = [topic for topic in request.topics if topic.topic not in denied]
    asked += [topic for topic in request.topics if topic.topic in denied]
    topics = []
    for topic in asked:
        is_denied = topic.topic in denied
        rows = [
            _end_offset(context, topic.topic, entry, is_denied=is_denied)
            async for entry in in_slices(topic.partitions)
        ]
        topics.append(context.row("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(rows)))
    return context.answer(topics=tuple(topics))


def _end_offset(
    context: RequestContext[PartitionServices], topic: str, entry: Any, *, is_denied: bool
) -> Any:
    partition = None if is_denied else context.services.registry.get(topic, entry.partition)
    leader_epoch, end_offset = -1, -1
    if is_denied:
        error = ErrorCode.topic_authorization_failed
    elif partition is None:
        error = context.services.registry.error_without(topic, entry.partition)
    elif context.services.registry.may_be_led_elsewhere:
        error = ErrorCode.not_leader_or_follower
    elif partition.log.offline:
        error = ErrorCode.kafka_storage_error
    else:
        error = partition.check_leader_epoch(entry.current_leader_epoch)
    if partition is not None and error is ErrorCode.none:
        leader_epoch, end_offset = partition.log.epochs.end_offset(
            entry.leader_epoch, partition.log.log_end_offset
        )
    return context.row(
        "EpochEndOffset",
        error_code=error,
        partition=entry.partition,
        leader_epoch=leader_epoch,
        end_offset=end_offset,
    )


API = Api(key=23, versions=(2, 4), reaches=api.partitions, handle=handle, may_be_given_up=True)
