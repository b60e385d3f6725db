"""The progress of share groups (KIP-932) in their partitions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeAlias

from gateway.admin.coordinators import as_control_error
from gateway.admin.groups.messages import GroupPartition, ShareDelivery
from gateway.coordinator.group.share_group import ShareGroup
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.share.ranges import DONE, DeliveryState
from gateway.coordinator.share.records import SharePartitionKey
from gateway.coordinator.share.share_partition import SharePartition
from gateway.metadata.topic_names import SHARE_STATE_TOPIC
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services

Delivered: TypeAlias = Mapping[TopicPartition, ShareDelivery]


async def delivered_to(services: Services, group_id: str) -> Delivered:
    """Return the progress in the partitions that a group ever read, without those of deleted topics. Raises ControlError.

    Of a partition whose state another gateway stores only the start offset and the number of done records are known.
    """
    topics = services.partitions.registry.by_id
    shares = services.coordinators.shares
    found = {key: delivery(partition) for key, partition in shares.known(group_id).items()}
    with as_control_error(f"group {group_id}", SHARE_STATE_TOPIC):
        keys = (SharePartitionKey(group_id, *place) for place in shares.begun(group_id))
        missing = [key for key in keys if key not in found and shares.persister.is_elsewhere(key)]
        summaries = await shares.persister.summaries(missing)
    for key, summary in summaries.items():
        if summary.start_offset >= 0:
            found[key] = ShareDelivery(summary.start_offset, None, None, None, summary.done, None)
    return {
        (topics[key.topic_id].name, key.partition): told
        for key, told in found.items()
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


def total_share_lag(ends: Mapping[TopicPartition, int], delivered: Delivered) -> int:
    """Return the lag in all partitions, up to these high watermarks."""
    return sum(share_lag(found, ends[place]) for place, found in delivered.items() if place in ends)


def share_partition(
    partitions: Partitions, place: TopicPartition, delivered: ShareDelivery | None, high_watermark: int | None
) -> GroupPartition:
    """Return the row of a partition that a share group has read or is assigned."""
    partition = partitions.get(*place)
    log = None if partition is None else partition.log
    return GroupPartition(
        topic=place[0],
        partition=place[1],
        committed_offset=None,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=high_watermark,
        lag=None if high_watermark is None or delivered is None else share_lag(delivered, high_watermark),
        metadata=None,
        commit_timestamp=None,
        age_ms=None,
        member_id=None,
        pending=[],
        delivery=delivered,
    )
