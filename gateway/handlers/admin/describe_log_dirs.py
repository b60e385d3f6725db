"""DescribeLogDirs (key 35, versions 1-5): describe the data directory and the size of each partition in it.

The answer leaves out partitions that another gateway leads: that gateway has their files. The client needs
DESCRIBE on the cluster. Source: Kafka's ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.data_directory import data_directory
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation


async def handle(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Describe the one data directory; `topics` None means all partitions."""
    module = context.response_module
    denied = cluster_refusal(context, Operation.DESCRIBE)
    if denied is not None:
        return build(module.DescribeLogDirsResponse, error_code=denied.error_code, results=())
    path = data_directory(context.node.config)
    limit = TimeLimit(context)
    try:
        topics = await _topics(context, module, limit, request)
        space = await asyncio.wait_for(asyncio.to_thread(os.statvfs, path), max(0.0, limit.left_s))
    except (OSError, TimeoutError) as error:
        is_late = isinstance(error, TimeoutError)
        result = build(
            module.DescribeLogDirsResult,
            error_code=ErrorCode.request_timed_out if is_late else ErrorCode.kafka_storage_error,
            log_dir=path,
            topics=(),
        )
    else:
        result = build(
            module.DescribeLogDirsResult,
            error_code=ErrorCode.none,
            log_dir=path,
            topics=topics,
            total_bytes=space.f_blocks * space.f_frsize,
            usable_bytes=space.f_bavail * space.f_frsize,
            is_cordoned=False,
        )
    return build(module.DescribeLogDirsResponse, error_code=ErrorCode.none, results=(result,))


async def _topics(
    context: RequestContext[PartitionServices], module: ModuleType, limit: TimeLimit, request: Any
) -> tuple[Any, ...]:
    """Describe the partitions, topic by topic. Raises TimeoutError."""
    rows: dict[str, list[Any]] = {}
    wanted = _wanted(context, request).items()
    async for topic, index in limit.each((topic, index) for topic, indexes in wanted for index in indexes):
        rows.setdefault(topic, []).append(_partition(context, module, topic, index))
    return tuple(
        build(module.DescribeLogDirsTopic, name=topic, partitions=tuple(partitions))
        for topic, partitions in rows.items()
    )


def _wanted(context: RequestContext[PartitionServices], request: Any) -> dict[str, Iterable[int]]:
    """Return the partitions to describe, by topic; this opens no partition."""
    partitions = context.services.registry
    if request.topics is None:
        return {topic.name: topic.served_here() for topic in partitions.by_name.values() if topic.count}
    indexes: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        served = partitions.by_name.get(topic.topic)
        for index in topic.partitions:
            if served is not None and served.refusal(index) is None:
                indexes.setdefault(topic.topic, {})[index] = None
    return dict(indexes)


def _partition(context: RequestContext[PartitionServices], module: ModuleType, topic: str, index: int) -> Any:
    return build(
        module.DescribeLogDirsPartition,
        partition_index=index,
        partition_size=context.services.log_directory.size_bytes(topic, index),
        offset_lag=0,
        is_future_key=False,
    )


API = Api(35, "DescribeLogDirs", 1, 5, api.partitions, handle=handle, is_long=True, may_be_given_up=True)
