"""The members of groups that kafka-python can't describe: consumer, share and streams groups (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import StreamsGroupDescribeResponse
from kio.schema.types import GroupId

from gateway.admin.groups.messages import GroupMember, StreamsState
from gateway.admin.groups.streams_description import streams_description
from gateway.admin.remote.cluster import Cluster
from gateway.admin.remote.errors import refusal
from gateway.admin.remote.requests import ask_coordinator
from gateway.admin.request import ControlError

NO_OFFSET: Final = -1


class Members(NamedTuple):
    """The members of a group, its epoch, the protocol or assignor that shares the partitions out, and the
    fields that only a streams group has.
    """

    members: list[GroupMember]
    group_epoch: int | None
    assignor: str | None
    streams: StreamsState | None = None


class SharePlace(NamedTuple):
    """A partition of a share group: where its next unread record is, and how many records are not done."""

    start_offset: int
    lag: int | None


def consumer_members(cluster: Cluster, group: str) -> Members:
    """Return the members of a consumer group. Raises ControlError."""
    asked = ConsumerGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    return _members(ask_coordinator(cluster.reached, group, asked, ConsumerGroupDescribeResponse).groups[0])


def share_members(cluster: Cluster, group: str) -> Members:
    """Return the members of a share group. Raises ControlError."""
    asked = ShareGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    return _members(ask_coordinator(cluster.reached, group, asked, ShareGroupDescribeResponse).groups[0])


def streams_members(cluster: Cluster, group: str) -> Members:
    """Return the members of a streams group. Raises ControlError."""
    asked = StreamsGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    found = ask_coordinator(cluster.reached, group, asked, StreamsGroupDescribeResponse).groups[0]
    _check(found)
    description = streams_description(found)
    return Members(description.members, description.group_epoch, None, description.state)


def _members(found: Any) -> Members:
    _check(found)
    return Members(
        [_member(member) for member in found.members], found.group_epoch, found.assignor_name or None
    )


def _check(found: Any) -> None:
    refused = refusal(found.error_code.value, found.error_message)
    if refused is not None:
        raise ControlError(f"group {found.group_id}: {refused}")


def _member(member: Any) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=getattr(member, "instance_id", None),
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=None,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment={
            str(row.topic_name): sorted(int(index) for index in row.partitions)
            for row in member.assignment.topic_partitions
        },
    )


def share_places(cluster: Cluster, group: str) -> dict[tuple[str, int], SharePlace]:
    """Return the partitions that a share group has read. Raises ControlError."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
    asked = DescribeShareGroupOffsetsRequest(groups=(wanted,))
    found = ask_coordinator(cluster.reached, group, asked, DescribeShareGroupOffsetsResponse).groups[0]
    _check(found)
    return {
        (str(topic.topic_name), int(row.partition_index)): SharePlace(
            int(row.start_offset), None if row.lag < 0 else int(row.lag)
        )
        for topic in found.topics
        for row in topic.partitions
        if not row.error_code.value and row.start_offset != NO_OFFSET
    }
