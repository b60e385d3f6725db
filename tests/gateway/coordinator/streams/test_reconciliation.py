"""The steps of a member towards its target, and the tasks that the member may have meanwhile."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.streams.group import HeldByProcesses
from seqgate.gateway.coordinator.streams.heartbeat import TargetTasks, reconciled
from seqgate.gateway.coordinator.streams.records import StreamsCurrentValue, StreamsMemberState
from seqgate.gateway.coordinator.streams.task_assignor import (
    NO_ASSIGNMENT,
    NO_TASKS,
    HeldTasks,
    TaskAssignment,
    TaskId,
)
from tests.gateway.coordinator.streams.applications import FakeTopics
from tests.gateway.coordinator.streams.group_scene import Scene, active

FREE = HeldByProcesses(NO_TASKS, NO_TASKS, NO_TASKS, NO_TASKS)


def tasks(*partitions: int) -> frozenset[TaskId]:
    return frozenset(TaskId("0", partition) for partition in partitions)


def holding(
    epoch: int,
    *partitions: int,
    state: StreamsMemberState = StreamsMemberState.STABLE,
    revoking: tuple[int, ...] = (),
) -> StreamsCurrentValue:
    return StreamsCurrentValue(
        epoch,
        epoch - 1,
        state,
        HeldTasks(dict.fromkeys(tasks(*partitions), 2)),
        HeldTasks(dict.fromkeys(tasks(*revoking), 2)),
    )


def step(
    current: StreamsCurrentValue,
    target: TargetTasks,
    owned: TaskAssignment | None = None,
    held: HeldByProcesses = FREE,
) -> StreamsCurrentValue:
    return reconciled(current, target, owned, lambda: held)


def test_a_member_with_its_target_stays_as_it_is() -> None:
    current = holding(5, 0, 1)
    assert step(current, TargetTasks(5, active(7))) is current


def test_new_tasks_come_at_once_when_nobody_has_them() -> None:
    found = step(holding(5, 0), TargetTasks(6, active(0, 1)))
    assert (found.member_epoch, found.previous_member_epoch, found.state) == (6, 5, StreamsMemberState.STABLE)
    assert found.assigned.active == {TaskId("0", 0): 2, TaskId("0", 1): 6}


def test_tasks_are_revoked_before_others_come() -> None:
    found = step(holding(5, 0, 1), TargetTasks(6, active(1, 2)))
    assert (found.member_epoch, found.state) == (5, StreamsMemberState.UNREVOKED_TASKS)
    assert found.assigned.tasks == active(1)
    assert found.pending_revocation.tasks == active(0)


def test_a_member_that_no_longer_has_them_need_not_revoke() -> None:
    found = step(holding(5, 0, 1), TargetTasks(6, active(1, 2)), owned=active(1))
    assert (found.member_epoch, found.state) == (6, StreamsMemberState.STABLE)
    assert found.assigned.tasks == active(1, 2)


@pytest.mark.parametrize("owned", [None, active(0, 1), active(0)])
def test_revoking_lasts_until_the_member_reports_it(owned: TaskAssignment | None) -> None:
    current = holding(5, 1, state=StreamsMemberState.UNREVOKED_TASKS, revoking=(0,))
    assert step(current, TargetTasks(8, active(1, 2)), owned) is current


def test_a_member_that_revoked_goes_on_to_the_newest_target() -> None:
    current = holding(5, 1, state=StreamsMemberState.UNREVOKED_TASKS, revoking=(0,))
    found = step(current, TargetTasks(8, active(1, 2)), owned=active(1))
    assert (found.member_epoch, found.state) == (8, StreamsMemberState.STABLE)
    assert found.assigned.tasks == active(1, 2)
    assert found.pending_revocation.is_empty


def test_a_member_that_must_revoke_again_is_one_epoch_further() -> None:
    current = holding(5, 1, 2, state=StreamsMemberState.UNREVOKED_TASKS, revoking=(0,))
    found = step(current, TargetTasks(8, active(1)), owned=active(1, 2))
    assert (found.member_epoch, found.state) == (6, StreamsMemberState.UNREVOKED_TASKS)
    assert found.pending_revocation.tasks == active(2)


def test_a_member_waits_for_active_tasks_of_others() -> None:
    held = HeldByProcesses(tasks(0, 1), tasks(0), NO_TASKS, NO_TASKS)
    found = step(holding(5, 0), TargetTasks(6, active(0, 1, 2)), held=held)
    assert (found.member_epoch, found.state) == (6, StreamsMemberState.UNRELEASED_TASKS)
    assert found.assigned.tasks == active(0, 2)
    found = step(found, TargetTasks(6, active(0, 1, 2)))
    assert found.state is StreamsMemberState.STABLE
    assert found.assigned.tasks == active(0, 1, 2)


def test_a_process_never_has_a_task_twice() -> None:
    target = TargetTasks(6, TaskAssignment(tasks(0), tasks(1), tasks(2)))
    for held in (
        HeldByProcesses(NO_TASKS, NO_TASKS, tasks(0, 1, 2), NO_TASKS),
        HeldByProcesses(NO_TASKS, NO_TASKS, NO_TASKS, tasks(0, 1, 2)),
        HeldByProcesses(tasks(0, 1, 2), tasks(0, 1, 2), NO_TASKS, NO_TASKS),
    ):
        found = step(holding(5), target, held=held)
        assert found.state is StreamsMemberState.UNRELEASED_TASKS
        assert found.assigned.is_empty


def test_standby_tasks_may_be_active_elsewhere() -> None:
    target = TargetTasks(6, TaskAssignment(NO_TASKS, tasks(1)))
    found = step(holding(5), target, held=HeldByProcesses(tasks(1), NO_TASKS, NO_TASKS, NO_TASKS))
    assert (found.state, found.assigned.standby) == (StreamsMemberState.STABLE, tasks(1))


class TestChangesOfRole:
    """A task that changes its role at a member, which holds it all the while."""

    STANDS_BY = StreamsCurrentValue(5, 4, StreamsMemberState.STABLE, HeldTasks({}, tasks(0)))
    HERE = HeldByProcesses(NO_TASKS, NO_TASKS, tasks(0), NO_TASKS)

    def test_a_standby_task_becomes_active_without_a_revocation(self) -> None:
        found = step(self.STANDS_BY, TargetTasks(6, active(0)), held=self.HERE)
        assert (found.member_epoch, found.state) == (6, StreamsMemberState.STABLE)
        assert found.assigned == HeldTasks({TaskId("0", 0): 6})

    def test_a_standby_task_stays_until_the_active_one_is_free(self) -> None:
        held = self.HERE._replace(active=tasks(0))
        found = step(self.STANDS_BY, TargetTasks(6, active(0)), held=held)
        assert (found.member_epoch, found.state) == (6, StreamsMemberState.UNRELEASED_TASKS)
        assert found.assigned == HeldTasks({}, tasks(0))
        found = step(found, TargetTasks(6, active(0)), held=self.HERE)
        assert found.assigned == HeldTasks({TaskId("0", 0): 6})

    def test_a_standby_task_stays_while_other_tasks_are_revoked(self) -> None:
        current = self.STANDS_BY._replace(assigned=HeldTasks({TaskId("0", 1): 2}, tasks(0)))
        found = step(current, TargetTasks(6, active(0)), held=self.HERE)
        assert (found.member_epoch, found.state) == (5, StreamsMemberState.UNREVOKED_TASKS)
        assert found.assigned == HeldTasks({}, tasks(0))
        assert found.pending_revocation.tasks == active(1)

    def test_a_standby_task_of_another_member_here_is_waited_for(self) -> None:
        found = step(holding(5), TargetTasks(6, active(0)), held=self.HERE)
        assert (found.state, found.assigned.is_empty) == (StreamsMemberState.UNRELEASED_TASKS, True)

    def test_an_active_task_becomes_a_standby_task_at_once(self) -> None:
        target = TargetTasks(6, TaskAssignment(standby=tasks(0)))
        held = HeldByProcesses(tasks(0), tasks(0), NO_TASKS, NO_TASKS)
        found = step(holding(5, 0), target, held=held)
        assert (found.member_epoch, found.state) == (5, StreamsMemberState.UNREVOKED_TASKS)
        assert found.assigned == HeldTasks({}, tasks(0))
        assert found.pending_revocation.tasks == active(0)

    @pytest.mark.parametrize("is_warm", [False, True])
    def test_standby_and_warm_up_tasks_change_places(self, is_warm: bool) -> None:
        before, after = HeldTasks({}, tasks(0)), HeldTasks({}, NO_TASKS, tasks(0))
        if is_warm:
            before, after = after, before
        held = HeldByProcesses(NO_TASKS, NO_TASKS, before.standby, before.warmup)
        found = step(self.STANDS_BY._replace(assigned=before), TargetTasks(6, after.tasks), held=held)
        assert (found.state, found.assigned) == (StreamsMemberState.STABLE, after)


def test_a_member_in_an_unknown_state_must_join_again() -> None:
    current = holding(5, 0, state=StreamsMemberState.UNKNOWN)
    with pytest.raises(HeartbeatRefused) as refused:
        step(current, TargetTasks(6, active(0)), owned=active(0))
    assert refused.value.error_code is ErrorCode.fenced_member_epoch
    found = step(current, TargetTasks(6, active(0)), owned=NO_ASSIGNMENT)
    assert (found.member_epoch, found.state) == (6, StreamsMemberState.STABLE)


def test_a_task_moves_after_its_owner_has_revoked_it() -> None:
    scene = Scene(FakeTopics(lines=2))
    scene.join("a")
    reply = scene.join("b")
    assert reply.tasks == NO_ASSIGNMENT, "a has both tasks"
    told = scene.stay("a", tells=False)
    assert told.tasks is not None
    assert len(told.tasks.active) == 1
    assert scene.stay("b").tasks is None, "a has not said that it revoked a task"
    scene.stay("a")
    reply = scene.stay("b")
    assert reply.tasks is not None
    assert reply.tasks.active == tasks(0, 1) - told.tasks.active
