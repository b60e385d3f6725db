"""Streams groups for properties of the task assignor: members with processes and former tasks, and
topologies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import strategies as st

from seqgate.gateway.coordinator.streams.task_assignor import (
    NO_TASKS,
    AssignmentMember,
    SubtopologyTasks,
    TaskAssignment,
    TaskId,
    Tasks,
    assign_tasks,
)

SUBTOPOLOGIES = ("0", "1", "2")
PROCESSES = "abcdef"
MEMBERS = "abcdefghij"
MOST_PARTITIONS = 9

Members = Mapping[str, AssignmentMember]
Topology = Mapping[str, SubtopologyTasks]
Assignment = Mapping[str, TaskAssignment]


class Group(NamedTuple):
    """The input of the assignor."""

    members: dict[str, AssignmentMember]
    topology: dict[str, SubtopologyTasks]
    standby_replicas: int

    def assign(self) -> dict[str, TaskAssignment]:
        return assign_tasks(self.members, self.topology, self.standby_replicas)

    def settled(self) -> Group:
        """Return the group after its members have adopted their assignments."""
        return self._replace(members=adopt(self.members, self.assign()))


def adopt(members: Members, assignment: Assignment) -> dict[str, AssignmentMember]:
    """Return the members with their assignments as their former tasks."""
    return {
        name: member._replace(active=assignment[name].active, standby=assignment[name].standby)
        for name, member in members.items()
    }


topologies = st.dictionaries(
    st.sampled_from(SUBTOPOLOGIES),
    st.builds(SubtopologyTasks, st.integers(0, MOST_PARTITIONS), st.booleans()),
)
task_ids = st.builds(TaskId, st.sampled_from([*SUBTOPOLOGIES, "gone"]), st.integers(0, MOST_PARTITIONS + 2))


@st.composite
def fresh_groups(draw: st.DrawFn) -> Group:
    """Draw a group whose members never had tasks."""
    processes = PROCESSES[: draw(st.integers(1, len(PROCESSES)))]
    names = MEMBERS[: draw(st.integers(len(processes), len(MEMBERS)))]
    # each process has at least one member
    at = [*processes, *(draw(st.sampled_from(processes)) for _ in names[len(processes) :])]
    members = {name: AssignmentMember(process) for name, process in zip(names, at, strict=True)}
    return Group(members, draw(topologies), draw(st.integers(0, 3)))


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw a group whose members had any tasks, even tasks of others and of subtopologies that are gone."""
    group = draw(fresh_groups())
    drawn = st.frozensets(task_ids, max_size=12)
    members = {}
    for name, member in group.members.items():
        active, standby = draw(drawn), draw(drawn)
        members[name] = member._replace(active=active, standby=standby - active)
    return group._replace(members=members)


@st.composite
def changed_groups(draw: st.DrawFn) -> Group:
    """Draw a group whose assignment is out of date after one change: members joined or left, or the number of
    partitions or of standby replicas changed.
    """
    group = draw(fresh_groups()).settled()
    staying = draw(st.lists(st.sampled_from(sorted(group.members)), unique=True, min_size=1))
    members = {name: group.members[name] for name in sorted(staying)}
    for name in "klm"[: draw(st.integers(0, 3))]:
        members[name] = AssignmentMember(draw(st.sampled_from(PROCESSES + "gh")))
    return Group(members, draw(topologies), draw(st.integers(0, 3)))


def all_tasks(topology: Topology, *, stateful: bool = False) -> Tasks:
    """Return the tasks of the topology, or only the stateful ones."""
    return frozenset(
        TaskId(name, partition)
        for name, row in topology.items()
        for partition in range(row.partitions)
        if row.is_stateful or not stateful
    )


def by_process(group: Group, assignment: Assignment) -> dict[str, TaskAssignment]:
    """Return the tasks of each process."""
    found: dict[str, TaskAssignment] = {}
    for name, tasks in assignment.items():
        process_id = group.members[name].process_id
        found[process_id] = found.get(process_id, TaskAssignment(NO_TASKS)).union(tasks)
    return found
