"""ConsumerGroupHeartbeat: joining, staying, revoking partitions, getting new ones, leaving (KIP-848).

    member_epoch    the member
    0               joins, or joins again without partitions
    n > 0           is at epoch n; the previous epoch means that an answer was lost, any other epoch is fenced
    −1              leaves
    −2              leaves and may return, because it is static

Source: Kafka's `GroupMetadataManager.consumerGroupHeartbeat`, `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.group.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NOWHERE,
    ConsumerGroup,
    ConsumerMember,
)
from gateway.coordinator.group.consumer_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    TargetRecord,
)
from gateway.coordinator.group.consumer_request import (
    MAX_EXPIRED_AT_ONCE,
    MAX_REGEXES,
    ConsumerLimits,
    Heartbeat,
    HeartbeatRefused,
    HeartbeatReply,
    Topics,
)
from gateway.coordinator.group.consumer_targets import renew_target
from gateway.coordinator.places import Place

# --- one heartbeat


def heartbeat(
    group: ConsumerGroup, request: Heartbeat, topics: Topics, limits: ConsumerLimits, now_ms: int
) -> tuple[HeartbeatReply, list[ConsumerRecord]]:
    """Handle a valid heartbeat of a member that joins or stays. Raises HeartbeatRefused."""
    _check_regexes(group, request)
    records: list[ConsumerRecord] = []
    size = len(group.members)
    member = _member(group, request, limits, records)
    is_new = len(group.members) > size
    before = member.assigned
    changed = _update_member(group, member, request, records, is_new=is_new)
    member.session_deadline_ms = now_ms + limits.session_timeout_ms
    renew_target(group, topics, records, limits, now_ms, request.sight, changed=changed)
    subscribed = topics_of(member, topics) if changed or group.is_behind else None
    reconcile(group, member, request.owned, now_ms, records, subscribed)
    wanted = request.is_full or member.assigned != before
    reply = HeartbeatReply(member.member_id, member.member_epoch, member.assigned if wanted else None)
    return reply, records


def _check_regexes(group: ConsumerGroup, request: Heartbeat) -> None:
    """Check that the group has room for the member's regular expression. Raises HeartbeatRefused."""
    if not request.subscribed_regex:
        return
    members = group.members.values()
    others = {member.subscribed_regex for member in members if member.member_id != request.member_id} - {None}
    if len(others) >= MAX_REGEXES and request.subscribed_regex not in others:
        text = f"The consumer group has {len(others)} regular expressions; at most {MAX_REGEXES} are allowed."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)


def _member(
    group: ConsumerGroup, request: Heartbeat, limits: ConsumerLimits, records: list[ConsumerRecord]
) -> ConsumerMember:
    """Return the member that sent the heartbeat, and create it when it joins. Raises HeartbeatRefused."""
    instance_id = request.instance_id
    known = group.members.get(request.member_id)
    if instance_id is not None:
        static_id = group.static_members.get(instance_id)
        static = None if static_id is None else group.members[static_id]
        if request.member_epoch != JOINING:
            if static is None:
                raise HeartbeatRefused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
            _check_instance(static, request)
        elif static is not None and static.member_id != request.member_id:
            if static.member_epoch != LEAVING_FOR_A_WHILE and static.classic is None:
                text = f"Instance id {instance_id} is still in use by member {static.member_id}."
                raise HeartbeatRefused(ErrorCode.unreleased_instance_id, text)
            return replace_static(group, static, request.member_id, records)
        elif static is not None:
            return static
    if known is not None:
        _check_epoch(known, request)
        return known
    if request.member_epoch != JOINING:
        text = f"Member {request.member_id} is not a member of group {group.group_id}."
        raise HeartbeatRefused(ErrorCode.unknown_member_id, text)
    if len(group.members) >= limits.max_size:
        text = f"The consumer group has reached its maximum capacity of {limits.max_size} members."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
    member = group.members[request.member_id] = ConsumerMember(request.member_id, instance_id)
    if instance_id is not None:
        group.static_members[instance_id] = request.member_id
    return member


def _check_instance(static: ConsumerMember, request: Heartbeat) -> None:
    if static.member_id != request.member_id:
        raise HeartbeatRefused(
            ErrorCode.fenced_instance_id,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{static.member_id}.",
        )


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Accept the member's epoch. Raises HeartbeatRefused.

    The previous epoch is accepted as a lost answer when the member owns no more than that answer left it. A member that
    joins again owns nothing, whatever its epoch was.
    """
    epoch = request.member_epoch
    if epoch == JOINING:
        return
    if epoch > member.member_epoch:
        text = f"The member has a greater member epoch ({epoch}) than the one known ({member.member_epoch})."
        raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)
    if epoch < member.member_epoch:
        is_lost_answer = (
            epoch == member.previous_member_epoch
            and request.owned is not None
            and request.owned <= member.assigned
        )
        if not is_lost_answer:
            text = (
                f"The member has a smaller member epoch ({epoch}) than the one known ({member.member_epoch})."
            )
            raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)


def replace_static(
    group: ConsumerGroup, static: ConsumerMember, member_id: str, records: list[ConsumerRecord]
) -> ConsumerMember:
    """Move a static member that returned to its new member id; the member keeps its partitions and target."""
    records += group.removal_records(static.member_id)
    target = group.targets.get(static.member_id, NOWHERE)
    assigned = static.assigned
    epochs = {place: static.assignment_epochs[place] for place in assigned}
    value = static.value()
    group.forget(static.member_id)
    member = group.members[member_id] = ConsumerMember(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.subscribed_names,
        value.subscribed_regex,
        value.rebalance_timeout_ms,
        value.server_assignor,
        assigned=assigned,
        assignment_epochs=epochs,
    )
    group.static_members[value.instance_id or ""] = member_id
    group.targets[member_id] = target
    records.append(MemberRecord(group.group_id, member.member_id, member.value()))
    records.append(TargetRecord(group.group_id, member.member_id, target))
    return member


def _update_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    request: Heartbeat,
    records: list[ConsumerRecord],
    *,
    is_new: bool,
) -> bool:
    """Store what the request says about the member; return whether the group's subscriptions changed."""
    before = member.value()
    if request.instance_id is not None:
        group.name_instance(member, request.instance_id)
    member.classic, member.join_deadline_ms, member.sync_deadline_ms = None, NEVER, NEVER
    member.client_id, member.client_host = request.client_id, request.client_host
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        member.server_assignor = request.server_assignor
    if request.subscribed_names is not None:
        member.subscribed_names = tuple(sorted(set(request.subscribed_names)))
    if request.subscribed_regex is not None:
        member.subscribed_regex = request.subscribed_regex or None
    after = member.value()
    if after != before or is_new:
        records.append(MemberRecord(group.group_id, member.member_id, after))
    return (after.subscribed_names, after.subscribed_regex) != (
        before.subscribed_names,
        before.subscribed_regex,
    )


# --- reconciliation


def reconcile(
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: frozenset[Place] | None,
    now_ms: int,
    records: list[ConsumerRecord],
    subscribed: frozenset[uuid.UUID] | None = None,
) -> None:
    """Move a member one step towards its target.

    `subscribed` are the member's topics, given when its subscription may be newer than its target. The member gets and
    keeps no partition of another topic.
    """
    before = member.current()
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is not None and not owned & member.pending_revocation:
            _step(group, member, owned, subscribed)
        elif subscribed is not None:
            _revoke_unsubscribed(member, owned, subscribed)
    elif not group.is_reconciled(member):
        _step(group, member, owned, subscribed)
    elif subscribed is not None:
        _revoke_unsubscribed(member, owned, subscribed)
    if member.current() == before:
        return
    records.append(CurrentRecord(group.group_id, member.member_id, member.current()))
    member.set_revocation_deadline(now_ms)


def topics_of(member: ConsumerMember, topics: Topics) -> frozenset[uuid.UUID]:
    """Return the ids of the topics that a member subscribes to by name."""
    described = map(topics.describe, member.subscribed_names)
    return frozenset(topic[0] for topic in described if topic is not None)


def _unsubscribed(
    member: ConsumerMember, places: frozenset[Place], subscribed: frozenset[uuid.UUID] | None
) -> frozenset[Place]:
    """Return the partitions of topics that a member no longer subscribes to.

    A member with a regular expression keeps its partitions, because the expression may match any topic.
    """
    if subscribed is None or member.subscribed_regex is not None:
        return NOWHERE
    return frozenset(place for place in places if place[0] not in subscribed)


def _revoke_unsubscribed(
    member: ConsumerMember, owned: frozenset[Place] | None, subscribed: frozenset[uuid.UUID]
) -> None:
    """Make the member revoke the partitions of topics to which it no longer subscribes."""
    dropped = _unsubscribed(member, member.assigned, subscribed)
    if not dropped:
        return
    _set_epoch(member, member.member_epoch)
    member.assigned = member.assigned - dropped
    if owned is None or owned & dropped or member.state is MemberState.UNREVOKED_PARTITIONS:
        member.state = MemberState.UNREVOKED_PARTITIONS
        member.pending_revocation = member.pending_revocation | dropped


def _step(
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: frozenset[Place] | None,
    subscribed: frozenset[uuid.UUID] | None,
) -> None:
    """Assign what the member can have now; a member that must revoke partitions first stays at its epoch."""
    target = group.targets.get(member.member_id, NOWHERE)
    target -= _unsubscribed(member, target, subscribed)
    epochs = {place: member.assignment_epochs[place] for place in member.assigned}
    kept = member.assigned & target
    to_revoke = member.assigned - target
    missing = target - kept
    if to_revoke and (owned is None or owned & to_revoke):
        member.state = MemberState.UNREVOKED_PARTITIONS
        _set_epoch(member, member.member_epoch)
        member.assigned, member.pending_revocation = kept, to_revoke
        member.assignment_epochs = epochs
        return
    free = missing - group.held_by_others(member) if missing else NOWHERE
    member.state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    _set_epoch(member, group.assignment_epoch)
    member.assigned, member.pending_revocation = kept | free, NOWHERE
    member.assignment_epochs = {place: epochs.get(place, group.assignment_epoch) for place in member.assigned}


def _set_epoch(member: ConsumerMember, member_epoch: int) -> None:
    member.previous_member_epoch = member.member_epoch
    member.member_epoch = member_epoch


# --- leaving


def leave(group: ConsumerGroup, request: Heartbeat) -> tuple[HeartbeatReply, list[ConsumerRecord]]:
    """Handle a heartbeat of a member that leaves, for good or for a while. Raises HeartbeatRefused."""
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        static_id = group.static_members.get(request.instance_id)
        if static_id is None:
            raise HeartbeatRefused(
                ErrorCode.unknown_member_id, f"Instance id {request.instance_id} is unknown."
            )
        member = group.members[static_id]
        _check_instance(member, request)
    if member is None:
        text = f"Member {request.member_id} is not a member of group {group.group_id}."
        raise HeartbeatRefused(ErrorCode.unknown_member_id, text)
    reply = HeartbeatReply(member.member_id, request.member_epoch, None)
    if request.member_epoch == LEAVING_FOR_A_WHILE:
        member.pending_revocation = NOWHERE
        member.assignment_epochs = dict.fromkeys(member.assigned, 0)
        member.state = MemberState.STABLE
        member.revocation_deadline_ms = NEVER
        member.member_epoch = LEAVING_FOR_A_WHILE
        return reply, [CurrentRecord(group.group_id, member.member_id, member.current())]
    assert request.member_epoch == LEAVING
    return reply, remove(group, [member])


def remove(group: ConsumerGroup, members: list[ConsumerMember]) -> list[ConsumerRecord]:
    """Remove members; the others get the freed partitions with their next heartbeats."""
    records: list[ConsumerRecord] = []
    for member in members:
        records += group.removal_records(member.member_id)
        group.forget(member.member_id)
    group.regexes.keep({member.subscribed_regex for member in group.members.values()})
    group.group_epoch += 1
    records.append(GroupEpochRecord(group.group_id, group.group_epoch))
    return records


# --- timeouts


def next_deadline_ms(group: ConsumerGroup) -> int:
    """Return the earliest time at which a member times out, so that `expire` must run."""
    return min((member.deadline_ms for member in group.members.values()), default=NEVER)


def expire(group: ConsumerGroup, now_ms: int) -> list[ConsumerRecord]:
    """Remove members whose session timed out, and those that did not revoke, join or sync in time.

    One call removes at most MAX_EXPIRED_AT_ONCE members; the next call removes the rest.
    """
    due = [member for member in group.members.values() if member.deadline_ms <= now_ms]
    return remove(group, due[:MAX_EXPIRED_AT_ONCE]) if due else []
