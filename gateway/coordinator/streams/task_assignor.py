"""The sticky task assignor of streams groups: it decides which member processes which task, and which members
stand by.

    active tasks   each task goes to one member: its last one, or one that stood by for it or still has its
                   state, as long as that member has not more than its share; the rest goes to the process
                   with the least load
    standby tasks  each stateful task goes to `standby_replicas` further processes: the task's last process
                   and those that stood by for it first, then the processes with the least load
    load           tasks of a process, active and standby, for each of its members
    share          tasks for each member, rounded up; computed anew for the others when a member reaches it

Tasks with the same partition stay together where members keep their tasks; neighbouring partitions of a
subtopology are spread where tasks are new.

Source: Kafka's `StickyTaskAssignor`, `ProcessState`.

`LeastLoaded` is a queue whose first item has the least load. Items of equal load come in the order of Kafka's
queue. Kafka's assignor takes processes and members from a binary heap, in which the positions of the items
decide between equal loads. Seqgate keeps the same heap, so that the same group gets the same assignment from
both.

Source: Java's `PriorityQueue`.

The tasks of a Kafka Streams application:

    subtopology   a connected part of the topology, with a task for each partition of its largest source topic
    active task   processes records; exactly one member has it
    standby task  follows the changelogs of a stateful task on another process, ready to take the task over
    warm-up task  follows the changelogs of a task that moves to this member once it has caught up

Source: Kafka's `TasksTuple`, `TaskId`, `AssignmentMemberSpec`, `TopologyDescriber`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

ASSIGNOR_NAME: Final = "sticky"


def assign_tasks(
    members: Mapping[str, AssignmentMember], topology: TasksOfTopology, standby_replicas: int
) -> dict[str, TaskAssignment]:
    """Assign each task of the topology to one member, and its standby tasks to members of other processes."""
    if not members:
        return {}
    assignor = _Assignor(members, topology, standby_replicas)
    assignor.assign_active(_tasks(topology))
    if standby_replicas > 0:
        stateful = {name: row for name, row in topology.items() if row.is_stateful}
        assignor.assign_standby(_tasks(stateful), standby_replicas)
    return {
        member_id: TaskAssignment(frozenset(roles.active), frozenset(roles.standby))
        for member_id, roles in assignor.assigned.items()
    }


def _tasks(topology: TasksOfTopology) -> list[TaskId]:
    return [TaskId(name, partition) for name, row in topology.items() for partition in range(row.partitions)]


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


class _Place(NamedTuple):
    process_id: str
    member_id: str


class _Roles(NamedTuple):
    active: set[TaskId]
    standby: set[TaskId]


class _Share:
    """The number of tasks that each member should have: `tasks` divided by `members`, rounded up."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.per_member = self._rounded_up()

    def _rounded_up(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def take_away(self, count: int) -> None:
        """Compute the share of the other members anew when a member with `count` tasks has reached it."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self.per_member = self._rounded_up()


class _Process:
    """The members of a process, how many tasks each has, and the tasks of all of them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self._task_count = 0
        self._by_load: LeastLoaded[str] | None = None

    @property
    def load(self) -> float:
        return self._task_count / len(self.counts)

    def add(self, member_id: str, task: TaskId) -> int:
        """Count a task of a member, and return how many the member has."""
        self._by_load = None
        return self._count(member_id, task)

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Count a task of the member with the fewest, and return that member and how many it has."""
        if self._by_load is None:
            self._by_load = LeastLoaded((count, member_id) for member_id, count in self.counts.items())
        member_id = self._by_load.take()
        count = self._count(member_id, task)
        self._by_load.put(count, member_id)
        return member_id, count

    def _count(self, member_id: str, task: TaskId) -> int:
        self._task_count += 1
        self.tasks.add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]


class _Assignor:
    """An assignment under construction. Processes and members are visited in the order of their ids."""

    def __init__(
        self, members: Mapping[str, AssignmentMember], topology: TasksOfTopology, standby_replicas: int
    ) -> None:
        self.assigned = {member_id: _Roles(set(), set()) for member_id in sorted(members)}
        self._processes = {
            process_id: _Process() for process_id in sorted({row.process_id for row in members.values()})
        }
        self._last_active: dict[TaskId, _Place] = {}
        candidates: dict[TaskId, list[tuple[bool, int, _Place]]] = {}
        for member_id in self.assigned:
            self._add_member(member_id, members[member_id], candidates)
        self._last_standby = {
            task: [place for *_, place in sorted(found, key=itemgetter(0, 1))]
            for task, found in candidates.items()
        }
        """The members that stood by for a task, then those that report offsets of it, the furthest first."""
        active = sum(row.partitions for row in topology.values())
        standby = sum(row.partitions for row in topology.values() if row.is_stateful) * standby_replicas
        self._active_share = _Share(active, len(members))
        self._share = _Share(active + standby, len(members))

    def _add_member(
        self,
        member_id: str,
        member: AssignmentMember,
        candidates: dict[TaskId, list[tuple[bool, int, _Place]]],
    ) -> None:
        self._processes[member.process_id].counts[member_id] = 0
        place = _Place(member.process_id, member_id)
        for task in member.active:
            self._last_active[task] = place
        for task in member.standby | member.offsets.keys():
            row = task not in member.standby, -member.offsets.get(task, 0), place
            candidates.setdefault(task, []).append(row)

    # --- active tasks

    def assign_active(self, tasks: list[TaskId]) -> None:
        """Assign tasks to their last members, then to members that stood by, then by load."""
        ordered = sorted(tasks, key=_by_partition)
        left = [task for task in ordered if not self._keep_active(task, self._last_active.get(task))]
        self._spread_active([task for task in left if not self._keep_active(task, self._stood_by(task))])

    def _keep_active(self, task: TaskId, place: _Place | None) -> bool:
        """Assign the task to the member at `place` if it has less than its share; return whether it had."""
        if place is None:
            return False
        process = self._processes[place.process_id]
        if process.counts[place.member_id] >= self._active_share.per_member:
            return False
        self._activate(place.member_id, task, process.add(place.member_id, task))
        return True

    def _spread_active(self, tasks: list[TaskId]) -> None:
        by_load = self._by_load()
        for task in sorted(tasks):
            process = by_load.take()
            member_id, count = process.add_to_least_loaded(task)
            self._activate(member_id, task, count)
            by_load.put(process.load, process)

    def _activate(self, member_id: str, task: TaskId, count: int) -> None:
        self.assigned[member_id].active.add(task)
        self._active_share.take_away(count)
        self._share.take_away(count)

    # --- standby tasks

    def assign_standby(self, tasks: list[TaskId], replicas: int) -> None:
        """Assign standby tasks to the processes that had the task, then by load."""
        missing: dict[TaskId, int] = {}
        for task in sorted(tasks, key=_by_partition, reverse=True):
            kept = 0
            while kept < replicas and self._keep_standby(task):
                kept += 1
            missing[task] = replicas - kept
        by_load = self._by_load()
        for task in sorted(missing, reverse=True):
            for _ in range(missing[task]):
                if not self._spread_standby(task, by_load):
                    break

    def _keep_standby(self, task: TaskId) -> bool:
        """Assign one standby task to a process that had the task; return whether there is one with room."""
        for place in self._had(task):
            process = self._processes[place.process_id]
            if process.counts[place.member_id] < self._share.per_member:
                self._stand_by(place.member_id, task, process.add(place.member_id, task))
                return True
        return False

    def _had(self, task: TaskId) -> Iterator[_Place]:
        """Yield the last active member if another process has it now, then the least loaded standby one."""
        last = self._last_active.get(task)
        if last is not None and task not in self._processes[last.process_id].tasks:
            yield last
        stood_by = self._stood_by(task)
        if stood_by is not None:
            yield stood_by

    def _spread_standby(self, task: TaskId, by_load: LeastLoaded[_Process]) -> bool:
        """Assign a standby task to the least loaded process without the task; return whether there is one."""
        taken = []
        found = False
        while by_load and not found:
            process = by_load.take()
            taken.append(process)
            if task not in process.tasks:
                member_id, count = process.add_to_least_loaded(task)
                self._stand_by(member_id, task, count)
                found = True
        for process in reversed(taken):
            by_load.put(process.load, process)
        return found

    def _stand_by(self, member_id: str, task: TaskId, count: int) -> None:
        self.assigned[member_id].standby.add(task)
        self._share.take_away(count)

    # --- loads

    def _by_load(self) -> LeastLoaded[_Process]:
        return LeastLoaded((process.load, process) for process in self._processes.values())

    def _stood_by(self, task: TaskId) -> _Place | None:
        """Return the member that gets the task because it stood by for it, or has its state: the first such
        member, or a later one with less load.

        Members of a process that already has the task are left out.
        """
        places = self._last_standby.get(task, [])
        free = [place for place in places if task not in self._processes[place.process_id].tasks]
        if not free:
            return None
        best = free[0]
        for place in free[1:]:
            if self._is_below(place, best):
                best = place
        return best

    def _is_below(self, place: _Place, best: _Place) -> bool:
        process, other = self._processes[place.process_id], self._processes[best.process_id]
        has_less = process.load < other.load
        return has_less and process.counts[place.member_id] < other.counts[best.member_id]


T = TypeVar("T")


class LeastLoaded(Generic[T]):
    """A binary heap of items by their load. An item that is taken out may be put back with another load."""

    def __init__(self, items: Iterable[tuple[float, T]]) -> None:
        self._heap: list[tuple[float, T]] = []
        for load, item in items:
            self.put(load, item)

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, load: float, item: T) -> None:
        """Add an item; it moves up past items of a greater load only."""
        heap = self._heap
        place = len(heap)
        heap.append((load, item))
        while place > 0 and load < heap[parent := (place - 1) // 2][0]:
            heap[place], heap[parent] = heap[parent], heap[place]
            place = parent

    def take(self) -> T:
        """Remove and return the first item; the last takes its place and moves down past smaller loads."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            heap[0] = last
            self._move_down()
        return first[1]

    def _move_down(self) -> None:
        heap = self._heap
        place, load = 0, heap[0][0]
        while (child := 2 * place + 1) < len(heap):
            if child + 1 < len(heap) and heap[child + 1][0] < heap[child][0]:
                child += 1
            if load <= heap[child][0]:
                return
            heap[place], heap[child] = heap[child], heap[place]
            place = child


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
        return any(ours & others for ours, others in zip(self, other, strict=True))

    def is_within(self, other: TaskAssignment) -> bool:
        """Return whether the other assignment has all tasks of this one, in the same roles."""
        return all(ours <= others for ours, others in zip(self, other, strict=True))


NO_ASSIGNMENT: Final = TaskAssignment()


class HeldTasks(NamedTuple):
    """The tasks that a member has, each active task with its assignment epoch. The assignment epoch is the
    group epoch at which the member was assigned the task: commits of the task that name an older member epoch
    than this are refused.
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
        return not (self.active or self.standby or self.warmup)


NOTHING_HELD: Final = HeldTasks()


class AssignmentMember(NamedTuple):
    """A member as the task assignor sees it: its process, the tasks that it has, and how far it has read the
    changelogs of any tasks.
    """

    process_id: str
    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    offsets: Mapping[TaskId, int] = {}


class SubtopologyTasks(NamedTuple):
    """The number of tasks of a subtopology, and whether its tasks have changelogs."""

    partitions: int
    is_stateful: bool


TasksOfTopology: TypeAlias = Mapping[str, SubtopologyTasks]
"""The tasks of a topology by subtopology id."""
