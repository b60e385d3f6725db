"""ListPartitionReassignments (key 46, version 0): list the reassignments in progress.

One is in progress until the leader of the partition has handed over to one of the new replicas. The client needs DESCRIBE on the
cluster; a refusal repeats the partitions of the request. Source: Kafka's ReplicationControlManager.listPartitionReassignments, which
lists no partition that is unknown or not being moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.metadata.leadership import is_reassigned
from gateway.metadata.users import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.access import Operation


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the reassignments in progress of the named partitions, of all without names, or the refusal of the request."""
    module = response_module(46, context.api_version)
    denied = cluster_refusal(context, Operation.DESCRIBE)
    error = denied or ApiError(ErrorCode.none)
    if denied is not None:
        topics = [_unanswered(module, topic) async for topic in in_slices(request.topics or ())]
    else:
        topics = await _ongoing(context, module, request.topics)
    return build(
        module.ListPartitionReassignmentsResponse,
        error_code=error.error_code,
        error_message=error.message,
        topics=tuple(topics),
    )


async def _ongoing(context: RequestContext[TopicServices], module: ModuleType, asked: Any) -> list[Any]:
    by_name = context.services.metadata_log.image.topics_by_name
    if asked is None:
        named = [(topic.name, list(topic.partitions)) for topic in by_name.values()]
    else:
        named = [(topic.name, list(topic.partition_indexes)) for topic in asked]
    topics = []
    async for name, indexes in in_slices(named):
        topic = by_name.get(name)
        partitions = tuple(
            _row(module, index, partition.replicas, partition.adding_replicas, partition.removing_replicas)
            for index in indexes
            if topic is not None
            and (partition := topic.partitions.get(index)) is not None
            and is_reassigned(partition)
        )
        if partitions:
            topics.append(build(module.OngoingTopicReassignment, name=name, partitions=partitions))
    return topics


def _unanswered(module: ModuleType, topic: Any) -> Any:
    partitions = tuple(_row(module, index, (), (), ()) for index in topic.partition_indexes)
    return build(module.OngoingTopicReassignment, name=topic.name, partitions=partitions)


def _row(
    module: ModuleType, index: int, replicas: Sequence[int], adding: Sequence[int], removing: Sequence[int]
) -> Any:
    return build(
        module.OngoingPartitionReassignment,
        partition_index=index,
        replicas=tuple(replicas),
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


API = Api(
    key=46,
    name="ListPartitionReassignments",
    min_version=0,
    max_version=0,
    reaches=api.topics,
    handle=handle,
)
