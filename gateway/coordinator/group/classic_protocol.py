"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the classic protocol, in a classic group and in a consumer
group, and the timeouts of classic members.

In a classic group the members divide the partitions:

    join ──► all joined, or the time is up ──► generation + 1, all answered ──► sync: the leader assigns ──►
    Stable

The first generation of a group waits `initial_rebalance_delay_ms` for more members, and waits again while
members come, at most a rebalance timeout in all. Source: Kafka's `GroupMetadataManager.classicGroup*`,
KIP-62, KIP-134, KIP-345, KIP-394, KIP-814.

In a consumer group the coordinator assigns partitions to these members, too (KIP-848, online migration).
JoinGroup is answered at once and never names a leader. SyncGroup returns the partitions that the member has
by now. The answer to a heartbeat makes the member join again when it gets further partitions, or must revoke
some.

    classic protocol      consumer group
    generation_id         member epoch
    owned partitions      the partitions not revoked yet; none if a client revokes all before it joins

Source: Kafka's `GroupMetadataManager.classicGroup*ToConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member, Protocols
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    EVERYTHING,
    MemberSubscription,
    Sight,
    read_subscription,
)
from seqgate.gateway.coordinator.group.consumer_group import (
    MEMBER,
    NOWHERE,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    MemberValue,
)
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    ConsumerLimits,
    MigrationPolicy,
    describe,
    downgrade,
    reconcile,
    renew_target,
    replace_static,
)
from seqgate.gateway.coordinator.group.epoch_group import STABLE, GroupError
from seqgate.gateway.coordinator.group.events import (
    SESSION_TIMED_OUT,
    Before,
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
from seqgate.gateway.coordinator.group.member_bytes import classic_bytes
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.places import Topics, ids_of, places_of
from seqgate.gateway.coordinator.rows import RowRecord

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.shard import GroupShard

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member whose client disconnected while its JoinGroup waits is removed after this time."""
NOBODY_JOINED_DELAY_MS: Final = 1000
"""The shortest time that a rebalance waits when its only members are absent static members."""
MAX_PENDING_MEMBERS: Final = 10_000
"""Member ids handed out and not used yet; one more makes the group forget the oldest."""

FIRST_REQUIRING_MEMBER_ID: Final = 4
"""The first version of JoinGroup in which a new member must join again with the id that it gets."""
FIRST_SKIPPING_ASSIGNMENT: Final = 9
"""The first version of JoinGroup that lets a restarted static leader skip the assignment (KIP-814)."""


class GroupLimits(msgspec.Struct, frozen=True):
    """The limits of a classic group: the settings `group.*` in `docs/configuration.md`."""

    initial_rebalance_delay_ms: int = 3000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000


class Join(msgspec.Struct, frozen=True):
    """A JoinGroup request. A member without an id gets `fresh_member_id`."""

    api_version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_member_id: str
    reason: str | None = None
    """Why the client joins, in its own words (KIP-800)."""
    sight: Sight = EVERYTHING
    """The topics that the regular expressions of a consumer group may match for this client."""

    @property
    def must_join_again_with_an_id(self) -> bool:
        """Return whether a new member only gets an id, with which it must join again (KIP-394)."""
        is_static = self.group_instance_id is not None
        return not self.member_id and not is_static and self.api_version >= FIRST_REQUIRING_MEMBER_ID


class ClassicRequests:
    """Handles the four requests, whichever kind of group the member is in."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def join(self, group_id: str, request: Join, waiter: Waiter, effects: Effects) -> None:
        """Handle a JoinGroup; answer it at once, or at the end of the rebalance."""
        try:
            self._join(group_id, request, waiter, effects)
        except GroupError as error:
            effects.reply(waiter, JoinReply(error_code=error.error_code, member_id=request.member_id))

    def _join(self, group_id: str, request: Join, waiter: Waiter, effects: Effects) -> None:
        shard = self._shard
        limits = shard.limits
        if not group_id:
            raise GroupError(ErrorCode.invalid_group_id)
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            raise GroupError(ErrorCode.invalid_session_timeout)
        held_bytes = shard.held_bytes(group_id, request.member_id, request.group_instance_id)
        if not shard.member_bytes.admit(classic_bytes(request.protocols), effects.now_ms, held_bytes):
            raise GroupError(ErrorCode.group_max_size_reached)
        consumer_group = shard.consumers.groups.get(group_id)
        if consumer_group is not None and consumer_group.members:
            self._join_consumers(consumer_group, request, waiter, effects)
            return
        group = shard.groups.get(group_id)
        if group is None:
            streams_group = shard.streams.groups.get(group_id)
            has_tasks = streams_group is not None and not streams_group.is_empty
            if group_id in shard.shares.groups or has_tasks:
                effects.reply(waiter, JoinReply(error_code=ErrorCode.inconsistent_group_protocol))
                return
            if request.member_id:
                raise GroupError(ErrorCode.unknown_member_id)
            if consumer_group is not None:
                shard.consumers.delete(group_id, effects)
            elif streams_group is not None:
                shard.streams.delete(group_id, effects)
            elif shard.is_full:
                raise GroupError(ErrorCode.group_max_size_reached)
            group = shard.groups[group_id] = ClassicGroup(group_id, effects.now_ms)
        _join_classic_group(group, request, waiter, limits, effects)

    def sync(
        self,
        committer: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        waiter: Waiter,
        effects: Effects,
    ) -> None:
        """Handle a SyncGroup; answer it when the leader has assigned."""
        shard, group_id = self._shard, committer.group_id
        consumer_group = shard.consumers.groups.get(group_id)
        try:
            if consumer_group is not None:
                reply = _sync_in_consumer_group(
                    consumer_group, committer, protocol, shard.topics, effects.now_ms
                )
                effects.reply(waiter, reply)
                return
            group = self._find(group_id)
            self._admit(group, assignments, effects)
            if not _takes_assignment(group, committer, protocol, waiter, effects):
                return
        except GroupError as error:
            effects.reply(waiter, SyncReply(error_code=error.error_code))
            return
        if effects.fits(GroupMetadataRecord(group_id, group.metadata(assignments))):
            _assign(group, assignments, effects)
        else:
            _refuse_assignment(group, shard.limits, effects)

    def _admit(self, group: ClassicGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
        held_bytes = sum(len(member.assignment) for member in group.members.values())
        sent_bytes = sum(map(len, assignments.values()))
        if not self._shard.member_bytes.admit(sent_bytes, effects.now_ms, held_bytes):
            # Kafka answers with this error when its log refuses an assignment
            raise GroupError(ErrorCode.unknown_server_error)

    def heartbeat(self, member: Committer, now_ms: int) -> ErrorCode:
        """Handle a Heartbeat; return an error code, which may announce a rebalance."""
        consumer_group = self._shard.consumers.groups.get(member.group_id)
        try:
            if consumer_group is not None:
                return _heartbeat_in_consumer_group(consumer_group, member, now_ms)
            return _heartbeat_in_classic_group(self._find(member.group_id), member, now_ms)
        except GroupError as error:
            return error.error_code

    def leave(
        self,
        group_id: str,
        leaving: Sequence[tuple[str, str | None]],
        effects: Effects,
        reason: str | None = None,
    ) -> ErrorCode | list[ErrorCode]:
        """Handle a LeaveGroup; return one error, or one for each. `reason` is why, in the client's words."""
        shard = self._shard
        if not group_id:
            return ErrorCode.invalid_group_id
        consumer_group = shard.consumers.groups.get(group_id)
        if consumer_group is not None:
            before, members = Before(consumer_group, ""), list(consumer_group.members.values())
            errors, records = _leave_consumer_group(consumer_group, leaving)
            effects.records += records
            effects.events += before.leave_events(members, reason)
            if records:
                self.downgrade_and_rebalance(consumer_group, effects)
            return errors
        group = shard.groups.get(group_id)
        if group is None:
            return [ErrorCode.unknown_member_id] * len(leaving)
        return _leave_classic_group(group, leaving, shard.limits, effects, reason)

    def _find(self, group_id: str) -> ClassicGroup:
        """Return the classic group. Raises GroupError."""
        if not group_id:
            raise GroupError(ErrorCode.invalid_group_id)
        if group_id not in self._shard.groups:
            raise GroupError(ErrorCode.unknown_member_id)
        return self._shard.groups[group_id]

    # --- groups that change their protocol

    def _join_consumers(self, group: ConsumerGroup, request: Join, waiter: Waiter, effects: Effects) -> None:
        static = group.members.get(group.static_members.get(request.group_instance_id or "", ""))
        before = Before(group, request.member_id or request.fresh_member_id, request.group_instance_id)
        try:
            reply, records = _join_consumer_group(
                group, request, self._shard.topics, self._shard.consumers.limits_of(group.group_id), effects
            )
        except GroupError as error:
            effects.reply(waiter, JoinReply(error_code=error.error_code))
            return
        effects.records += records
        effects.events += before.heartbeat_events(records, request.reason)
        effects.reply(waiter, reply)
        # the static member that was replaced may have been the last one of the consumer protocol
        if static is None or static.is_classic:
            return
        if group.state_text == STABLE:
            downgrade(self._shard, group, effects)
        else:
            # a target may have partitions that another member has not given up yet
            self.downgrade_and_rebalance(group, effects)

    def downgrade_and_rebalance(self, group: ConsumerGroup, effects: Effects) -> None:
        """Turn a consumer group with only classic members into a classic group, if the policy allows it, and
        let that group rebalance.
        """
        converted = downgrade(self._shard, group, effects)
        if converted is not None:
            reason = "the last member of the consumer protocol is gone, so it is a classic group now"
            prepare_rebalance(converted, self._shard.limits, effects, reason)


# --- joining a classic group


def _join_classic_group(
    group: ClassicGroup, request: Join, waiter: Waiter, limits: GroupLimits, effects: Effects
) -> None:
    """Handle a JoinGroup; answer it at once, or at the end of the rebalance. Raises GroupError."""
    member_id = request.member_id
    if not _has_room(group, member_id, limits):
        group.remove(member_id)
        effects.reply(waiter, JoinReply(error_code=ErrorCode.group_max_size_reached))
        return
    if group.state is GroupState.DEAD:
        raise GroupError(ErrorCode.coordinator_not_available)
    if not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    if not member_id:
        _join_new(group, request, waiter, limits, effects)
    elif member_id in group.pending_members and request.group_instance_id is None:
        _add(group, member_id, request, waiter, limits, effects)
    else:
        member = group.check_member(member_id, request.group_instance_id)
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
    if request.must_join_again_with_an_id:
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
        raise GroupError(ErrorCode.unknown_member_id)
    if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
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
    # if a second connection joins as the same member, Kafka never answers the first one
    rejoined = JoinReply(error_code=ErrorCode.rebalance_in_progress, member_id=member.member_id)
    member.answer_join(rejoined, effects)
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
    """Let a restarted static member in; it keeps its assignment when the group's protocol does not change.
    Raises GroupError.
    """
    old_leader, old_member_id = group.leader, group.static_members[instance_id]
    if group.state is GroupState.STABLE and not effects.fits(_after_restart(group, old_member_id, request)):
        raise GroupError(ErrorCode.unknown_server_error)
    member = group.replace_static(instance_id, request.fresh_member_id, effects)
    effects.events.append(MemberReplaced(group.group_id, old_member_id, who(member)))
    member.restart_session(effects.now_ms)
    _update(member, request, waiter, effects)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        effects.records.append(GroupMetadataRecord(group.group_id, group.metadata()))
        if request.api_version >= FIRST_SKIPPING_ASSIGNMENT:
            is_leader = group.leader == member.member_id
            reply = group.generation_reply(member.member_id, skip_assignment=is_leader)
        else:
            # Name the old leader in the answer. Then the member acts as a follower, and asks for its
            # assignment.
            reply = replace(group.generation_reply(member.member_id), leader=old_leader or "", members=())
        member.answer_join(reply, effects)
    else:
        reason = f"static member {instance_id} was replaced{client_says(request.reason)}"
        _go_on(group, limits, effects, reason)


def _after_restart(group: ClassicGroup, member_id: str, request: Join) -> GroupMetadataRecord:
    """Return the record of a group after a restarted static member has replaced its metadata."""
    metadata = dict(request.protocols).get(group.protocol_name or "", b"")
    stored = group.metadata()
    members = tuple(
        one._replace(subscription=metadata) if one.member_id == member_id else one for one in stored.members
    )
    return GroupMetadataRecord(group.group_id, stored._replace(members=members))


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
        _give_no_assignment(group, ErrorCode.rebalance_in_progress, effects)
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
        member.answer_join(group.generation_reply(member.member_id), effects)
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


def _takes_assignment(
    group: ClassicGroup,
    committer: Committer,
    protocol: tuple[str | None, str | None],
    waiter: Waiter,
    effects: Effects,
) -> bool:
    """Answer a SyncGroup, or let it wait; return whether it is the leader's, whose assignment is awaited.
    `protocol` is (type, name), None if missing. Raises GroupError.
    """
    member = group.check_member(committer.member_id, committer.group_instance_id)
    if committer.generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    protocol_type, protocol_name = protocol
    if (protocol_type is not None and protocol_type != group.protocol_type) or (
        protocol_name is not None and protocol_name != group.protocol_name
    ):
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise GroupError(ErrorCode.rebalance_in_progress)
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        group.sync_deadline_ms = NEVER
    if group.state is GroupState.STABLE:
        effects.reply(waiter, group.assignment_reply(member))
        return False
    member.answer_sync(SyncReply(error_code=ErrorCode.rebalance_in_progress), effects)
    member.awaiting_sync = waiter
    return group.leader == member.member_id


def _refuse_assignment(group: ClassicGroup, limits: GroupLimits, effects: Effects) -> None:
    """Answer every member that waits for an assignment that no batch can hold, and begin another rebalance. A
    client must not retry: what is too large now stays too large. Source: Kafka's
    resetAndPropagateAssignmentError, appendGroupMetadataErrorToResponseError.
    """
    _give_no_assignment(group, ErrorCode.unknown_server_error, effects)
    prepare_rebalance(group, limits, effects, "the leader's assignment is larger than a batch may be")


def _give_no_assignment(group: ClassicGroup, error: ErrorCode, effects: Effects) -> None:
    for member in group.members.values():
        member.assignment = b""
        if member.answer_sync(SyncReply(error_code=error), effects):
            member.restart_session(effects.now_ms)


def _assign(group: ClassicGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
    """Store the leader's assignment, and answer every member that waits for it."""
    group.become(GroupState.STABLE, effects.now_ms)
    effects.events.append(Stabilized(group.group_id, group.generation_id, len(group.members)))
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    effects.records.append(GroupMetadataRecord(group.group_id, group.metadata()))
    for member in group.members.values():
        if member.answer_sync(group.assignment_reply(member), effects):
            member.restart_session(effects.now_ms)


# --- heartbeats and leaving


def _heartbeat_in_classic_group(group: ClassicGroup, committer: Committer, now_ms: int) -> ErrorCode:
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


def _leave_classic_group(
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
    if member_id in group.pending_members:
        group.remove(member_id)
        return ErrorCode.none
    try:
        member = group.check_leaving(member_id, group_instance_id)
    except GroupError as error:
        return error.error_code
    _remove(group, member, effects)
    effects.events.append(MemberLeft(group.group_id, who(member)))
    return ErrorCode.none


def _remove(group: ClassicGroup, member: Member, effects: Effects) -> None:
    member.answer_join(JoinReply(error_code=ErrorCode.unknown_member_id), effects)
    member.answer_sync(SyncReply(error_code=ErrorCode.unknown_member_id), effects)
    group.remove(member.member_id)


def _go_on(group: ClassicGroup, limits: GroupLimits, effects: Effects, reason: str) -> None:
    """Rebalance after a member was removed or replaced, or complete the rebalance that waited only for it."""
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


# --- members of a consumer group that still speak the classic protocol


def _join_consumer_group(
    group: ConsumerGroup, request: Join, topics: Topics, limits: ConsumerLimits, effects: Effects
) -> tuple[JoinReply, list[RowRecord]]:
    """Handle a JoinGroup of a classic member to a consumer group. Raises GroupError."""
    if limits.migration_policy is MigrationPolicy.DISABLED:
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    instance_id = request.group_instance_id
    member_id = request.member_id or request.fresh_member_id
    is_known = member_id in group.members or instance_id in group.static_members
    if not is_known and len(group.members) >= limits.max_size:
        raise GroupError(ErrorCode.group_max_size_reached)
    if not _supports(group, request):
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    if request.must_join_again_with_an_id:
        return JoinReply(error_code=ErrorCode.member_id_required, member_id=member_id), []
    subscription = read_subscription(request.protocols[0][1])
    if subscription is None:
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    known = group.members.get(group.static_members.get(instance_id or "", member_id))
    value = _described(MemberValue() if known is None else known.value, request, subscription)
    if not effects.fits(MEMBER.of(group.group_id, member_id, value)):
        raise GroupError(ErrorCode.unknown_server_error)
    records: list[RowRecord] = []
    now_ms, size = effects.now_ms, len(group.members)
    member = _known_or_new(group, request, member_id, records)
    is_new = len(group.members) > size
    member.revocation_deadline_ms = NEVER
    changed = describe(group, member, value, records) or is_new
    renew_target(group, topics, records, limits, now_ms, request.sight, changed=changed)
    subscribed = ids_of(member.value.subscribed_names, topics) if changed or group.is_behind else None
    reconcile(group, member, places_of(subscription.owned, topics), now_ms, records, subscribed)
    member.session_deadline_ms = now_ms + request.session_timeout_ms
    member.join_deadline_ms = NEVER
    member.sync_deadline_ms = now_ms + request.rebalance_timeout_ms
    reply = JoinReply(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=request.protocols[0][0],
        member_id=member.member_id,
    )
    return reply, records


def _supports(group: ConsumerGroup, request: Join) -> bool:
    """Return whether the request names a protocol that all classic members speak. A group that becomes a
    classic group, when only classic members are left, needs that protocol.
    """
    candidates = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.value.classic is not None:
            candidates &= {name for name, _ in member.value.classic.protocols}
    return request.protocol_type == CONSUMER_PROTOCOL and bool(candidates)


def _known_or_new(
    group: ConsumerGroup, request: Join, member_id: str, records: list[RowRecord]
) -> ConsumerMember:
    """Return the member; create an unknown one, which replaces that of its instance id. Raises GroupError."""
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return group.check_member(member_id, instance_id)
    static_id = None if instance_id is None else group.static_members.get(instance_id)
    if static_id is not None:
        return replace_static(group, group.members[static_id], member_id, records)
    known = group.members.get(member_id)
    if known is not None:
        return known
    member = group.members[member_id] = ConsumerMember(member_id)
    return member


def _described(before: MemberValue, request: Join, subscription: MemberSubscription) -> MemberValue:
    """Return the member's description with what the request says about the member."""
    instance_id = request.group_instance_id
    return MemberValue(
        before.instance_id if instance_id is None else instance_id,
        subscription.rack_id or before.rack_id,
        request.client_id,
        request.client_host,
        tuple(sorted(subscription.topics)),
        None,
        request.rebalance_timeout_ms,
        before.server_assignor,
        ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _classic_member(group: ConsumerGroup, committer: Committer) -> tuple[ConsumerMember, ClassicMember]:
    """Return the classic member that sent the request in its present generation. Raises GroupError."""
    found = group.check_member(committer.member_id, committer.group_instance_id)
    if found.value.classic is None:
        raise GroupError(ErrorCode.unknown_member_id)
    if committer.generation_id != found.member_epoch:
        raise GroupError(ErrorCode.illegal_generation)
    return found, found.value.classic


def _must_join_again(member: ConsumerMember, now_ms: int) -> None:
    """Give the member its rebalance timeout from now to join again, unless its deadline is set already."""
    if member.join_deadline_ms == NEVER:
        member.join_deadline_ms = now_ms + member.value.rebalance_timeout_ms


def _sync_in_consumer_group(
    group: ConsumerGroup,
    committer: Committer,
    protocol: tuple[str | None, str | None],
    topics: Topics,
    now_ms: int,
) -> SyncReply:
    """Handle a SyncGroup: return the member's present assignment. Raises GroupError."""
    member, classic = _classic_member(group, committer)
    protocol_type, protocol_name = protocol
    name, metadata = classic.protocols[0]
    if protocol_type not in {None, CONSUMER_PROTOCOL} or protocol_name not in {None, name}:
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    # a member that must revoke partitions learns which from the assignment of this answer
    must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.assignment_epoch > member.member_epoch and not must_revoke:
        _must_join_again(member, now_ms)
        raise GroupError(ErrorCode.rebalance_in_progress)
    member.sync_deadline_ms = NEVER
    member.session_deadline_ms = now_ms + classic.session_timeout_ms
    assignment = member.encoded(member.current.assigned, metadata, topics)
    return SyncReply(protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment)


def _heartbeat_in_consumer_group(group: ConsumerGroup, committer: Committer, now_ms: int) -> ErrorCode:
    """Handle a Heartbeat; REBALANCE_IN_PROGRESS makes the member join again. Raises GroupError."""
    member, classic = _classic_member(group, committer)
    member.session_deadline_ms = now_ms + classic.session_timeout_ms
    state = member.current.state
    if (
        member.member_epoch < group.assignment_epoch
        or state is MemberState.UNREVOKED_PARTITIONS
        or (state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
    ):
        _must_join_again(member, now_ms)
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    missing = group.targets.get(member.member_id, NOWHERE) - member.current.assigned
    return bool(missing & group.held_by_others(member))


def _leave_consumer_group(
    group: ConsumerGroup, leaving: Sequence[tuple[str, str | None]]
) -> tuple[list[ErrorCode], list[RowRecord]]:
    """Handle a LeaveGroup: remove each (member_id, group_instance_id). An administrator may leave the member
    id empty. Members of the consumer protocol are removed too: an administrator removes them with this
    request.
    """
    gone: dict[str, None] = {}
    errors = []
    for member_id, instance_id in leaving:
        try:
            member = group.check_leaving(member_id, instance_id)
        except GroupError as error:
            errors.append(error.error_code)
        else:
            gone[member.member_id] = None
            errors.append(ErrorCode.none)
    return errors, group.remove(gone) if gone else []
