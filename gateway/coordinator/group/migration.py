"""Changes the protocol of a group that has members (KIP-848, online migration).

    classic group   ──► a member of the consumer protocol joins         ──► consumer group, classic members
    consumer group  ──► its last member of the consumer protocol leaves ──► classic group that rebalances

Classic members keep their member ids and assignments; the generation becomes the group epoch. Source: Kafka's
`GroupMetadataManager.convertToConsumerGroup` and `convertToClassicGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState, Member
from seqgate.gateway.coordinator.group.consumer_assignors import (
    CONSUMER_PROTOCOL,
    assigned_partitions,
    encode_assignment,
    read_subscription,
)
from seqgate.gateway.coordinator.group.consumer_group import (
    NOWHERE,
    ROWS,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    CurrentValue,
    MemberValue,
)
from seqgate.gateway.coordinator.group.consumer_heartbeat import ConsumerLimits, HeartbeatRefused
from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch
from seqgate.gateway.coordinator.group.events import Effects, JoinReply, SyncReply
from seqgate.gateway.coordinator.places import Place, Topics, places_of
from seqgate.gateway.coordinator.rows import RowRecord

# --- to the consumer protocol


def may_upgrade(group: ClassicGroup, limits: ConsumerLimits) -> bool:
    """Return whether a classic group may take in a member of the consumer protocol."""
    return (
        limits.migration_policy.allows_upgrade
        and group.is_of_consumers
        and len(group.members) <= limits.max_size
    )


def upgraded(group: ClassicGroup, topics: Topics, now_ms: int) -> ConsumerGroup:
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


def creation_records(group: ConsumerGroup) -> list[RowRecord]:
    records = (group.record_of(kind, member_id) for kind, member_id in ROWS.stored_keys(group))
    return [record for record in records if record is not None]


def have_all_join_again(group: ClassicGroup, effects: Effects) -> None:
    """Make every member whose request waits for a classic rebalance join the new consumer group."""
    # Kafka answers JoinGroup and SyncGroup with REBALANCE_IN_PROGRESS; aiokafka treats that answer to a
    # JoinGroup as fatal.
    join_again, sync_again = ErrorCode.coordinator_load_in_progress, ErrorCode.rebalance_in_progress
    for member in group.members.values():
        group.answer_join(member, JoinReply(error_code=join_again, member_id=member.member_id), effects)
        group.answer_sync(member, SyncReply(error_code=sync_again), effects)


# --- to the classic protocol


def may_downgrade(group: ConsumerGroup, limits: ConsumerLimits, max_classic_size: int) -> bool:
    """Return whether a consumer group may become a classic one: only classic members, and not too many."""
    return (
        limits.migration_policy.allows_downgrade
        and 0 < len(group.members) <= max_classic_size
        and all(member.is_classic for member in group.members.values())
    )


def downgraded(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup:
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
        old.assignment = assignment_of(member, metadata, target, topics)
    converted.subscribed_topics = converted.topics_of_members()
    converted.become(GroupState.STABLE, now_ms)
    return converted


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
