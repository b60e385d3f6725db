"""Tasks of a Kafka Streams application, and how the members of its group share them.

    subtopology   a connected part of the topology; it has one task for each partition of its largest source topic
    active task   processes records; exactly one member has it
    standby task  follows the changelogs of a stateful task on another process, ready to take the task over
    warm-up task  follows the changelogs of a task that moves to this member once it has caught up

Source: Kafka's `TasksTuple`, `TaskId`, `AssignmentMemberSpec`, `TopologyDescriber`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias


class TaskId(NamedTuple):
    """A task: its subtopology, and the partition of the subtopology's source topics."""

    subtopology_id: str
    partition: int


Tasks: TypeAlias = frozenset[TaskId]
NO_TASKS: Final[Tasks] = frozenset()


class TaskAssignment(NamedTuple):
    """The tasks of one member by role; a task is in at most one of the three sets."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def union(self, other: TaskAssignment) -> TaskAssignment:
        """Return the tasks that are in this assignment, in the other one, or in both, by role."""
        return TaskAssignment(
            self.active | other.active, self.standby | other.standby, self.warmup | other.warmup
        )

    def has_any_of(self, other: TaskAssignment) -> bool:
        """Return whether any task is in both assignments in the same role."""
        return any(ours & others for ours, others in zip(self, other, strict=True))

    def is_within(self, other: TaskAssignment) -> bool:
        """Return whether the other assignment has all tasks of this one, in the same roles."""
        return all(ours <= others for ours, others in zip(self, other, strict=True))


NO_ASSIGNMENT: Final = TaskAssignment()


class HeldTasks(NamedTuple):
    """The tasks that a member has, each active task with its assignment epoch.

    The assignment epoch is the group epoch at which the member was assigned the task: commits of the task that name
    an older member epoch than this are refused.
    """

    active: Mapping[TaskId, int] = {}
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def tasks(self) -> TaskAssignment:
        """The tasks without their epochs."""
        return TaskAssignment(frozenset(self.active), self.standby, self.warmup)

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)


NOTHING_HELD: Final = HeldTasks()


class AssignmentMember(NamedTuple):
    """A member as the task assignor sees it: its process and tags, and the tasks it should have had so far."""

    process_id: str
    client_tags: Mapping[str, str] = {}
    instance_id: str | None = None
    rack_id: str | None = None
    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


class SubtopologyTasks(NamedTuple):
    """The number of tasks of a subtopology, and whether its tasks have changelogs."""

    partitions: int
    is_stateful: bool


TasksOfTopology: TypeAlias = Mapping[str, SubtopologyTasks]
"""The tasks of a topology by subtopology id."""


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Return the partitions of each subtopology, in order."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return found
