"""ConsumerGroupHeartbeat: joining, staying, revoking partitions, getting new ones, leaving (KIP-848); and the
change of a group that has members to the other protocol.

    member_epoch    the member
    0               joins, or joins again without partitions
    n > 0           is at epoch n; the previous epoch means that an answer was lost, any other epoch is fenced
    −1              leaves
    −2              leaves and may return, because it is static

`Heartbeat` is the request, and `check` validates it. `consumer_heartbeat` finds, makes or converts the group,
which `heartbeat` and `leave` change; `renew_target` makes the target assignment of the group when
subscriptions or topics have changed. Source: Kafka's `GroupMetadataManager` (`consumerGroupHeartbeat`,
`maybeUpdateTargetAssignment`, `throwIfConsumerGroupHeartbeatRequestIsInvalid`), `CurrentAssignmentBuilder`,
`TargetAssignmentBuilder`, KIP-1263.

    classic group   ──► a member of the consumer protocol joins         ──► consumer group, classic members
    consumer group  ──► its last member of the consumer protocol leaves ──► classic group that rebalances

Classic members keep their member ids and assignments; the generation becomes the group epoch. Source: Kafka's
`GroupMetadataManager.convertToConsumerGroup` and `convertToClassicGroup`.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.coordinator.group.consumer_assignors import (
    ASSIGNORS,
    CONSUMER_PROTOCOL,
    EVERYTHING,
    Sight,
    Subscriber,
    assigned_partitions,
    read_subscription,
)
from seqgate.gateway.coordinator.group.consumer_group import (
    ASSIGNMENT,
    CURRENT,
    GROUP_EPOCH,
    MEMBER,
    NOWHERE,
    ROWS,
    TARGET,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    CurrentValue,
    MemberState,
    MemberValue,
)
from seqgate.gateway.coordinator.group.epoch_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    AssignmentEpoch,
    EpochGroup,
    HeartbeatRefused,
    M,
)
from seqgate.gateway.coordinator.group.events import Effects, JoinReply, SyncReply
from seqgate.gateway.coordinator.group.member_bytes import consumer_bytes
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.places import Place, Topics, ids_of, places_of
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.regular_expressions import pattern_of

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.shard import GroupShard

# --- the group of the request


def consumer_heartbeat(shard: GroupShard, request: Heartbeat, effects: Effects) -> HeartbeatReply:
    """Handle a valid heartbeat. A classic group becomes a consumer group and keeps its offsets, one with
    members only if the policy allows it; a group of another kind refuses it. Raises HeartbeatRefused.
    """
    group_id, is_joining = request.group_id, request.member_epoch == JOINING
    if is_joining:
        size_bytes = consumer_bytes(request.subscribed_names or ())
        held_bytes = shard.held_bytes(group_id, request.member_id, request.instance_id)
        shard.admit_member(size_bytes, effects.now_ms, held_bytes)
    group = shard.groups.get(group_id)
    if group is None:
        if is_joining and (group_id in shard.shares.groups or group_id in shard.streams.groups):
            raise _no_consumer_group(group_id)
        shard.check_room(group_id)
        refuse_unknown_group(shard.consumers.groups, request)
        reply = shard.consumers.leave_or_heartbeat(request, shard.topics, effects)
        if request.member_epoch == LEAVING:
            shard.classic.downgrade_and_rebalance(shard.consumers.groups[group_id], effects)
        return reply
    is_empty = group.state is GroupState.EMPTY
    if not is_joining or not (is_empty or _may_upgrade(group, shard.consumers.limits_of(group_id))):
        raise _no_consumer_group(group_id)
    if not group.is_simple:
        effects.records.append(GroupMetadataRecord(group_id, None))
    if not is_empty:
        converted = _upgraded(group, shard.topics, effects.now_ms)
        created = (converted.record_of(*key) for key in ROWS.stored_keys(converted))
        records = [record for record in created if record is not None]
        if not all(map(effects.fits, records)):
            text = f"A record of a member of group {group_id} is larger than a batch may be."
            raise HeartbeatRefused(ErrorCode.unknown_server_error, text)
        effects.records += records
        shard.consumers.groups[group_id] = converted
    try:
        reply = shard.consumers.leave_or_heartbeat(request, shard.topics, effects)
    except HeartbeatRefused:
        shard.consumers.groups.pop(group_id, None)
        raise
    _have_all_join_again(group, effects)
    del shard.groups[group_id]
    return reply


def _no_consumer_group(group_id: str) -> HeartbeatRefused:
    return HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")


def refuse_unknown_group(groups: Collection[str], request: Any, title: str = "Group") -> None:
    """Refuse the heartbeat of a member that does not join to a group that is unknown. Raises
    HeartbeatRefused.
    """
    if request.member_epoch != JOINING and request.group_id not in groups:
        raise HeartbeatRefused(ErrorCode.group_id_not_found, f"{title} {request.group_id} not found.")


# --- one heartbeat


def heartbeat(
    group: ConsumerGroup, request: Heartbeat, topics: Topics, limits: ConsumerLimits, now_ms: int
) -> tuple[HeartbeatReply, list[RowRecord]]:
    """Handle a valid heartbeat of a member that joins or stays. Raises HeartbeatRefused."""
    _check_regexes(group, request)
    records: list[RowRecord] = []
    member = _member(group, request, limits, records)
    before = member.current.assigned
    changed = _update_member(group, member, request, records)
    member.session_deadline_ms = now_ms + limits.session_timeout_ms
    renew_target(group, topics, records, limits, now_ms, request.sight, changed=changed)
    subscribed = ids_of(member.value.subscribed_names, topics) if changed or group.is_behind else None
    reconcile(group, member, request.owned, now_ms, records, subscribed)
    assigned = member.current.assigned
    wanted = request.is_full or assigned != before
    return HeartbeatReply(member.member_id, member.member_epoch, assigned if wanted else None), records


def _check_regexes(group: ConsumerGroup, request: Heartbeat) -> None:
    """Check that the group has room for the member's regular expression. Raises HeartbeatRefused."""
    if not request.subscribed_regex:
        return
    members = group.members.values()
    others = {member.value.subscribed_regex for member in members if member.member_id != request.member_id}
    others.discard(None)
    if len(others) >= MAX_REGEXES and request.subscribed_regex not in others:
        text = f"The consumer group has {len(others)} regular expressions; at most {MAX_REGEXES} are allowed."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)


def _member(
    group: ConsumerGroup, request: Heartbeat, limits: ConsumerLimits, records: list[RowRecord]
) -> ConsumerMember:
    """Return the member that sent the heartbeat, and create it when it joins. Raises HeartbeatRefused."""
    if request.member_epoch != JOINING:
        known = known_member(group, request)
        _check_epoch(known, request)
        return known
    instance_id = request.instance_id
    static = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
    if static is not None and static.member_id != request.member_id:
        if static.member_epoch != LEAVING_FOR_A_WHILE and not static.is_classic:
            text = f"Instance id {instance_id} is still in use by member {static.member_id}."
            raise HeartbeatRefused(ErrorCode.unreleased_instance_id, text)
        return replace_static(group, static, request.member_id, records)
    if request.member_id in group.members:
        # a member that joins again owns nothing, whatever its epoch was
        return group.members[request.member_id]
    if len(group.members) >= limits.max_size:
        text = f"The consumer group has reached its maximum capacity of {limits.max_size} members."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
    member = group.members[request.member_id] = ConsumerMember(request.member_id)
    return member


def known_member(group: EpochGroup[M, Any], request: Any) -> M:
    """Return the sender of a request that does not join. Raises HeartbeatRefused."""
    member_id = request.member_id
    if request.instance_id is None:
        if member_id not in group.members:
            raise unknown_member(group.group_id, member_id)
        return group.members[member_id]
    static_id = group.static_members.get(request.instance_id)
    if static_id is None:
        text = f"Instance id {request.instance_id} is unknown."
        raise HeartbeatRefused(ErrorCode.unknown_member_id, text)
    if static_id != member_id:
        text = (
            f"Static member {member_id} with instance id {request.instance_id} was fenced by member "
            f"{static_id}."
        )
        raise HeartbeatRefused(ErrorCode.fenced_instance_id, text)
    return group.members[static_id]


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Accept the member's epoch. The previous epoch is accepted as a lost answer when the member owns no more
    than that answer left it. Raises HeartbeatRefused.
    """
    epoch = request.member_epoch
    if epoch > member.member_epoch:
        text = f"The member has a greater member epoch ({epoch}) than the one known ({member.member_epoch})."
        raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)
    if epoch < member.member_epoch:
        is_lost_answer = (
            epoch == member.current.previous_member_epoch
            and request.owned is not None
            and request.owned <= member.current.assigned
        )
        if not is_lost_answer:
            text = (
                f"The member has a smaller member epoch ({epoch}) than the one known ({member.member_epoch})."
            )
            raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)


def replace_static(
    group: ConsumerGroup, static: ConsumerMember, member_id: str, records: list[RowRecord]
) -> ConsumerMember:
    """Move a static member that returned to its new member id; the member keeps its partitions and target."""
    records += ROWS.removal_records(group.group_id, static.member_id)
    target = group.targets.get(static.member_id, NOWHERE)
    assigned = static.current.assigned
    group.forget(static.member_id)
    current = CurrentValue(assigned=assigned, assignment_epochs=static.current.epochs_of(assigned))
    member = group.members[member_id] = ConsumerMember(member_id, current=current)
    group.take_of_member(MEMBER, member, static.value._replace(classic=None))
    group.targets[member_id] = target
    records.append(MEMBER.of(group.group_id, member.member_id, member.value))
    records.append(TARGET.of(group.group_id, member.member_id, target))
    return member


def _update_member(
    group: ConsumerGroup, member: ConsumerMember, request: Heartbeat, records: list[RowRecord]
) -> bool:
    """Store what the request says about the member; return whether the group's subscriptions changed, or the
    assignor that most members ask for.
    """
    before, names, regex = member.value, request.subscribed_names, request.subscribed_regex
    timeout_ms, wanted = request.rebalance_timeout_ms, request.server_assignor
    asks_for_other = wanted not in {None, before.server_assignor}
    assignor = group.assignor if asks_for_other else None
    member.join_deadline_ms = member.sync_deadline_ms = NEVER
    value = MemberValue(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.subscribed_names if names is None else tuple(sorted(set(names))),
        before.subscribed_regex if regex is None else regex or None,
        before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        before.server_assignor if wanted is None else wanted,
    )
    has_changed = describe(group, member, value, records)
    return has_changed or (asks_for_other and group.assignor != assignor)


def describe(
    group: ConsumerGroup, member: ConsumerMember, value: MemberValue, records: list[RowRecord]
) -> bool:
    """Write the member's description if it has changed, as that of every new member does, which has a
    rebalance timeout or is a classic one; return whether its subscription changed.
    """
    before = member.value
    if value != before:
        group.take_of_member(MEMBER, member, value)
        records.append(MEMBER.of(group.group_id, member.member_id, value))
    former = before.subscribed_names, before.subscribed_regex
    return (value.subscribed_names, value.subscribed_regex) != former


# --- reconciliation


def reconcile(
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: frozenset[Place] | None,
    now_ms: int,
    records: list[RowRecord],
    subscribed: frozenset[uuid.UUID] | None = None,
) -> None:
    """Move a member one step towards its target.

    `subscribed` are the member's topics, given when its subscription may be newer than its target. The member
    gets and keeps no partition of another topic.
    """
    before = member.current
    if before.state is MemberState.UNREVOKED_PARTITIONS:
        may_step = owned is not None and not owned & before.pending_revocation
    else:
        may_step = not member.is_reconciled_to(group.assignment_epoch)
    if may_step:
        _step(group, member, owned, subscribed)
    elif subscribed is not None:
        _revoke_unsubscribed(member, owned, subscribed)
    if member.current == before:
        return
    records.append(CURRENT.of(group.group_id, member.member_id, member.current))
    member.set_revocation_deadline(now_ms)


def _unsubscribed(
    member: ConsumerMember, places: frozenset[Place], subscribed: frozenset[uuid.UUID] | None
) -> frozenset[Place]:
    """Return the partitions of topics that a member no longer subscribes to. A member with a regular
    expression keeps its partitions, because the expression may match any topic.
    """
    if subscribed is None or member.value.subscribed_regex is not None:
        return NOWHERE
    return frozenset(place for place in places if place[0] not in subscribed)


def _revoke_unsubscribed(
    member: ConsumerMember, owned: frozenset[Place] | None, subscribed: frozenset[uuid.UUID]
) -> None:
    current = member.current
    dropped = _unsubscribed(member, current.assigned, subscribed)
    if not dropped:
        return
    state, pending = current.state, current.pending_revocation
    if owned is None or owned & dropped or state is MemberState.UNREVOKED_PARTITIONS:
        state, pending = MemberState.UNREVOKED_PARTITIONS, pending | dropped
    member.current = current._replace(
        previous_member_epoch=current.member_epoch,
        state=state,
        assigned=current.assigned - dropped,
        pending_revocation=pending,
    )


def _step(
    group: ConsumerGroup,
    member: ConsumerMember,
    owned: frozenset[Place] | None,
    subscribed: frozenset[uuid.UUID] | None,
) -> None:
    """Assign what the member can have now; a member that must revoke partitions first stays at its epoch."""
    epoch, own = member.member_epoch, member.current.assigned
    epochs = member.current.epochs_of(own)
    target = group.targets.get(member.member_id, NOWHERE)
    target -= _unsubscribed(member, target, subscribed)
    kept, to_revoke = own & target, own - target
    missing = target - kept
    if to_revoke and (owned is None or owned & to_revoke):
        state = MemberState.UNREVOKED_PARTITIONS
        member.current = CurrentValue(epoch, epoch, state, kept, to_revoke, epochs)
        return
    free = missing - group.held_by_others(member) if missing else NOWHERE
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    assigned, newest = kept | free, group.assignment_epoch
    epochs = {place: epochs.get(place, newest) for place in assigned}
    member.current = CurrentValue(newest, epoch, state, assigned, NOWHERE, epochs)


# --- leaving


def leave(group: ConsumerGroup, request: Heartbeat) -> tuple[HeartbeatReply, list[RowRecord]]:
    """Handle a heartbeat of a member that leaves, for good or for a while. Raises HeartbeatRefused."""
    member = known_member(group, request)
    reply = HeartbeatReply(member.member_id, request.member_epoch, None)
    if request.member_epoch == LEAVING_FOR_A_WHILE:
        member.current = member.current._replace(
            member_epoch=LEAVING_FOR_A_WHILE,
            state=MemberState.STABLE,
            pending_revocation=NOWHERE,
            assignment_epochs=dict.fromkeys(member.current.assigned, 0),
        )
        member.revocation_deadline_ms = NEVER
        return reply, [CURRENT.of(group.group_id, member.member_id, member.current)]
    assert request.member_epoch == LEAVING
    return reply, group.remove([member.member_id])


# --- the target


def renew_target(
    group: ConsumerGroup,
    topics: Topics,
    records: list[RowRecord],
    limits: ConsumerLimits,
    now_ms: int,
    sight: Sight,
    *,
    changed: bool,
) -> None:
    """Make a new target assignment when subscriptions `changed`, or when the subscribed topics or the
    members' rights changed.

    Within the assignment interval only the group epoch rises. The first heartbeat after the interval makes
    the target.
    """
    may_assign = group.may_assign(limits.assignment_interval_ms, now_ms)
    is_outdated = group.topics_changed or group.regexes.is_outdated(sight, now_ms)
    if not changed and not is_outdated and not (group.is_behind and may_assign):
        return
    found = (member.value.subscribed_regex for member in group.members.values())
    regexes = {regex for regex in found if regex}
    matching = group.regexes.resolve(
        regexes, lambda regex: _matches(regex, topics), sight, now_ms, afresh=is_outdated
    )
    subscribed, of_members = _subscriptions(group, topics, matching)
    if changed or (not group.is_behind and not group.has_assigned(subscribed)):
        group.group_epoch += 1
        records.append(GROUP_EPOCH.of(group.group_id, group.group_epoch))
    group.topics_seen = subscribed
    group.topics_changed = False
    if group.is_behind and may_assign:
        _make_target(group, dict(subscribed.values()), of_members, records, now_ms)


def _subscriptions(
    group: ConsumerGroup, topics: Topics, matching: Mapping[str, Collection[str]]
) -> tuple[dict[str, tuple[uuid.UUID, int]], dict[str, frozenset[uuid.UUID]]]:
    """Return the existing topics to which any member subscribes, and those of each member."""
    found: dict[str, tuple[uuid.UUID, int] | None] = {}
    of_members = {}
    for member_id, member in group.members.items():
        names = set(member.value.subscribed_names)
        if member.value.subscribed_regex:
            names.update(matching[member.value.subscribed_regex])
        found |= {name: topics.describe(name) for name in names if name not in found}
        described = (found[name] for name in names)
        of_members[member_id] = frozenset(topic[0] for topic in described if topic is not None)
    return {name: topic for name, topic in found.items() if topic is not None}, of_members


def _matches(regex: str, topics: Topics) -> list[str]:
    pattern = compiled(regex)
    return [name for name in topics.names() if pattern.fullmatch(name)]


def _make_target(
    group: ConsumerGroup,
    partitions: dict[uuid.UUID, int],
    subscriptions: dict[str, frozenset[uuid.UUID]],
    records: list[RowRecord],
    now_ms: int,
) -> None:
    """Assign partitions for the present group epoch; write records only for targets that change."""
    subscribers = {
        member_id: Subscriber(
            member.group_instance_id or member_id,
            subscriptions[member_id],
            group.targets.get(member_id, NOWHERE),
            is_static=member.group_instance_id is not None,
        )
        for member_id, member in group.members.items()
    }
    assignment = ASSIGNORS[group.assignor](subscribers, partitions)
    for member_id, places in assignment.items():
        if group.targets.get(member_id) != places:
            records.append(TARGET.of(group.group_id, member_id, places))
        group.targets[member_id] = places
    group.assignment = AssignmentEpoch(group.group_epoch, now_ms)
    records.append(ASSIGNMENT.of(group.group_id, group.assignment))


# --- from the classic protocol


def _may_upgrade(group: ClassicGroup, limits: ConsumerLimits) -> bool:
    """Return whether a classic group may take in a member of the consumer protocol."""
    return (
        limits.migration_policy.allows_upgrade
        and group.is_of_consumers
        and len(group.members) <= limits.max_size
    )


def _upgraded(group: ClassicGroup, topics: Topics, now_ms: int) -> ConsumerGroup:
    """Return the consumer group that a classic group becomes; the classic group is not changed. Raises
    HeartbeatRefused.

    Members that were never part of a generation are left out. The coordinator tells these members to join
    again, some of them without an id.
    """
    converted = ConsumerGroup(
        group.group_id, group_epoch=group.generation_id, assignment=AssignmentEpoch(group.generation_id)
    )
    settled = [member for member in group.members.values() if not member.is_new]
    protocol_name = group.select_protocol() if settled else ""
    for old in settled:
        member = _consumer_member(group, old, protocol_name, topics)
        member.session_deadline_ms = now_ms + old.session_timeout_ms
        converted.members[member.member_id] = member
        converted.targets[member.member_id] = member.current.assigned
        if member.group_instance_id is not None:
            converted.static_members[member.group_instance_id] = member.member_id
    names = {name for member in converted.members.values() for name in member.value.subscribed_names}
    described = {name: topics.describe(name) for name in names}
    # the classic leader's assignment stays until subscriptions or topics change
    converted.topics_seen = {name: topic for name, topic in described.items() if topic is not None}
    return converted


def _consumer_member(group: ClassicGroup, old: Member, protocol_name: str, topics: Topics) -> ConsumerMember:
    subscription = read_subscription(old.metadata(protocol_name))
    # a member that joined and never synced has no partitions
    assigned = assigned_partitions(old.assignment) if old.assignment else {}
    if subscription is None or assigned is None:
        text = (
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded "
            "consumer protocol is malformed."
        )
        raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
    partitions = ((name, partition) for name, indexes in assigned.items() for partition in indexes)
    places = places_of(partitions, topics)
    value = MemberValue(
        old.group_instance_id,
        subscription.rack_id,
        old.client_id,
        old.client_host,
        tuple(sorted(subscription.topics)),
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicMember(old.session_timeout_ms, old.protocols),
    )
    epoch = group.generation_id
    epochs = dict.fromkeys(places, epoch)
    current = CurrentValue(epoch, epoch, assigned=places, assignment_epochs=epochs)
    return ConsumerMember(old.member_id, value, current)


def _have_all_join_again(group: ClassicGroup, effects: Effects) -> None:
    """Make every member whose request waits for a classic rebalance join the new consumer group."""
    # Kafka answers JoinGroup and SyncGroup with REBALANCE_IN_PROGRESS; aiokafka treats that answer to a
    # JoinGroup as fatal.
    join_again, sync_again = ErrorCode.coordinator_load_in_progress, ErrorCode.rebalance_in_progress
    for member in group.members.values():
        member.answer_join(JoinReply(error_code=join_again, member_id=member.member_id), effects)
        member.answer_sync(SyncReply(error_code=sync_again), effects)


# --- to the classic protocol


def downgrade(shard: GroupShard, group: ConsumerGroup, effects: Effects) -> ClassicGroup | None:
    """Turn a consumer group with only classic members into a classic group, and return it; None where it has
    other members, or too many for one record, or where the policy does not allow it.
    """
    group_id = group.group_id
    may_downgrade = shard.consumers.limits_of(group_id).migration_policy.allows_downgrade
    is_of_classic = all(member.is_classic for member in group.members.values())
    if not (may_downgrade and is_of_classic and 0 < len(group.members) <= shard.limits.max_size):
        return None
    converted = _downgraded(group, shard.topics, effects.now_ms)
    record = GroupMetadataRecord(group_id, converted.metadata())
    if not effects.fits(record):
        return None
    shard.consumers.delete(group_id, effects)
    shard.groups[group_id] = converted
    effects.records.append(record)
    return converted


def _downgraded(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup:
    """Return the classic group that a consumer group of classic members becomes; each member is assigned its
    target.

    The generation is the newest epoch that any member knows, so that this member can commit before it joins
    again. Kafka uses the group epoch instead, which a member knows only if it has joined again since the last
    change.
    """
    converted = ClassicGroup(group.group_id, now_ms)
    converted.generation_id = max(member.member_epoch for member in group.members.values())
    converted.protocol_type = CONSUMER_PROTOCOL
    for member in group.members.values():
        value = member.value
        assert value.classic is not None
        old = converted.members[member.member_id] = Member(
            member.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            value.classic.session_timeout_ms,
            CONSUMER_PROTOCOL,
            value.classic.protocols,
        )
        old.restart_session(now_ms)
    converted.static_members = dict(group.static_members)
    converted.leader = next(iter(converted.members))
    converted.protocol_name = converted.select_protocol()
    for member in group.members.values():
        target: frozenset[Place] = group.targets.get(member.member_id, NOWHERE)
        old = converted.members[member.member_id]
        metadata = old.metadata(converted.protocol_name)
        old.assignment = member.encoded(target, metadata, topics)
    converted.subscribed_topics = converted.topics_of_members()
    converted.become(GroupState.STABLE, now_ms)
    return converted


# --- the request, its limits, and the answer

MAX_REGEX_CHARACTERS: Final = 1000
MAX_REGEXES: Final = 100
"""Different regular expressions of one group. A member with a further expression is refused
(GROUP_MAX_SIZE_REACHED), because all expressions are matched against all topics when topics change. Kafka has
no such limit.
"""
MAX_ID_BYTES: Final = 1024
"""Longest id accepted, far longer than any client needs; every record of a member repeats its ids."""
MAX_SUBSCRIPTION_BYTES: Final = 256 << 10
"""Longest subscription accepted: a member's record must fit into a batch of the log."""


class MigrationPolicy(enum.Enum):
    """The protocols to which a group with members may change (Kafka's ConsumerGroupMigrationPolicy): the
    setting `group.consumer.migration.policy`.
    """

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


class ConsumerLimits(msgspec.Struct, frozen=True):
    """The limits of a consumer group: the settings `group.consumer.*` in `docs/configuration.md`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 0
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class Heartbeat(msgspec.Struct, frozen=True):
    """A heartbeat request. A field that is None has not changed since the member's last request."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed_names: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: frozenset[Place] | None
    sight: Sight = EVERYTHING
    """The topics that the regular expressions of the group may match for this client."""

    @property
    def is_full(self) -> bool:
        """Whether the request is complete, as a member sends it when it joins or lost an answer."""
        has_subscription = self.subscribed_names is not None or self.subscribed_regex is not None
        return self.member_epoch == JOINING or (
            self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        )


class HeartbeatReply(msgspec.Struct, frozen=True):
    """The answer to a heartbeat; `assignment` is None when the member has it already."""

    member_id: str
    member_epoch: int
    assignment: frozenset[Place] | None


def unknown_member(group_id: str, member_id: str) -> HeartbeatRefused:
    """Return the error for a member id that is not in the group."""
    text = f"Member {member_id} is not a member of group {group_id}."
    return HeartbeatRefused(ErrorCode.unknown_member_id, text)


def check(request: Heartbeat) -> None:
    """Validate the request. Raises HeartbeatRefused."""
    epoch = request.member_epoch
    invalid = ErrorCode.invalid_request
    texts = {
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
        "MemberId": request.member_id,
    }
    refuse_blank(texts)
    refuse_long(texts)
    refuse_long_subscription(request.subscribed_names)
    if epoch < LEAVING_FOR_A_WHILE:
        raise HeartbeatRefused(invalid, f"MemberEpoch is invalid: {epoch}.")
    if epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        raise HeartbeatRefused(invalid, "InstanceId can't be null.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise HeartbeatRefused(invalid, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise HeartbeatRefused(invalid, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_names is None and request.subscribed_regex is None:
            text = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise HeartbeatRefused(invalid, text)
    assignor = request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        raise HeartbeatRefused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    if request.subscribed_regex:
        compiled(request.subscribed_regex)


def refuse_blank(texts: Mapping[str, str | None]) -> None:
    """Refuse the first text, by the name of its field, that is empty or blank. Raises HeartbeatRefused."""
    for what, text in texts.items():
        if text is not None and not text.strip():
            raise HeartbeatRefused(ErrorCode.invalid_request, f"{what} can't be empty.")


def refuse_long(texts: Mapping[str, str | None]) -> None:
    """Refuse the first text, by the name of its field, that is far longer than any client needs: each record
    of a member must fit into a batch. Raises HeartbeatRefused.
    """
    for what, text in texts.items():
        if text is not None and len(text.encode()) > MAX_ID_BYTES:
            problem = f"{what} can't be longer than {MAX_ID_BYTES} bytes."
            raise HeartbeatRefused(ErrorCode.invalid_request, problem)


def refuse_long_subscription(names: Iterable[str] | None) -> None:
    """Refuse a subscription with more names than fit into a record. Raises HeartbeatRefused."""
    if sum(len(name.encode()) for name in names or ()) > MAX_SUBSCRIPTION_BYTES:
        problem = f"SubscribedTopicNames can't be longer than {MAX_SUBSCRIPTION_BYTES} bytes."
        raise HeartbeatRefused(ErrorCode.invalid_request, problem)


def compiled(pattern: str) -> Any:
    """Return a regular expression that matches in linear time. Raises HeartbeatRefused."""
    complaint = f"it has {len(pattern)} characters; at most {MAX_REGEX_CHARACTERS} are allowed"
    if len(pattern) <= MAX_REGEX_CHARACTERS:
        try:
            return pattern_of(pattern)
        except ValueError as error:
            complaint = str(error)
    raise HeartbeatRefused(
        ErrorCode.invalid_regular_expression,
        f"SubscribedTopicRegex `{pattern[:100]}` is not a valid regular expression: {complaint}.",
    )
