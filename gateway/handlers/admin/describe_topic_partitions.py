"""DescribeTopicPartitions (key 75, version 0): describe topics by name, in pages of at most 2,000 partitions.
Rights: `DESCRIBE` on the topic.

A page ends with a cursor: the topic and partition with which the next page begins. This API creates no
topics. Topics that the client may not describe are missing among all topics; in every page of a request that
names them they come last, with TOPIC_AUTHORIZATION_FAILED whether they exist or not. Source: KIP-966, Kafka's
DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.leaders import partition_state
from seqgate.gateway.handlers.answering.rights import (
    NOT_ASKED,
    refused_topics,
    topic_operations,
    unseen_topics,
)
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, TopicImage, name_complaint
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

#: Partitions of one page: Kafka's default of max.request.partition.size.limit.
MAX_PARTITIONS_PER_PAGE: Final = 2000


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return one page of the topics in the request, or of all topics, sorted by name."""
    cursor = request.cursor
    names = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        # a cursor outside the list or before the first partition
        topics = [_answered(topic.name, ErrorCode.invalid_request) for topic in request.topics]
        return context.answer(topics=topics, next_cursor=None)
    by_name = context.services.topics.metadata_log.image.topics_by_name
    start = "" if cursor is None else cursor.topic_name
    left = max(min(MAX_PARTITIONS_PER_PAGE, request.response_partition_limit), 1)
    topics = []
    next_cursor = None
    asked = sorted(name for name in names or by_name if name >= start)
    deny = refused_topics if names else unseen_topics
    denied = await deny(context, Operation.DESCRIBE, asked)
    for name in asked:
        if name in denied:
            continue
        if left == 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        topic = by_name.get(name)
        if topic is None:
            topics.append(_unknown(context, name))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        end = min(first + left, len(topic.partitions))
        topics.append(_topic(context, topic, range(first, end)))
        if end < len(topic.partitions):
            next_cursor = {"topic_name": name, "partition_index": end}
            break
        left -= max(end - first, 0)
    if names:
        topics += [_answered(name, ErrorCode.topic_authorization_failed) for name in sorted(denied)]
    return context.answer(topics=topics, next_cursor=next_cursor)


def _topic(context: RequestContext[Services], topic: TopicImage, indexes: range) -> dict[str, Any]:
    served = context.services.partitions.registry.by_name.get(topic.name)
    partitions = []
    for index in indexes:
        state = partition_state(context, topic.partitions[index], served, index)
        partitions.append(
            {
                "error_code": ErrorCode.none,
                "partition_index": index,
                "leader_id": state.leader_id,
                "leader_epoch": state.leader_epoch,
                "replica_nodes": state.replicas,
                "isr_nodes": state.isr,
                "eligible_leader_replicas": (),
                "last_known_elr": (),
                "offline_replicas": state.offline_replicas,
            }
        )
    operations = topic_operations(context, topic.name)
    return _answered(topic.name, ErrorCode.none, operations, topic.topic_id, partitions)


def _unknown(context: RequestContext[Services], name: str) -> dict[str, Any]:
    is_valid = name_complaint(name) is None
    error = ErrorCode.unknown_topic_or_partition if is_valid else ErrorCode.invalid_topic_exception
    return _answered(name, error, topic_operations(context, name))


def _answered(
    name: str,
    error: ErrorCode,
    operations: int = NOT_ASKED,
    topic_id: uuid.UUID | None = None,
    partitions: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    is_told = error not in {ErrorCode.topic_authorization_failed, ErrorCode.invalid_request}
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": is_told and name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


API = Api(key=75, versions=(0, 0), reaches=api.everything, handle=handle, may_be_given_up=True)
