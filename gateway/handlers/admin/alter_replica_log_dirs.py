"""AlterReplicaLogDirs (key 34, versions 1-2): move partitions to another data directory; this node has only
one.

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

from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.data_directory import data_directory
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import PartitionServices
from seqgate.gateway.security.acls.access import Operation


async def handle(context: RequestContext[PartitionServices], request: Any) -> Any:
    """Answer for each partition of the request; no partition moves."""
    module = context.response_module
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    path = data_directory(context.node.config)
    denied = cluster_refusal(context, Operation.ALTER)
    results = []
    for name, paths in wanted.items():
        rows = [
            build(
                module.AlterReplicaLogDirPartitionResult,
                partition_index=index,
                error_code=(
                    denied.error_code
                    if denied
                    else _outcome(context, name, index, is_here=paths[index] == path)
                ),
            )
            async for index in in_slices(list(paths))
        ]
        results.append(build(module.AlterReplicaLogDirTopicResult, topic_name=name, partitions=tuple(rows)))
    return build(module.AlterReplicaLogDirsResponse, results=tuple(results))


def _outcome(
    context: RequestContext[PartitionServices], name: str, index: int, *, is_here: bool
) -> ErrorCode:
    if not is_here:
        return ErrorCode.log_dir_not_found
    topic = context.services.registry.by_name.get(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition
    return topic.refusal(index) or ErrorCode.none


API = Api(34, "AlterReplicaLogDirs", 1, 2, api.partitions, handle=handle, is_long=True, may_be_given_up=True)
