"""The sticky task assignor: each task once, standby tasks elsewhere, even loads, and no task moves without
need.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given

from seqgate.gateway.coordinator.streams.task_assignor import (
    AssignmentMember,
    SubtopologyTasks,
    TaskAssignment,
    TaskId,
    assign_tasks,
)
from tests.gateway.coordinator.streams.drawn_groups import (
    Group,
    adopt,
    all_tasks,
    by_process,
    changed_groups,
    fresh_groups,
    groups,
)


def ids(subtopology_id: str, *partitions: int) -> frozenset[TaskId]:
    return frozenset(TaskId(subtopology_id, partition) for partition in partitions)


def active_counts(assignment: dict[str, TaskAssignment]) -> list[int]:
    return sorted(len(tasks.active) for tasks in assignment.values())


class TestAlways:
    @given(group=groups())
    def test_every_active_task_has_one_member(self, group: Group) -> None:
        assignment = group.assign()
        assert assignment.keys() == group.members.keys()
        active = [task for tasks in assignment.values() for task in tasks.active]
        assert len(active) == len(set(active))
        assert set(active) == all_tasks(group.topology)

    @given(group=groups())
    def test_copies_of_a_task_are_in_different_processes(self, group: Group) -> None:
        """Each process has a task once: a standby task is never where its active task is."""
        assignment = group.assign()
        copies = {
            task: [
                group.members[name].process_id
                for name, tasks in assignment.items()
                if task in tasks.active | tasks.standby
            ]
            for task in all_tasks(group.topology)
        }
        assert all(len(places) == len(set(places)) for places in copies.values())

    @given(group=groups())
    def test_stateful_tasks_have_as_many_standby_tasks_as_processes_allow(self, group: Group) -> None:
        assignment = group.assign()
        processes = len({member.process_id for member in group.members.values()})
        standby = [task for tasks in assignment.values() for task in tasks.standby]
        assert set(standby) <= all_tasks(group.topology, stateful=True)
        wanted = min(group.standby_replicas, processes - 1)
        assert all(standby.count(task) == wanted for task in all_tasks(group.topology, stateful=True))

    @given(group=groups())
    def test_the_order_of_members_and_subtopologies_does_not_matter(self, group: Group) -> None:
        turned = Group(
            dict(reversed(group.members.items())),
            dict(reversed(group.topology.items())),
            group.standby_replicas,
        )
        assert turned.assign() == group.assign()

    @given(group=groups())
    def test_there_are_no_warm_up_tasks(self, group: Group) -> None:
        assert not any(tasks.warmup for tasks in group.assign().values())


class TestOffsets:
    """Members that report how far they have read the changelogs of tasks."""

    TASK = TaskId("0", 0)

    def active_member(self, **members: AssignmentMember) -> str:
        assignment = assign_tasks(members, {"0": SubtopologyTasks(1, is_stateful=True)}, 0)
        (name,) = (name for name, tasks in assignment.items() if tasks.active)
        return name

    def test_a_task_goes_where_its_state_is_furthest(self) -> None:
        near, far = (
            AssignmentMember("p", offsets={self.TASK: 5}),
            AssignmentMember("q", offsets={self.TASK: 9}),
        )
        assert self.active_member(a=AssignmentMember("o"), b=near, c=far) == "c"

    def test_a_member_that_stands_by_comes_first(self) -> None:
        stands_by = AssignmentMember("q", standby=ids("0", 0))
        assert self.active_member(a=AssignmentMember("p", offsets={self.TASK: 9}), b=stands_by) == "b"

    def test_a_standby_task_comes_to_the_next_one_that_has_state(self) -> None:
        members = {
            "a": AssignmentMember("o", offsets={self.TASK: 9}),
            "b": AssignmentMember("p"),
            "c": AssignmentMember("q", offsets={self.TASK: 5}),
        }
        assignment = assign_tasks(members, {"0": SubtopologyTasks(1, is_stateful=True)}, 1)
        assert (assignment["a"].active, assignment["c"].standby) == (ids("0", 0), ids("0", 0))


class TestBalance:
    @given(group=fresh_groups())
    def test_a_process_has_at_most_one_task_for_each_member_more_than_another(self, group: Group) -> None:
        group = group._replace(standby_replicas=0)
        capacity = dict.fromkeys({row.process_id for row in group.members.values()}, 0)
        for member in group.members.values():
            capacity[member.process_id] += 1
        loads = {
            process_id: Fraction(len(tasks.active), capacity[process_id])
            for process_id, tasks in by_process(group, group.assign()).items()
        }
        for process_id, load in loads.items():
            assert load - min(loads.values()) <= Fraction(1, capacity[process_id])

    @given(group=fresh_groups())
    def test_members_of_one_process_differ_by_one_task(self, group: Group) -> None:
        assignment = group.assign()
        for process_id in {row.process_id for row in group.members.values()}:
            counts = [
                len(tasks.active | tasks.standby)
                for name, tasks in assignment.items()
                if group.members[name].process_id == process_id
            ]
            assert max(counts) - min(counts) <= 1

    @given(group=changed_groups())
    def test_no_member_keeps_more_than_its_share(self, group: Group) -> None:
        """A member has more than the share only where its process had the least load."""
        group = group._replace(standby_replicas=0)
        share = -(-len(all_tasks(group.topology)) // len(group.members))
        for name, tasks in group.assign().items():
            assert len(tasks.active & group.members[name].active) <= share


class TestStickiness:
    @given(group=fresh_groups())
    def test_a_second_time_no_active_task_moves(self, group: Group) -> None:
        group = group._replace(
            standby_replicas=0,
            members={name: row._replace(process_id=name) for name, row in group.members.items()},
        )
        first = group.assign()
        assert group._replace(members=adopt(group.members, first)).assign() == first

    def test_a_new_member_takes_tasks_from_those_with_too_many(self) -> None:
        topology = {"0": SubtopologyTasks(6, False)}
        members = {name: AssignmentMember(name) for name in "ab"}
        before = assign_tasks(members, topology, 0)
        assert active_counts(before) == [3, 3]
        after = assign_tasks({**adopt(members, before), "c": AssignmentMember("c")}, topology, 0)
        assert active_counts(after) == [2, 2, 2]
        assert all(after[name].active < before[name].active for name in "ab")

    def test_the_one_that_stood_by_takes_over(self) -> None:
        topology = {"0": SubtopologyTasks(4, True)}
        members = {
            "b": AssignmentMember("b", standby=ids("0", 0, 1)),
            "c": AssignmentMember("c", active=ids("0", 2, 3)),
        }
        after = assign_tasks(members, topology, 0)
        assert after["b"].active == ids("0", 0, 1)
        assert after["c"].active == ids("0", 2, 3)

    def test_the_former_active_process_stands_by(self) -> None:
        """Each member stands by for the task that it has processed until now."""
        topology = {"0": SubtopologyTasks(2, True)}
        members = {
            "a": AssignmentMember("a", active=ids("0", 0, 1)),
            "b": AssignmentMember("b", standby=ids("0", 0, 1)),
        }
        after = assign_tasks(members, topology, 1)
        assert after["a"] == TaskAssignment(ids("0", 0), ids("0", 1))
        assert after["b"] == TaskAssignment(ids("0", 1), ids("0", 0))


class TestSpreading:
    def test_like_partitions_of_two_subtopologies_come_to_one_member(self) -> None:
        topology = {name: SubtopologyTasks(2, False) for name in ("0", "1")}
        after = assign_tasks({name: AssignmentMember(name) for name in "ab"}, topology, 0)
        assert after["a"].active == ids("0", 0) | ids("1", 0)
        assert after["b"].active == ids("0", 1) | ids("1", 1)

    def test_a_process_with_two_members_has_twice_the_tasks(self) -> None:
        members = {"a": AssignmentMember("p"), "b": AssignmentMember("p"), "c": AssignmentMember("q")}
        after = assign_tasks(members, {"0": SubtopologyTasks(6, False)}, 0)
        assert active_counts(after) == [2, 2, 2]

    def test_a_single_process_has_no_standby_tasks(self) -> None:
        members = {"a": AssignmentMember("p"), "b": AssignmentMember("p")}
        after = assign_tasks(members, {"0": SubtopologyTasks(3, True)}, 2)
        assert not any(tasks.standby for tasks in after.values())

    def test_no_members(self) -> None:
        assert assign_tasks({}, {"0": SubtopologyTasks(3, True)}, 1) == {}
