"""Members of a consumer group that still speak the classic protocol (KIP-848, online migration).

The coordinator assigns partitions to these members too. JoinGroup is answered at once and never names a
leader. SyncGroup returns the partitions that the member has by now. The answer to a heartbeat makes the
member join again when it gets further partitions, or must revoke some.

    classic protocol      consumer group
    generation_id         member epoch
    owned partitions      the partitions not revoked yet; none if a client revokes all before it joins

Source: Kafka's `GroupMetadataManager.classicGroup*ToConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import GroupError
from seqgate.gateway.coordinator.group.classic_rebalance import Join
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    MemberSubscription,
    encode_assignment,
    read_subscription,
)
from seqgate.gateway.coordinator.group.consumer_group import (
    NOWHERE,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    MemberValue,
)
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    ConsumerLimits,
    describe,
    reconcile,
    renew_target,
    replace_static,
)
from seqgate.gateway.coordinator.group.events import JoinReply, SyncReply
from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.places import Place, Topics, ids_of, places_of
from seqgate.gateway.coordinator.rows import RowRecord

# --- joining a group


def join(
    group: ConsumerGroup, request: Join, topics: Topics, limits: ConsumerLimits, now_ms: int
) -> tuple[JoinReply, list[RowRecord]]:
    """Handle a JoinGroup of a classic member to a consumer group. Raises GroupError."""
    instance_id = request.group_instance_id
    member_id = request.member_id or request.fresh_member_id
    is_known = member_id in group.members or instance_id in group.static_members
    if not is_known and len(group.members) >= limits.max_size:
        raise GroupError(ErrorCode.group_max_size_reached)
    if not _supports(group, request):
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    if not request.member_id and instance_id is None and request.requires_known_member_id:
        return JoinReply(error_code=ErrorCode.member_id_required, member_id=member_id), []
    subscription = read_subscription(request.protocols[0][1])
    if subscription is None:
        raise GroupError(ErrorCode.inconsistent_group_protocol)
    records: list[RowRecord] = []
    size = len(group.members)
    member = _member(group, request, member_id, records)
    is_new = len(group.members) > size
    changed = _update_member(group, member, request, subscription, records, is_new=is_new)
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


def _member(group: ConsumerGroup, request: Join, member_id: str, records: list[RowRecord]) -> ConsumerMember:
    """Return the member; create an unknown one, which replaces that of its instance id. Raises GroupError."""
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return _check_static(group, member_id, instance_id)
    static_id = None if instance_id is None else group.static_members.get(instance_id)
    if static_id is not None:
        return replace_static(group, group.members[static_id], member_id, records)
    known = group.members.get(member_id)
    if known is not None:
        return known
    member = group.members[member_id] = ConsumerMember(member_id)
    return member


def _update_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    request: Join,
    subscription: MemberSubscription,
    records: list[RowRecord],
    *,
    is_new: bool,
) -> bool:
    """Store what the request says about the member; return whether the group's subscriptions changed."""
    before, instance_id = member.value, request.group_instance_id
    value = MemberValue(
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
    member.revocation_deadline_ms = NEVER
    return describe(group, member, value, records, is_new=is_new) or is_new


# Requests of members of the group.


def _check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    static_id = group.static_members.get(instance_id)
    if static_id is None:
        raise GroupError(ErrorCode.unknown_member_id)
    if static_id != member_id:
        raise GroupError(ErrorCode.fenced_instance_id)
    return group.members[static_id]


def _check_member(group: ConsumerGroup, committer: Committer) -> tuple[ConsumerMember, ClassicMember]:
    """Return the classic member that sent the request in its present generation. Raises GroupError."""
    if committer.group_instance_id is None:
        found = group.members.get(committer.member_id)
    else:
        found = _check_static(group, committer.member_id, committer.group_instance_id)
    if found is None or found.value.classic is None:
        raise GroupError(ErrorCode.unknown_member_id)
    if committer.generation_id != found.member_epoch:
        raise GroupError(ErrorCode.illegal_generation)
    return found, found.value.classic


def _must_join_again(member: ConsumerMember, now_ms: int) -> None:
    """Give the member its rebalance timeout from now to join again, unless its deadline is set already."""
    if member.join_deadline_ms == NEVER:
        member.join_deadline_ms = now_ms + member.value.rebalance_timeout_ms


def sync(
    group: ConsumerGroup,
    committer: Committer,
    protocol: tuple[str | None, str | None],
    topics: Topics,
    now_ms: int,
) -> SyncReply:
    """Handle a SyncGroup: return the member's present assignment. Raises GroupError."""
    member, classic = _check_member(group, committer)
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
    assignment = assignment_of(member, metadata, member.current.assigned, topics)
    return SyncReply(protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment)


def assignment_of(member: ConsumerMember, metadata: bytes, places: Iterable[Place], topics: Topics) -> bytes:
    """Encode the places for the client, in the version of the subscription `metadata`."""
    names = {}
    for name in member.value.subscribed_names:
        topic = topics.describe(name)
        if topic is not None:
            names[topic[0]] = name
    partitions: dict[str, list[int]] = {}
    for topic_id, partition in places:
        if topic_id in names:
            partitions.setdefault(names[topic_id], []).append(partition)
    subscription = read_subscription(metadata)
    return encode_assignment(0 if subscription is None else subscription.version, partitions)


def heartbeat(group: ConsumerGroup, committer: Committer, now_ms: int) -> ErrorCode:
    """Handle a Heartbeat; REBALANCE_IN_PROGRESS makes the member join again. Raises GroupError."""
    member, classic = _check_member(group, committer)
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


def leave(
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
            member = _leaving(group, member_id, instance_id)
        except GroupError as error:
            errors.append(error.error_code)
        else:
            gone[member.member_id] = None
            errors.append(ErrorCode.none)
    return errors, group.remove(gone) if gone else []


def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is not None:
        return _check_static(group, member_id or group.static_members.get(instance_id, ""), instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise GroupError(ErrorCode.unknown_member_id)
    return member
