"""Reads what only a streams group of a running gateway has: the epochs of the group, and the tasks of its members."""

from __future__ import annotations

from gateway.admin.groups import messages
from gateway.coordinator.group.any_group import Group
from gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from gateway.coordinator.streams.tasks import NO_ASSIGNMENT, TaskAssignment, by_subtopology


def streams_state(group: Group) -> messages.StreamsState | None:
    """Return the epochs of a streams group; None for a group of another type."""
    if not isinstance(group, StreamsGroup):
        return None
    epoch = None if group.topology is None else group.topology.epoch
    return messages.StreamsState(group.assignment.assignment_epoch, epoch)


def member_of_streams(group: StreamsGroup, member: StreamsMember) -> messages.StreamsMember:
    """Return process, epochs and tasks of a member."""
    return messages.StreamsMember(
        process_id=member.value.process_id,
        member_epoch=member.current.member_epoch,
        topology_epoch=member.value.topology_epoch,
        tasks=_tasks(member.current.assigned.tasks),
        target=_tasks(group.targets.get(member.member_id, NO_ASSIGNMENT)),
    )


def _tasks(tasks: TaskAssignment) -> messages.StreamsTasks:
    return messages.StreamsTasks(
        by_subtopology(tasks.active), by_subtopology(tasks.standby), by_subtopology(tasks.warmup)
    )
