"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the members of a classic group, and their timeouts.

    join ──► all joined, or the time is up ──► generation + 1, all answered ──► sync: the leader assigns ──►
    Stable

The first generation of a group waits `initial_rebalance_delay_ms` for more members, and waits again while
members come, at most a rebalance timeout in all. Source: Kafka's `GroupMetadataManager.classicGroup*`,
KIP-62, KIP-134, KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import (
    ClassicGroup,
    GroupError,
    GroupState,
    Member,
    Protocols,
)
from seqgate.gateway.coordinator.group.consumer_assignors import EVERYTHING, Sight
from seqgate.gateway.coordinator.group.events import (
    SESSION_TIMED_OUT,
    Effects,
    Emptied,
    JoinReply,
    MemberJoined,
    MemberLeft,
    MemberRemoved,
    MemberReplaced,
    RebalanceBegan,
    Stabilized,
    SyncReply,
    client_says,
    who,
)
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member whose client disconnected while its JoinGroup waits is removed after this time."""
NOBODY_JOINED_DELAY_MS: Final = 1000
"""The shortest time that a rebalance waits when its only members are absent static members."""
MAX_PENDING_MEMBERS: Final = 10_000
"""Member ids handed out and not used yet; one more makes the group forget the oldest."""


class GroupLimits(msgspec.Struct, frozen=True):
    """The limits of a classic group: the settings `group.*` in `docs/configuration.md`."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000


class Join(msgspec.Struct, frozen=True):
    """A JoinGroup request. A member without an id gets `fresh_member_id`. From v4 on it must join again with
    that id (`requires_known_member_id`), unless it is static; from v9 on it `can_skip_assignment`.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_member_id: str
    requires_known_member_id: bool
    can_skip_assignment: bool
    reason: str | None = None
    """Why the client joins, in its own words (KIP-800)."""
    sight: Sight = EVERYTHING
    """The topics that the regular expressions of a consumer group may match for this client."""


# --- joining a group


def join(group: ClassicGroup, request: Join, waiter: Waiter, limits: GroupLimits, effects: Effects) -> None:
    """Handle a JoinGroup; answer it at once, or at the end of the rebalance."""
    member_id = request.member_id
    if not _has_room(group, member_id, limits):
        group.remove(member_id)
        effects.reply(waiter, JoinReply(error_code=ErrorCode.group_max_size_reached))
        return
    if group.state is GroupState.DEAD:
        effects.reply(waiter, JoinReply(error_code=ErrorCode.coordinator_not_available, member_id=member_id))
        return
    if not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        error = ErrorCode.inconsistent_group_protocol
        effects.reply(waiter, JoinReply(error_code=error, member_id=member_id))
        return
    if not member_id:
        _join_new(group, request, waiter, limits, effects)
    elif member_id in group.pending_members and request.group_instance_id is None:
        _add(group, member_id, request, waiter, limits, effects)
    else:
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except GroupError as error:
            effects.reply(waiter, JoinReply(error_code=error.error_code, member_id=member_id))
            return
        _join_again(group, member, request, waiter, limits, effects)


def _has_room(group: ClassicGroup, member_id: str, limits: GroupLimits) -> bool:
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waiting = sum(other.awaiting_join is not None for other in group.members.values())
        return (member is not None and member.awaiting_join is not None) or waiting < limits.max_size
    if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        return member is not None or len(group.members) < limits.max_size
    return True


def _join_new(
    group: ClassicGroup, request: Join, waiter: Waiter, limits: GroupLimits, effects: Effects
) -> None:
    instance_id = request.group_instance_id
    if instance_id is None and request.requires_known_member_id:
        if len(group.pending_members) >= MAX_PENDING_MEMBERS:
            # Kafka keeps any number of pending ids; here a client whose id was evicted joins anew
            del group.pending_members[next(iter(group.pending_members))]
        # A client that never joins with its new id must not become a member (KIP-394).
        group.pending_members[request.fresh_member_id] = effects.now_ms + request.session_timeout_ms
        error = ErrorCode.member_id_required
        effects.reply(waiter, JoinReply(error_code=error, member_id=request.fresh_member_id))
    elif instance_id is not None and instance_id in group.static_members:
        _replace_static(group, instance_id, request, waiter, limits, effects)
    else:
        _add(group, request.fresh_member_id, request, waiter, limits, effects)


def _add(
    group: ClassicGroup, member_id: str, request: Join, waiter: Waiter, limits: GroupLimits, effects: Effects
) -> None:
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        is_new=True,
        session_deadline_ms=effects.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member, waiter)
    effects.events.append(MemberJoined(group.group_id, who(member)))
    _rebalance_or_complete(group, limits, effects, f"member {member_id} joined{client_says(request.reason)}")


def _join_again(
    group: ClassicGroup, member: Member, request: Join, waiter: Waiter, limits: GroupLimits, effects: Effects
) -> None:
    unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    if group.state is GroupState.EMPTY:
        error = ErrorCode.unknown_member_id
        effects.reply(waiter, JoinReply(error_code=error, member_id=member.member_id))
    elif (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
        group.state is GroupState.STABLE and unchanged and not is_leader
    ):
        # The member repeats its request, because the last answer was lost.
        effects.reply(waiter, group.generation_reply(member.member_id))
    else:
        _update(member, request, waiter, effects)
        what = "joined again" if unchanged else "joined again with other protocols"
        subject = "the leader" if is_leader else "member"
        reason = f"{subject} {member.member_id} {what}{client_says(request.reason)}"
        _rebalance_or_complete(group, limits, effects, reason)


def _update(member: Member, request: Join, waiter: Waiter, effects: Effects) -> None:
    if member.awaiting_join is not None:
        # a second connection joins as the same member: Kafka never answers the first one
        effects.reply(
            member.awaiting_join,
            JoinReply(error_code=ErrorCode.rebalance_in_progress, member_id=member.member_id),
        )
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.awaiting_join = waiter


def _replace_static(
    group: ClassicGroup,
    instance_id: str,
    request: Join,
    waiter: Waiter,
    limits: GroupLimits,
    effects: Effects,
) -> None:
    """Let a restarted static member in; it keeps its assignment when the group's protocol does not change."""
    old_leader, old_member_id = group.leader, group.static_members[instance_id]
    member = group.replace_static(instance_id, request.fresh_member_id, effects)
    effects.events.append(MemberReplaced(group.group_id, old_member_id, who(member)))
    member.restart_session(effects.now_ms)
    _update(member, request, waiter, effects)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        effects.records.append(GroupMetadataRecord(group.group_id, group.metadata()))
        if request.can_skip_assignment:
            is_leader = group.leader == member.member_id
            reply = group.generation_reply(member.member_id, skip_assignment=is_leader)
        else:
            # Name the old leader in the answer. Then the member acts as a follower, and asks for its
            # assignment.
            reply = JoinReply(
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=old_leader or "",
                member_id=member.member_id,
            )
        group.answer_join(member, reply, effects)
    elif group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
        reason = f"static member {instance_id} was replaced{client_says(request.reason)}"
        prepare_rebalance(group, limits, effects, reason)
    else:
        _complete_when_all_joined(group, effects)


# --- rebalancing


def _rebalance_or_complete(group: ClassicGroup, limits: GroupLimits, effects: Effects, reason: str) -> None:
    if group.can_rebalance:
        prepare_rebalance(group, limits, effects, reason)
    else:
        _complete_when_all_joined(group, effects)


def _complete_when_all_joined(group: ClassicGroup, effects: Effects) -> None:
    """End the join phase when all members have joined; an empty group waits the full initial delay."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_joined
    ):
        _complete_join(group, effects)


def prepare_rebalance(group: ClassicGroup, limits: GroupLimits, effects: Effects, reason: str) -> None:
    """Start a rebalance: every member must join again."""
    now_ms = effects.now_ms
    began = RebalanceBegan(group.group_id, group.state.value, group.generation_id, reason)
    effects.events.append(began)
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncReply(error_code=ErrorCode.rebalance_in_progress), effects):
                member.restart_session(now_ms)
    group.pending_sync.clear()
    group.sync_deadline_ms = NEVER
    was_empty = group.state is GroupState.EMPTY
    group.become(GroupState.PREPARING_REBALANCE, now_ms)
    if was_empty:
        delay_ms = limits.initial_rebalance_delay_ms
        group.join_deadline_ms = now_ms + delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    elif group.has_all_joined:
        _complete_join(group, effects)
    else:
        group.join_deadline_ms = now_ms + group.rebalance_timeout_ms


def _complete_join(group: ClassicGroup, effects: Effects) -> None:
    """Begin the next generation with the joined members; static ones stay until their session times out."""
    now_ms = effects.now_ms
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.group_instance_id is None:
            group.remove(member.member_id)
            reason = "it did not join again in time"
            effects.events.append(MemberRemoved(group.group_id, who(member), reason))
    if group.members and not group.elect_joined_leader():
        # at least a second, so that a rebalance timeout of 0 does not make a busy loop until a session times
        # out
        group.join_deadline_ms = now_ms + max(group.rebalance_timeout_ms, NOBODY_JOINED_DELAY_MS)
        return
    group.join_deadline_ms = NEVER
    group.begin_generation(now_ms)
    if not group.members:
        effects.events.append(Emptied(group.group_id, group.generation_id))
        effects.records.append(GroupMetadataRecord(group.group_id, group.metadata()))
        return
    for member in group.members.values():
        group.answer_join(member, group.generation_reply(member.member_id), effects)
        member.restart_session(now_ms)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms


def _join_time_is_up(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    """End the join phase without the missing members; an empty group may wait again for more members."""
    group.join_deadline_ms = NEVER
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    left_ms = group.initial_delay_left_ms
    if group.previous_state is GroupState.EMPTY and group.new_member_added and left_ms:
        group.new_member_added = False
        delay_ms = min(limits.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = max(left_ms - limits.initial_rebalance_delay_ms, 0)
        group.join_deadline_ms = effects.now_ms + delay_ms
    else:
        _complete_join(group, effects)


# --- sync


def sync(
    group: ClassicGroup,
    committer: Committer,
    protocol: tuple[str | None, str | None],
    assignments: Mapping[str, bytes],
    waiter: Waiter,
    effects: Effects,
) -> None:
    """Handle a SyncGroup: the leader's assigns, others wait. `protocol` is (type, name), None if missing."""
    try:
        member = group.check_member(committer.member_id, committer.group_instance_id)
        _check_generation(group, committer.generation_id, protocol)
    except GroupError as error:
        effects.reply(waiter, SyncReply(error_code=error.error_code))
        return
    if group.state is GroupState.PREPARING_REBALANCE:
        effects.reply(waiter, SyncReply(error_code=ErrorCode.rebalance_in_progress))
        return
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        group.sync_deadline_ms = NEVER
    if group.state is GroupState.STABLE:
        effects.reply(waiter, group.assignment_reply(member))
        return
    if member.awaiting_sync is not None:
        effects.reply(member.awaiting_sync, SyncReply(error_code=ErrorCode.rebalance_in_progress))
    member.awaiting_sync = waiter
    if group.leader == member.member_id:
        _assign(group, assignments, effects)


def _check_generation(
    group: ClassicGroup, generation_id: int, protocol: tuple[str | None, str | None]
) -> None:
    if generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    protocol_type, protocol_name = protocol
    if (protocol_type is not None and protocol_type != group.protocol_type) or (
        protocol_name is not None and protocol_name != group.protocol_name
    ):
        raise GroupError(ErrorCode.inconsistent_group_protocol)


def _assign(group: ClassicGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
    """Store the leader's assignment, and answer every member that waits for it."""
    group.become(GroupState.STABLE, effects.now_ms)
    effects.events.append(Stabilized(group.group_id, group.generation_id, len(group.members)))
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    effects.records.append(GroupMetadataRecord(group.group_id, group.metadata()))
    for member in group.members.values():
        if group.answer_sync(member, group.assignment_reply(member), effects):
            member.restart_session(effects.now_ms)


# --- heartbeats and leaving


def heartbeat(group: ClassicGroup, committer: Committer, now_ms: int) -> ErrorCode:
    """Handle a Heartbeat: restart the member's session. Raises GroupError."""
    if group.state is GroupState.DEAD:
        raise GroupError(ErrorCode.coordinator_not_available)
    member = group.check_member(committer.member_id, committer.group_instance_id)
    if committer.generation_id != group.generation_id:
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
        _complete_when_all_joined(group, effects)


# --- timeouts


def next_deadline_ms(group: ClassicGroup) -> int:
    """Return the earliest time at which a session or a phase times out, so that `expire` must run."""
    deadlines = [group.join_deadline_ms, group.sync_deadline_ms, *group.pending_members.values()]
    deadlines += [member.session_deadline_ms for member in group.members.values() if _can_expire(member)]
    return min(deadlines)


def _can_expire(member: Member) -> bool:
    """Return whether the member's session may time out.

    A member that waits for an answer sends no heartbeats, so its session does not time out. A new member that
    waits does time out: its client may be gone.
    """
    return member.is_new or (member.awaiting_join is None and member.awaiting_sync is None)


def expire(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    """Remove members whose session timed out, and end join and sync phases that have timed out."""
    now_ms = effects.now_ms
    for member_id, deadline_ms in list(group.pending_members.items()):
        if deadline_ms <= now_ms:
            group.remove(member_id)
            _complete_when_all_joined(group, effects)
    for member in list(group.members.values()):
        if member.session_deadline_ms <= now_ms and _can_expire(member):
            _remove(group, member, effects)
            effects.events.append(MemberRemoved(group.group_id, who(member), SESSION_TIMED_OUT))
            _go_on(group, limits, effects, f"the session of member {member.member_id} timed out")
    if group.sync_deadline_ms <= now_ms:
        group.sync_deadline_ms = NEVER
        _give_up_those_not_synced(group, limits, effects)
    if group.join_deadline_ms <= now_ms:
        _join_time_is_up(group, limits, effects)


def _give_up_those_not_synced(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    if not group.pending_sync or group.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
        return
    for member_id in list(group.pending_sync):
        member = group.members[member_id]
        group.remove(member_id)
        effects.events.append(MemberRemoved(group.group_id, who(member), "it did not send SyncGroup in time"))
    prepare_rebalance(group, limits, effects, "members did not send SyncGroup in time")
