"""Asks the coordinators of many groups at once about members and offsets.

A group that this login may not describe, or whose coordinator does not answer, is left out. Raises ControlError when the
first broker does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import StreamsGroupDescribeResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from gateway.admin.groups.remote import CLASSIC, CONSUMER, SHARE, STREAMS
from gateway.admin.remote.cluster import Cluster, ask_broker
from gateway.admin.request import ControlError

TIMEOUT_S: Final = 10.0
_GROUP: Final = i8(0)
_NO_OFFSET: Final = -1

Address = tuple[str, int]
Place = tuple[str, int]


def _describe_classic(groups: Sequence[str]) -> tuple[Any, Any]:
    ids = tuple(map(GroupId, groups))
    return DescribeGroupsRequest(groups=ids, include_authorized_operations=False), DescribeGroupsResponse


def _describe_consumer(groups: Sequence[str]) -> tuple[Any, Any]:
    ids = tuple(map(GroupId, groups))
    return (
        ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False),
        ConsumerGroupDescribeResponse,
    )


def _describe_share(groups: Sequence[str]) -> tuple[Any, Any]:
    ids = tuple(map(GroupId, groups))
    return (
        ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=False),
        ShareGroupDescribeResponse,
    )


def _describe_streams(groups: Sequence[str]) -> tuple[Any, Any]:
    ids = tuple(map(GroupId, groups))
    return (
        StreamsGroupDescribeRequest(group_ids=ids, include_authorized_operations=False),
        StreamsGroupDescribeResponse,
    )


def _share_offsets(groups: Sequence[str]) -> tuple[Any, Any]:
    wanted = tuple(
        DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None) for group in groups
    )
    return DescribeShareGroupOffsetsRequest(groups=wanted), DescribeShareGroupOffsetsResponse


def _offsets(groups: Sequence[str]) -> tuple[Any, Any]:
    wanted = tuple(OffsetFetchRequestGroup(group_id=GroupId(group), topics=None) for group in groups)
    return OffsetFetchRequest(groups=wanted), OffsetFetchResponse


_DESCRIBE: Final[Mapping[str, Callable[[Sequence[str]], tuple[Any, Any]]]] = {
    CLASSIC: _describe_classic,
    CONSUMER: _describe_consumer,
    SHARE: _describe_share,
    STREAMS: _describe_streams,
}


def member_counts(cluster: Cluster, groups: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many members each group has; `groups` are group ids by kind."""
    return {
        str(found.group_id): len(found.members)
        for kind, names in groups.items()
        for found in _answers(cluster, names, _DESCRIBE[kind])
    }


def committed_in(cluster: Cluster, groups: Sequence[str]) -> dict[str, dict[Place, int]]:
    """Return the committed offset of each partition, for each group that commits offsets."""
    return {
        str(found.group_id): {
            (str(topic.name), int(row.partition_index)): int(row.committed_offset)
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code.value and row.committed_offset != _NO_OFFSET
        }
        for found in _answers(cluster, groups, _offsets)
    }


def share_lags(cluster: Cluster, groups: Sequence[str]) -> dict[str, dict[Place, int | None]]:
    """Return the records that are not done in each partition that a share group has read."""
    return {
        str(found.group_id): {
            (str(topic.topic_name), int(row.partition_index)): None if row.lag < 0 else int(row.lag)
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code.value and row.start_offset != _NO_OFFSET
        }
        for found in _answers(cluster, groups, _share_offsets)
    }


def _answers(
    cluster: Cluster, groups: Sequence[str], question: Callable[[Sequence[str]], tuple[Any, Any]]
) -> Iterable[Any]:
    """Yield what the coordinators answer about each group, without the groups that they refuse."""
    if not groups:
        return
    for (host, port), coordinated in _coordinators(cluster, groups).items():
        request, response_type = question(coordinated)
        try:
            answer = ask_broker(
                cluster.reached.other(host, port), request, response_type, timeout_s=TIMEOUT_S
            )
        except ControlError:
            continue
        yield from (found for found in answer.groups if not found.error_code.value)


def _coordinators(cluster: Cluster, groups: Sequence[str]) -> dict[Address, list[str]]:
    """Return the groups of each coordinator, by its address."""
    asked = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=tuple(map(GroupId, groups)))
    answer = ask_broker(cluster.reached, asked, FindCoordinatorResponse, timeout_s=TIMEOUT_S)
    found: dict[Address, list[str]] = {}
    for row in answer.coordinators:
        if not row.error_code.value:
            found.setdefault((row.host, int(row.port)), []).append(str(row.key))
    return found
