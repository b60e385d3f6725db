"""The groups of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of
kafka-python.

Unlike the control socket of a gateway, the Kafka protocol does not report when an offset was committed, nor
which open transactions hold offsets; these fields stay empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.admin import GroupState, OffsetSpec
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.streams_group_describe.v0 import response as described
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import StreamsGroupDescribeResponse
from kio.schema.types import GroupId

from seqgate.gateway.admin.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    GroupDeletion,
    GroupDeletions,
    GroupDescription,
    GroupMember,
    GroupPage,
    GroupPartition,
    GroupRow,
    ListGroupsRequest,
    OffsetChange,
    OffsetReset,
    ResetOffsetsRequest,
    ShareDelivery,
    StreamsMember,
    StreamsState,
    StreamsTasks,
    TopicSelection,
)
from seqgate.gateway.admin.groups.new_offset import PartitionOffsets, offset_change
from seqgate.gateway.admin.remote.cluster import Cluster, ask_coordinator, topic_partition
from seqgate.gateway.admin.remote.errors import nearest_hint, refusal, refusal_of_text
from seqgate.gateway.admin.request import ControlError

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
STATES: Final = frozenset({"notready", *(state.value.lower() for state in GroupState)})
"""The states that groups may be in, in small letters; kafka-python does not know NotReady of streams groups.
"""
EMPTY_STATES: Final = frozenset({"Empty", "Dead"})
Place = tuple[str, int]


def list_groups(cluster: Cluster, request: ListGroupsRequest) -> GroupPage:
    """Return all groups by their ids."""
    wanted = {state.lower() for state in request.states}
    if not wanted <= STATES:
        raise ControlError(
            f"groups have no such state: {', '.join(sorted(wanted - STATES))}; choose from "
            f"{', '.join(sorted(STATES))}"
        )
    found = listed(cluster)
    if wanted:
        found = {name: row for name, row in found.items() if _state(row).lower() in wanted}
    members = _member_counts(cluster, found.values())
    members |= {
        name: len(_members(cluster, name, kind).members)
        for name, row in found.items()
        if (kind := group_type(row)) in {CONSUMER, STREAMS}
    }
    committed = committed_offsets(
        cluster, [row["group_id"] for row in found.values() if group_type(row) != SHARE]
    )
    ends = _ends(cluster, {place for offsets in committed.values() for place in offsets})
    return GroupPage(
        [_row(found[name], members.get(name), committed.get(name), ends) for name in sorted(found)], True, []
    )


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the answers of ListGroups about each group, by group id."""
    return {row["group_id"]: row for row in cluster.admin.list_groups()}


def _state(row: Mapping[str, Any]) -> str:
    return row.get("group_state") or "Unknown"


def group_type(row: Mapping[str, Any]) -> str:
    """Return the type of a group: classic, consumer, share or streams."""
    return str(row.get("group_type") or CLASSIC).lower()


def _member_counts(cluster: Cluster, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    classic = [row["group_id"] for row in rows if group_type(row) == CLASSIC]
    if not classic:
        return {}
    described = cluster.admin.describe_groups(classic)
    return {name: len(found["members"]) for name, found in described.items() if found["error"] is None}


def committed_offsets(cluster: Cluster, names: list[str]) -> dict[str, dict[Place, Any]]:
    """Return the committed offsets of each group, by partition."""
    if not names:
        return {}
    found = cluster.admin.list_group_offsets(dict.fromkeys(names))
    return {
        name: {tuple(place): offset for place, offset in offsets.items() if offset.offset >= 0}
        for name, offsets in found.items()
    }


def _ends(cluster: Cluster, places: set[Place]) -> dict[Place, int]:
    """Return the high watermark of each partition that exists."""
    return offsets_of(cluster, _existing(cluster, places), OffsetSpec.LATEST)


def _existing(cluster: Cluster, places: set[Place]) -> list[Place]:
    led = {
        (topic["name"], row["partition_index"])
        for topic in cluster.all_topics()
        for row in topic["partitions"]
        if row["error_code"] == 0 and row["leader_id"] >= 0
    }
    return sorted(places & led)


def offsets_of(cluster: Cluster, places: Sequence[Place], spec: Any) -> dict[Place, int]:
    """Return the offset that `spec` names in each partition: an OffsetSpec, or a timestamp."""
    if not places:
        return {}
    found = cluster.admin.list_partition_offsets({topic_partition(*place): spec for place in places})
    return {tuple(place): int(answer.offset) for place, answer in found.items()}


def _row(
    row: Mapping[str, Any],
    members: int | None,
    committed: Mapping[Place, Any] | None,
    ends: Mapping[Place, int],
) -> GroupRow:
    lag = None
    if committed is not None:
        lag = sum(max(0, ends[place] - offset.offset) for place, offset in committed.items() if place in ends)
    return GroupRow(
        group=row["group_id"],
        state=_state(row),
        type=group_type(row),
        protocol_type=row["protocol_type"],
        protocol_name=None,
        members=members,
        committed_partitions=None if committed is None else len(committed),
        total_lag=lag,
    )


def describe_group(cluster: Cluster, request: DescribeGroupRequest) -> GroupDescription:
    """Return a group with all its partitions."""
    groups = listed(cluster)
    row = groups.get(request.group)
    if row is None:
        raise ControlError(f"there is no group {request.group}{nearest_hint(request.group, groups)}")
    kind = group_type(row)
    told = _members(cluster, request.group, kind)
    return GroupDescription(
        group=request.group,
        state=_state(row),
        type=kind,
        generation_id=told.group_epoch,
        protocol_type=row["protocol_type"],
        protocol_name=told.assignor,
        members=told.members,
        partitions=_share_partitions(cluster, request.group)
        if kind == SHARE
        else _partitions(cluster, request.group, told.members),
        complete=True,
        streams=told.streams,
    )


def _members(cluster: Cluster, group: str, kind: str) -> Members:
    """Return members, group epoch and the protocol that the members agreed on."""
    if kind == SHARE:
        return share_members(cluster, group)
    if kind == CONSUMER:
        return consumer_members(cluster, group)
    if kind == STREAMS:
        return streams_members(cluster, group)
    found = cluster.admin.describe_groups([group])[group]
    if found["error"] is not None:
        raise ControlError(refusal_of_text(found["error"]) or found["error"])
    return Members([_member(member) for member in found["members"]], None, found["protocol_data"] or None)


def _share_partitions(cluster: Cluster, group: str) -> list[GroupPartition]:
    """Return the partitions that a share group has read; `delivery` has only the oldest record that is not
    done.
    """
    found = share_places(cluster, group)
    existing = _existing(cluster, set(found))
    starts = offsets_of(cluster, existing, OffsetSpec.EARLIEST)
    ends = offsets_of(cluster, existing, OffsetSpec.LATEST)
    return [
        GroupPartition(
            *place,
            committed_offset=None,
            log_start_offset=starts.get(place),
            high_watermark=ends.get(place),
            lag=found[place].lag,
            metadata=None,
            commit_timestamp=None,
            age_ms=None,
            member_id=None,
            pending=[],
            delivery=ShareDelivery(found[place].start_offset, None, None, None, None, None),
        )
        for place in sorted(found)
    ]


def _member(member: Mapping[str, Any]) -> GroupMember:
    return GroupMember(
        member_id=member["member_id"],
        group_instance_id=member["group_instance_id"],
        client_id=member["client_id"],
        client_host=member["client_host"],
        session_timeout_ms=None,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment=_assignment(member["member_assignment"]),
    )


def _assignment(decoded: Any) -> dict[str, list[int]] | None:
    """Return partitions by topic; None where kafka-python could not decode the assignment."""
    if not decoded:
        return {}
    if not isinstance(decoded, Mapping):
        return None
    return {row["topic"]: list(row["partitions"]) for row in decoded["assigned_partitions"]}


def _partitions(cluster: Cluster, group: str, members: Iterable[GroupMember]) -> list[GroupPartition]:
    committed = committed_offsets(cluster, [group]).get(group, {})
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in (member.assignment or {}).items()
        for partition in partitions
    }
    places = {*committed, *owners}
    existing = _existing(cluster, places)
    starts = offsets_of(cluster, existing, OffsetSpec.EARLIEST)
    ends = offsets_of(cluster, existing, OffsetSpec.LATEST)
    rows = []
    for place in sorted(places):
        offset = committed.get(place)
        end = ends.get(place)
        rows.append(
            GroupPartition(
                *place,
                committed_offset=None if offset is None else offset.offset,
                log_start_offset=starts.get(place),
                high_watermark=end,
                lag=None if offset is None or end is None else max(0, end - offset.offset),
                metadata=None if offset is None else offset.metadata,
                commit_timestamp=None,
                age_ms=None,
                member_id=owners.get(place),
                pending=[],
                delivery=None,
            )
        )
    return rows


def delete_groups(cluster: Cluster, request: DeleteGroupsRequest) -> GroupDeletions:
    """Delete each group that has no members, or report which groups could be deleted."""
    known = listed(cluster)
    names = list(dict.fromkeys(request.groups))
    committed = committed_offsets(
        cluster, [name for name in names if name in known and group_type(known[name]) != SHARE]
    )
    entries = [_planned(name, known.get(name), len(committed.get(name, ()))) for name in names]
    wanted = [entry.group for entry in entries if entry.refusal is None]
    if not request.execute or not wanted:
        return GroupDeletions(entries)
    results = dict(cluster.admin.delete_groups(wanted))
    return GroupDeletions([_deleted(entry, results.get(entry.group)) for entry in entries])


def _planned(name: str, row: Mapping[str, Any] | None, count: int) -> GroupDeletion:
    if row is None:
        return GroupDeletion(name, None, 0, deleted=False, refusal=f"there is no group {name}")
    state = _state(row)
    refused = None if state in EMPTY_STATES else in_use(name, state)
    return GroupDeletion(name, state, count, deleted=False, refusal=refused)


def in_use(name: str, state: str) -> str:
    """Return the sentence that refuses to change a group with members."""
    return f"group {name} is in use: state {state}; stop its consumers, or wait until their sessions end"


def _deleted(entry: GroupDeletion, result: str | None) -> GroupDeletion:
    if entry.refusal is not None or result is None:
        return entry
    refused = None if result == "OK" else f"{entry.group} was not deleted: {result}"
    return GroupDeletion(
        entry.group, entry.state, entry.committed_partitions, deleted=refused is None, refusal=refused
    )


# The members of groups that kafka-python can't describe: consumer, share and streams groups (KIP-848,
# KIP-932, KIP-1071).

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
    return _members_members(
        ask_coordinator(cluster.reached, group, asked, ConsumerGroupDescribeResponse).groups[0]
    )


def share_members(cluster: Cluster, group: str) -> Members:
    """Return the members of a share group. Raises ControlError."""
    asked = ShareGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    return _members_members(
        ask_coordinator(cluster.reached, group, asked, ShareGroupDescribeResponse).groups[0]
    )


def streams_members(cluster: Cluster, group: str) -> Members:
    """Return the members of a streams group. Raises ControlError."""
    asked = StreamsGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    found = ask_coordinator(cluster.reached, group, asked, StreamsGroupDescribeResponse).groups[0]
    _check(found)
    description = streams_description(found)
    return Members(description.members, description.group_epoch, None, description.state)


def _members_members(found: Any) -> Members:
    _check(found)
    return Members(
        [_member_members(member) for member in found.members], found.group_epoch, found.assignor_name or None
    )


def _check(found: Any) -> None:
    refused = refusal(found.error_code.value, found.error_message)
    if refused is not None:
        raise ControlError(f"group {found.group_id}: {refused}")


def _member_members(member: Any) -> GroupMember:
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


# Reads members, tasks and epochs of a streams group from an answer of StreamsGroupDescribe (KIP-1071).


class StreamsDescription(NamedTuple):
    """The members of a streams group, its epoch, and the fields that only a streams group has."""

    members: list[GroupMember]
    group_epoch: int
    state: StreamsState


def streams_description(group: described.DescribedGroup) -> StreamsDescription:
    """Return members and epochs of a described group."""
    sources = _sources(group.topology)
    epoch = None if group.topology is None else int(group.topology.epoch)
    return StreamsDescription(
        [_member_streams_description(member, sources) for member in group.members],
        int(group.group_epoch),
        StreamsState(int(group.assignment_epoch), epoch),
    )


def _sources(topology: described.Topology | None) -> dict[str, list[str]]:
    """Return the topics that the tasks of each subtopology read."""
    rows = () if topology is None else topology.subtopologies or ()
    return {
        row.subtopology_id: sorted(
            {
                *map(str, row.source_topics),
                *(str(topic.name) for topic in row.repartition_source_topics),
            }
        )
        for row in rows
    }


def _member_streams_description(member: described.Member, sources: dict[str, list[str]]) -> GroupMember:
    tasks = _tasks(member.assignment)
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=None,
        rebalance_timeout_ms=None,
        is_leader=False,
        assignment={
            topic: partitions
            for subtopology_id, partitions in tasks.active.items()
            for topic in sources.get(subtopology_id, ())
        },
        streams=StreamsMember(
            process_id=member.process_id,
            member_epoch=int(member.member_epoch),
            topology_epoch=int(member.topology_epoch),
            tasks=tasks,
            target=_tasks(member.target_assignment),
        ),
    )


def _tasks(assignment: described.Assignment) -> StreamsTasks:
    return StreamsTasks(
        _partitions_streams_description(assignment.active_tasks),
        _partitions_streams_description(assignment.standby_tasks),
        _partitions_streams_description(assignment.warmup_tasks),
    )


def _partitions_streams_description(rows: tuple[Any, ...]) -> dict[str, list[int]]:
    return {row.subtopology_id: sorted(int(index) for index in row.partitions) for row in rows}


# Resets the committed offsets of a group over the Kafka protocol. Raises ControlError or an error of kafka-
# python.


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
                f"the offset of group {group} in {place.topic}-{place.partition} was not reset: "
                f"{refusal(error.errno)}"
            )
