"""DescribeLogDirs (key 35, versions 1-5): describe the data directory and the size of each partition in it.
Rights: `DESCRIBE` on the cluster.

The answer leaves out partitions that another gateway leads: that gateway has their files. Source: Kafka's
ReplicaManager.describeLogDirs.

AlterReplicaLogDirs (key 34, versions 1-2): move partitions to another data directory; this node has only one.
Rights: `ALTER` on the cluster.

    directory, partition                answer
    the one of `log.dirs`, known        accepted: the partition is there already
    the one of `log.dirs`, unknown      UNKNOWN_TOPIC_OR_PARTITION
    the one of `log.dirs`, elsewhere    NOT_LEADER_OR_FOLLOWER: another gateway leads the partition
    any other directory                 LOG_DIR_NOT_FOUND
    without ALTER on the cluster        CLUSTER_AUTHORIZATION_FAILED, for each partition

The path must be the one that DescribeLogDirs returns, letter by letter, as in Kafka. Where a request names a
partition several times, the last directory counts, and the answer has the partition once. Source: Kafka's
ReplicaManager.alterReplicaLogDirs, AlterReplicaLogDirsRequest.partitionDirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation


def data_directory(config: Config) -> str:
    """Return the absolute path of the directory of `log.dirs`."""
    return str(Path(config.str("log.dirs")).absolute())


async def handle_describe(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Describe the one data directory; `topics` None means all partitions."""
    denied = cluster_refusal(context, Operation.DESCRIBE)
    if denied is not None:
        return context.answer(error_code=denied.error_code, results=())
    path = data_directory(context.node.config)
    limit = TimeLimit(context)
    topics: tuple[Any, ...] = ()
    sizes: dict[str, Any] = {}
    try:
        described = await _topics(context, limit, request)
        space = await asyncio.wait_for(asyncio.to_thread(os.statvfs, path), max(0.0, limit.left_s))
    except TimeoutError:
        error = ErrorCode.request_timed_out
    except OSError:
        error = ErrorCode.kafka_storage_error
    else:
        error, topics = ErrorCode.none, described
        sizes = {
            "total_bytes": space.f_blocks * space.f_frsize,
            "usable_bytes": space.f_bavail * space.f_frsize,
            "is_cordoned": False,
        }
    result = context.row("DescribeLogDirsResult", error_code=error, log_dir=path, topics=topics, **sizes)
    return context.answer(error_code=ErrorCode.none, results=(result,))


async def _topics(
    context: RequestContext[PartitionServices], limit: TimeLimit, request: Any
) -> tuple[Any, ...]:
    """Describe the partitions, topic by topic. Raises TimeoutError."""
    rows: dict[str, list[Any]] = {}
    wanted = _wanted(context, request).items()
    async for topic, index in limit.each((topic, index) for topic, indexes in wanted for index in indexes):
        row = context.row(
            "DescribeLogDirsPartition",
            partition_index=index,
            partition_size=context.services.log_directory.size_bytes(topic, index),
            offset_lag=0,
            is_future_key=False,
        )
        rows.setdefault(topic, []).append(row)
    return tuple(
        context.row("DescribeLogDirsTopic", name=topic, partitions=tuple(partitions))
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
            if served is not None and served.unknown_or_led_elsewhere(index) is None:
                indexes.setdefault(topic.topic, {})[index] = None
    return dict(indexes)


DESCRIBE_LOG_DIRS_API = Api(
    key=35,
    versions=(1, 5),
    reaches=api.partitions,
    handle=handle_describe,
    is_long=True,
    may_be_given_up=True,
)


async def handle_alter(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Answer for each partition of the request; no partition moves."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    path = data_directory(context.node.config)
    denied = cluster_refusal(context, Operation.ALTER)
    results = []
    for name, paths in wanted.items():
        rows = []
        async for index, asked in in_slices(list(paths.items())):
            error = denied.error_code if denied else _outcome(context, name, index, is_here=asked == path)
            rows.append(
                context.row("AlterReplicaLogDirPartitionResult", partition_index=index, error_code=error)
            )
        results.append(context.row("AlterReplicaLogDirTopicResult", topic_name=name, partitions=tuple(rows)))
    return context.answer(results=tuple(results))


def _outcome(
    context: RequestContext[PartitionServices], name: str, index: int, *, is_here: bool
) -> ErrorCode:
    if not is_here:
        return ErrorCode.log_dir_not_found
    topic = context.services.registry.by_name.get(name)
    if topic is None or not topic.has(index):
        return ErrorCode.unknown_topic_or_partition
    return topic.unknown_or_led_elsewhere(index) or ErrorCode.none


ALTER_REPLICA_LOG_DIRS_API = Api(
    key=34, versions=(1, 2), reaches=api.partitions, handle=handle_alter, is_long=True, may_be_given_up=True
)
