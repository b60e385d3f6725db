"""Moves a member of a streams group one step towards its target.

    state              the member                                           next step
    STABLE             has its target                                       when there is a newer target
    UNREVOKED_TASKS    must revoke tasks; its epoch stays                   when it reports that it has none of them left
    UNRELEASED_TASKS   waits for tasks that other members have or revoke    with each heartbeat

An active task goes to a member after its last owner has revoked it. A process never has a task twice, in whatever roles.
Source: Kafka's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused
from gateway.coordinator.streams.group import HeldByProcesses, is_reconciled
from gateway.coordinator.streams.records import MemberState, StreamsCurrentValue
from gateway.coordinator.streams.tasks import NOTHING_HELD, HeldTasks, TaskAssignment


class Target(NamedTuple):
    """The tasks that a member shall have, and the epoch for which they were assigned."""

    epoch: int
    tasks: TaskAssignment


def reconciled(
    current: StreamsCurrentValue,
    target: Target,
    owned: TaskAssignment | None,
    held: Callable[[], HeldByProcesses],
) -> StreamsCurrentValue:
    """Return the next state of a member. `owned` are the tasks that it reports to have; None when it reports none.

    `held` returns the tasks that the group's members, this one among them, had before. Raises HeartbeatRefused.
    """
    if is_reconciled(current, target.epoch):
        return current
    if current.state is MemberState.UNREVOKED_TASKS:
        if owned is None or owned.has_any_of(current.pending_revocation.tasks):
            return current
        # the next epoch, which may still be older than the target's
        return _step(current, current.member_epoch + 1, target, owned, held())
    if current.state is MemberState.UNKNOWN:
        if owned is None or any(owned):
            text = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
            raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)
        return _step(current, target.epoch, target, owned, held())
    return _step(current, current.member_epoch, target, owned, held())


def _step(
    current: StreamsCurrentValue,
    member_epoch: int,
    target: Target,
    owned: TaskAssignment | None,
    held: HeldByProcesses,
) -> StreamsCurrentValue:
    """Assign what the member can have now; a member that must revoke tasks first stays at `member_epoch`."""
    assigned, tasks = current.assigned, target.tasks
    kept = HeldTasks(
        {task: epoch for task, epoch in assigned.active.items() if task in tasks.active},
        assigned.standby & tasks.standby,
        assigned.warmup & tasks.warmup,
    )
    to_revoke = HeldTasks(
        {task: epoch for task, epoch in assigned.active.items() if task not in tasks.active},
        assigned.standby - tasks.standby,
        assigned.warmup - tasks.warmup,
    )
    if not to_revoke.is_empty and (owned is None or owned.has_any_of(to_revoke.tasks)):
        return StreamsCurrentValue(
            member_epoch, current.member_epoch, MemberState.UNREVOKED_TASKS, kept, to_revoke
        )
    wanted = TaskAssignment(
        tasks.active - kept.active.keys(), tasks.standby - kept.standby, tasks.warmup - kept.warmup
    )
    here = held.active_here | held.others_here
    free = TaskAssignment(
        wanted.active - held.active - held.others_here, wanted.standby - here, wanted.warmup - here
    )
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_TASKS
    gained = HeldTasks(
        {**kept.active, **dict.fromkeys(free.active, target.epoch)},
        kept.standby | free.standby,
        kept.warmup | free.warmup,
    )
    return StreamsCurrentValue(target.epoch, current.member_epoch, state, gained, NOTHING_HELD)
