"""Heartbeats, leaving and timeouts of the members of a classic group.

Source: Kafka's `GroupMetadataManager.classicGroupHeartbeat`, `classicGroupLeave`, KIP-345.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState, Member
from gateway.coordinator.group.classic_rebalance import (
    GroupLimits,
    complete_when_all_joined,
    join_time_is_up,
    prepare_rebalance,
)
from gateway.coordinator.group.effects import Effects, JoinReply, SyncReply
from gateway.coordinator.group.events import SESSION_TIMED_OUT, MemberLeft, MemberRemoved, client_says, who

NOT_SYNCED: Final = "it did not send SyncGroup in time"


def heartbeat(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
) -> ErrorCode:
    """Handle a Heartbeat: restart the member's session. Raises GroupError."""
    if group.state is GroupState.DEAD:
        raise GroupError(ErrorCode.coordinator_not_available)
    member = group.check_member(member_id, group_instance_id)
    if generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    member.restart_session(now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def leave(
    group: ClassicGroup,
    leaving: Sequence[tuple[str, str | None]],
    limits: GroupLimits,
    effects: Effects,
    reason: str | None = None,
) -> list[ErrorCode]:
    """Remove each (member_id, group_instance_id); an administrator may leave a static member's member id
    empty. `reason` is the client's own text.
    """
    errors = [_leave_one(group, member_id, instance_id, effects) for member_id, instance_id in leaving]
    if any(error is ErrorCode.none for error in errors):
        left = next(one for one, error in zip(leaving, errors, strict=True) if error is ErrorCode.none)
        _go_on(group, limits, effects, f"member {left[0] or left[1]} left{client_says(reason)}")
    return errors


def _leave_one(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, effects: Effects
) -> ErrorCode:
    if not member_id:
        if group_instance_id is None or group_instance_id not in group.static_members:
            return ErrorCode.unknown_member_id
        member_id = group.static_members[group_instance_id]
    elif member_id in group.pending_members:
        group.remove(member_id)
        return ErrorCode.none
    try:
        member = group.check_member(member_id, group_instance_id)
    except GroupError as error:
        return error.error_code
    _remove(group, member, effects)
    effects.events.append(MemberLeft(group.group_id, who(member)))
    return ErrorCode.none


def _remove(group: ClassicGroup, member: Member, effects: Effects) -> None:
    group.answer_join(member, JoinReply(error_code=ErrorCode.unknown_member_id), effects)
    group.answer_sync(member, SyncReply(error_code=ErrorCode.unknown_member_id), effects)
    group.remove(member.member_id)


def _go_on(group: ClassicGroup, limits: GroupLimits, effects: Effects, reason: str) -> None:
    """Rebalance after a member was removed, or complete the rebalance that waited only for this member."""
    if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
        prepare_rebalance(group, limits, effects, reason)
    else:
        complete_when_all_joined(group, effects)


# --- timeouts


def next_deadline_ms(group: ClassicGroup) -> int:
    """Return the earliest time at which a session or a phase times out, so that `expire` must run."""
    deadlines = [group.join_deadline_ms, group.sync_deadline_ms, *group.pending_members.values()]
    deadlines += [member.session_deadline_ms for member in group.members.values() if _can_expire(member)]
    return min(deadlines)


def _can_expire(member: Member) -> bool:
    """Return whether the member's session may time out.

    A member that waits for an answer sends no heartbeats, so its session does not time out. A new member that waits
    does time out: its client may be gone.
    """
    return member.is_new or (member.awaiting_join is None and member.awaiting_sync is None)


def expire(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    """Remove members whose session timed out, and end join and sync phases that have timed out."""
    now_ms = effects.now_ms
    for member_id, deadline_ms in list(group.pending_members.items()):
        if deadline_ms <= now_ms:
            group.remove(member_id)
            complete_when_all_joined(group, effects)
    for member in list(group.members.values()):
        if member.session_deadline_ms <= now_ms and _can_expire(member):
            _remove(group, member, effects)
            effects.events.append(MemberRemoved(group.group_id, who(member), SESSION_TIMED_OUT))
            _go_on(group, limits, effects, f"the session of member {member.member_id} timed out")
    if group.sync_deadline_ms <= now_ms:
        group.sync_deadline_ms = NEVER
        _give_up_those_not_synced(group, limits, effects)
    if group.join_deadline_ms <= now_ms:
        join_time_is_up(group, limits, effects)


def _give_up_those_not_synced(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    """Remove the members that did not send SyncGroup in time, and rebalance."""
    if not group.pending_sync or group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        return
    for member_id in list(group.pending_sync):
        member = group.members[member_id]
        group.remove(member_id)
        effects.events.append(MemberRemoved(group.group_id, who(member), NOT_SYNCED))
    prepare_rebalance(group, limits, effects, "members did not send SyncGroup in time")
