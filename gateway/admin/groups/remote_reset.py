"""Resets the committed offsets of a group over the Kafka protocol. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import OffsetSpec
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from gateway.admin.groups.messages import OffsetChange, OffsetReset, ResetOffsetsRequest, TopicSelection
from gateway.admin.groups.new_offset import PartitionOffsets, offset_change
from gateway.admin.groups.remote import (
    EMPTY_STATES,
    SHARE,
    Place,
    committed_offsets,
    group_type,
    in_use,
    listed,
    offsets_of,
)
from gateway.admin.remote.cluster import Cluster, topic_partition
from gateway.admin.remote.errors import refusal
from gateway.admin.request import ControlError


def reset_offsets(cluster: Cluster, request: ResetOffsetsRequest) -> OffsetReset:
    """Find the new offsets of the group, and commit them in one request if `execute` is set."""
    row = listed(cluster).get(request.group)
    state = None if row is None else str(row.get("group_state") or "Unknown")
    if row is not None and group_type(row) == SHARE:
        raise ControlError(f"{request.group} is a share group, which commits no offsets")
    if state is not None and state not in EMPTY_STATES:
        raise ControlError(in_use(request.group, state))
    committed = committed_offsets(cluster, [request.group]).get(request.group, {})
    places = _places(cluster, request, committed)
    changes = _changes(cluster, request, places, committed)
    if request.execute:
        _commit(cluster, request.group, changes)
    return OffsetReset(request.group, state, request.execute, changes)


def _places(cluster: Cluster, request: ResetOffsetsRequest, committed: Mapping[Place, Any]) -> list[Place]:
    """Return the partitions to reset, in order."""
    if request.topics is None:
        if not committed:
            raise ControlError(f"group {request.group} has no committed offsets; name topics with --topic")
        return sorted(committed)
    found = cluster.topics([selection.topic for selection in request.topics])
    counts = {topic["name"]: len(topic["partitions"]) for topic in found}
    places = {
        place for selection in request.topics for place in _selected(selection, counts[selection.topic])
    }
    return sorted(places)


def _selected(selection: TopicSelection, count: int) -> list[Place]:
    for index in selection.partitions or ():
        if index >= count:
            raise ControlError(f"topic {selection.topic} has no partition {index}")
    indexes = range(count) if selection.partitions is None else selection.partitions
    return [(selection.topic, index) for index in indexes]


def _changes(
    cluster: Cluster, request: ResetOffsetsRequest, places: Sequence[Place], committed: Mapping[Place, Any]
) -> list[OffsetChange]:
    starts = offsets_of(cluster, places, OffsetSpec.EARLIEST)
    ends = offsets_of(cluster, places, OffsetSpec.LATEST)
    at_time = offsets_of(cluster, places, request.value) if request.target == "timestamp" else {}
    changes = []
    for place in places:
        before = None if place not in committed else int(committed[place].offset)
        at = at_time.get(place, -1)
        known = PartitionOffsets(starts[place], ends[place], before, at if at >= 0 else None)
        changes.append(offset_change(request, place, known))
    return changes


def _commit(cluster: Cluster, group: str, changes: Sequence[OffsetChange]) -> None:
    wanted = {
        topic_partition(change.topic, change.partition): OffsetAndMetadata(change.new_offset, "", -1)
        for change in changes
    }
    for place, error in cluster.admin.alter_group_offsets(group, wanted).items():
        if error is not NoError:
            raise ControlError(
                f"the offset of group {group} in {place.topic}-{place.partition} was not reset: {refusal(error.errno)}"
            )
