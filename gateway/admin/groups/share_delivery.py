"""The progress of share groups (KIP-932) in their partitions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeAlias

from gateway.admin.groups.messages import GroupPartition, ShareDelivery
from gateway.coordinator.group.share_group import ShareGroup
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.share.ranges import DONE, DeliveryState
from gateway.coordinator.share.share_partition import SharePartition
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services

Delivered: TypeAlias = Mapping[TopicPartition, SharePartition]


def delivered_to(services: Services, group_id: str) -> Delivered:
    """Return the partitions that a group ever read, without those of deleted topics."""
    topics = services.partitions.registry.by_id
    return {
        (topics[key.topic_id].name, key.partition): found
        for key, found in services.coordinators.shares.known(group_id).items()
        if key.topic_id in topics
    }


def assigned_in(services: Services, group: ShareGroup) -> set[TopicPartition]:
    """Return the partitions that are assigned to any member."""
    topics = services.partitions.registry.by_id
    return {
        (topics[topic_id].name, index)
        for member in group.members.values()
        for topic_id, index in member.assigned
        if topic_id in topics
    }


def delivery(found: SharePartition) -> ShareDelivery:
    """Count the records of a partition by their delivery state in the group."""
    stretches = itertools.groupby(found.runs, key=lambda run: run.state in DONE)
    done = [sum(map(len, runs)) for is_done, runs in stretches if is_done]
    return ShareDelivery(
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        acquired=sum(len(run) for run in found.runs if run.state is DeliveryState.ACQUIRED),
        holes=len(done),
        done_records=sum(done),
        max_delivery_count=max((run.delivery_count for run in found.runs), default=0),
    )


def share_lag(found: ShareDelivery, high_watermark: int) -> int:
    """Return the number of records that are not done, as in DescribeShareGroupOffsets (KIP-1226)."""
    return max(0, high_watermark - found.start_offset - (found.done_records or 0))


def total_share_lag(partitions: Partitions, delivered: Delivered) -> int:
    """Return the lag in all partitions."""
    return sum(
        share_lag(delivery(found), partition.log.high_watermark)
        for place, found in delivered.items()
        if (partition := partitions.get(*place)) is not None
    )


def share_partition(
    partitions: Partitions, place: TopicPartition, found: SharePartition | None
) -> GroupPartition:
    """Return the row of a partition that a share group has read or is assigned."""
    partition = partitions.get(*place)
    log = None if partition is None else partition.log
    delivered = None if found is None else delivery(found)
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed_offset=None,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=None if log is None else log.high_watermark,
        lag=None if log is None or delivered is None else share_lag(delivered, log.high_watermark),
        metadata=None,
        commit_timestamp=None,
        age_ms=None,
        member_id=None,
        pending=[],
        delivery=delivered,
    )
