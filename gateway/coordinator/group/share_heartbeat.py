"""ShareGroupHeartbeat: joining, staying, getting partitions, leaving (KIP-932).

    member_epoch    the member
    0               joins, or joins again and gets its whole assignment
    n > 0           is at epoch n; the previous epoch means that an answer was lost, any other epoch is fenced
    −1              leaves

Source: Kafka's `GroupMetadataManager.shareGroupHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    HeartbeatReply,
    known_member,
    refuse_blank,
    refuse_long,
    refuse_long_subscription,
    refuse_unknown_group,
    unknown_member,
)
from seqgate.gateway.coordinator.group.epoch_group import JOINING, LEAVING, AssignmentEpoch, HeartbeatRefused
from seqgate.gateway.coordinator.group.share_group import (
    ASSIGNMENT,
    CURRENT,
    GROUP_EPOCH,
    MEMBER,
    NOWHERE,
    TARGET,
    ShareCurrentValue,
    ShareGroup,
    ShareMember,
    ShareMemberValue,
    assign,
)
from seqgate.gateway.coordinator.places import Place, Topics, ids_of
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.share.records import MAX_GROUP_ID_BYTES

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.events import Effects
    from seqgate.gateway.coordinator.group.shard import GroupShard

MAX_MEMBER_ID_LENGTH: Final = 36


class ShareGroupLimits(msgspec.Struct, frozen=True):
    """The limits of a share group: the settings `group.share.*` in `docs/configuration.md`."""

    session_timeout_ms: int = 45_000
    max_size: int = 200
    assignment_interval_ms: int = 0


class ShareHeartbeat(msgspec.Struct, frozen=True):
    """A heartbeat request. A field that is None has not changed since the member's last request."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...] | None
    instance_id: ClassVar[None] = None
    """A share group has no static members."""


def check(request: ShareHeartbeat) -> None:
    """Validate the request. Raises HeartbeatRefused."""
    invalid = ErrorCode.invalid_request
    names = request.subscribed_names
    refuse_blank({"GroupId": request.group_id})
    if len(request.group_id.encode()) > MAX_GROUP_ID_BYTES:
        raise HeartbeatRefused(
            ErrorCode.invalid_group_id, f"GroupId can't be longer than {MAX_GROUP_ID_BYTES} bytes."
        )
    refuse_blank({"RackId": request.rack_id})
    check_member_id(request)
    if request.member_epoch < LEAVING:
        raise HeartbeatRefused(invalid, "MemberEpoch is invalid.")
    if request.member_epoch == JOINING and not names:
        raise HeartbeatRefused(invalid, "SubscribedTopicNames must be set in first request.")
    refuse_long({"RackId": request.rack_id})
    refuse_long_subscription(names)


def check_member_id(request: ShareHeartbeat) -> None:
    """Validate the member id, which Kafka does before it validates anything else. Raises HeartbeatRefused."""
    refuse_blank({"MemberId": request.member_id})
    if len(request.member_id) > MAX_MEMBER_ID_LENGTH:
        text = f"MemberId can't be longer than {MAX_MEMBER_ID_LENGTH} characters."
        raise HeartbeatRefused(ErrorCode.invalid_request, text)


class _Change:
    """The changes of one operation to a group; each record is replayed as soon as it is written."""

    def __init__(self, group: ShareGroup, limits: ShareGroupLimits, now_ms: int) -> None:
        self.group = group
        self.records: list[RowRecord] = []
        self.now_ms = now_ms
        self.limits = limits

    def write(self, *records: RowRecord) -> None:
        """Replay the records and collect them."""
        for record in records:
            self.group.replay(record, self.now_ms, self.limits.session_timeout_ms)
            self.records.append(record)


def share_heartbeat(
    shard: GroupShard, request: ShareHeartbeat, effects: Effects, has_room: Callable[[], bool]
) -> HeartbeatReply:
    """Handle a valid heartbeat; a group of another kind refuses it. `has_room` returns whether the gateway
    may hold one more share group. Raises HeartbeatRefused.
    """
    group_id, groups = request.group_id, shard.shares.groups
    if request.member_epoch == JOINING and group_id not in groups and not has_room():
        text = "This gateway holds no more share groups."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
    if shard.is_read_alone(group_id):
        raise HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
    refuse_unknown_group(groups, request)
    return shard.shares.leave_or_heartbeat(request, shard.topics, effects)


def heartbeat(
    group: ShareGroup, request: ShareHeartbeat, topics: Topics, limits: ShareGroupLimits, now_ms: int
) -> tuple[HeartbeatReply, list[RowRecord]]:
    """Handle a valid heartbeat of a member that joins or stays. Raises HeartbeatRefused."""
    _check_member(group, request, limits)
    change = _Change(group, limits, now_ms)
    has_changed = _update_member(change, request)
    _renew_targets(change, topics, group.group_epoch + has_changed)
    member = group.members[request.member_id]
    target = _target(group, member, topics)
    is_full = request.member_epoch == JOINING or request.subscribed_names is not None
    must_send = is_full or member.current.assigned != target
    epoch, before = group.assignment_epoch, member.member_epoch
    if before != epoch or member.current.assigned != target:
        previous = member.current.previous_member_epoch if before == epoch else before
        current = ShareCurrentValue(epoch, previous, target)
        change.write(CURRENT.of(group.group_id, member.member_id, current))
    member.session_deadline_ms = now_ms + limits.session_timeout_ms
    return HeartbeatReply(member.member_id, epoch, target if must_send else None), change.records


def _check_member(group: ShareGroup, request: ShareHeartbeat, limits: ShareGroupLimits) -> None:
    member = group.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOINING:
            raise unknown_member(group.group_id, request.member_id)
        if len(group.members) >= limits.max_size:
            text = f"The share group has reached its maximum capacity of {limits.max_size} members."
            raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
    # a member at the previous epoch did not get the answer with the newer one
    elif request.member_epoch not in {JOINING, member.current.previous_member_epoch, member.member_epoch}:
        text = f"The member's epoch is {member.member_epoch}, not {request.member_epoch}."
        raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)


def _update_member(change: _Change, request: ShareHeartbeat) -> bool:
    """Store what the request says about the member; return whether the targets may have to change."""
    group = change.group
    member = group.members.get(request.member_id)
    before = None if member is None else member.value
    rack_id, names = request.rack_id, request.subscribed_names
    value = ShareMemberValue(
        rack_id or (None if before is None else before.rack_id),
        request.client_id,
        request.client_host,
        (() if before is None else before.subscribed_names) if names is None else tuple(sorted(set(names))),
    )
    if value == before:
        return False
    change.write(MEMBER.of(group.group_id, request.member_id, value))
    return before is None or value.subscribed_names != before.subscribed_names


def _renew_targets(change: _Change, topics: Topics, group_epoch: int) -> None:
    """Make the targets follow the members and their topics; this may raise the epoch further.

    Within the assignment interval only the epoch rises. The first heartbeat after the interval makes the
    targets.

    The group's first partitions, and any later ones, raise the epoch once more when they are begun. Kafka
    begins partitions in the background and assigns them from the next heartbeat on; Seqgate does both at
    once.
    """
    group = change.group
    asked = {name for member in group.members.values() for name in member.value.subscribed_names}
    found = {name: described for name in asked if (described := topics.describe(name)) is not None}
    places = frozenset((topic_id, index) for topic_id, count in found.values() for index in range(count))
    is_explained = group_epoch > group.assignment_epoch
    if not is_explained and not group.has_assigned(places):
        group_epoch += 1
    group.places_seen = places
    if not places <= group.begun:
        names = {topic_id: name for name, (topic_id, _) in found.items()}
        change.write(group.begun_record(group.begun | places, names))
        group_epoch += 1
    if group_epoch != group.group_epoch:
        change.write(GROUP_EPOCH.of(group.group_id, group_epoch))
    may_assign = group.may_assign(change.limits.assignment_interval_ms, change.now_ms)
    if group.assignment_epoch == group_epoch or not may_assign:
        return
    subscriptions = {
        member_id: frozenset(found[name][0] for name in member.value.subscribed_names if name in found)
        for member_id, member in group.members.items()
    }
    for member_id, target in assign(subscriptions, places, group.targets).items():
        if target != group.targets.get(member_id):
            change.write(TARGET.of(group.group_id, member_id, target))
    change.write(ASSIGNMENT.of(group.group_id, AssignmentEpoch(group_epoch, change.now_ms)))


def _target(group: ShareGroup, member: ShareMember, topics: Topics) -> frozenset[Place]:
    """Return the partitions that a member shall read. With a target older than the group epoch, topics to
    which the member no longer subscribes are left out.
    """
    target = group.targets.get(member.member_id, NOWHERE)
    if group.group_epoch == group.assignment_epoch:
        return target
    subscribed = ids_of(member.value.subscribed_names, topics)
    return frozenset(place for place in target if place[0] in subscribed)


def leave(group: ShareGroup, request: ShareHeartbeat) -> tuple[HeartbeatReply, list[RowRecord]]:
    """Remove a member that leaves. Raises HeartbeatRefused."""
    member = known_member(group, request)
    return HeartbeatReply(member.member_id, LEAVING, None), group.remove([member.member_id])
