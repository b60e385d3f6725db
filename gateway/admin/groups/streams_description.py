"""Reads members, tasks and epochs of a streams group from an answer of StreamsGroupDescribe (KIP-1071)."""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.streams_group_describe.v0 import response as described

from gateway.admin.groups.messages import GroupMember, StreamsMember, StreamsState, StreamsTasks


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
        [_member(member, sources) for member in group.members],
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


def _member(member: described.Member, sources: dict[str, list[str]]) -> GroupMember:
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
        _partitions(assignment.active_tasks),
        _partitions(assignment.standby_tasks),
        _partitions(assignment.warmup_tasks),
    )


def _partitions(rows: tuple[Any, ...]) -> dict[str, list[int]]:
    return {row.subtopology_id: sorted(int(index) for index in row.partitions) for row in rows}
