"""The target assignment of a consumer group: when it is made, and from which topics and members.

Source: Kafka's `GroupMetadataManager.maybeUpdateTargetAssignment`, `TargetAssignmentBuilder`, KIP-1263.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.coordinator.group.consumer_assignors import ASSIGNORS, Subscriber
from gateway.coordinator.group.consumer_group import NOWHERE, ConsumerGroup
from gateway.coordinator.group.consumer_records import (
    AssignmentEpochRecord,
    ConsumerRecord,
    GroupEpochRecord,
    TargetRecord,
)
from gateway.coordinator.group.consumer_request import ConsumerLimits, Topics, compiled, interval_is_over
from gateway.coordinator.group.regex_topics import Sight


def renew_target(
    group: ConsumerGroup,
    topics: Topics,
    records: list[ConsumerRecord],
    limits: ConsumerLimits,
    now_ms: int,
    sight: Sight,
    *,
    changed: bool,
) -> None:
    """Make a new target assignment when subscriptions `changed`, or when the subscribed topics or the
    members' rights changed.

    Within the assignment interval only the group epoch rises. The first heartbeat after the interval makes the target.
    """
    may_assign = interval_is_over(group.assigned_at_ms, limits.assignment_interval_ms, now_ms)
    is_outdated = group.topics_changed or group.regexes.is_outdated(sight, now_ms)
    if not changed and not is_outdated and not (group.is_behind and may_assign):
        return
    regexes = {member.subscribed_regex for member in group.members.values() if member.subscribed_regex}
    matching = group.regexes.resolve(
        regexes, lambda regex: _matches(regex, topics), sight, now_ms, afresh=is_outdated
    )
    subscriptions = _subscriptions(group, topics, matching)
    if changed or (not group.is_behind and not group.has_assigned(subscriptions.topics)):
        group.group_epoch += 1
        records.append(GroupEpochRecord(group.group_id, group.group_epoch))
    group.topics_seen = subscriptions.topics
    group.topics_changed = False
    if group.is_behind and may_assign:
        _make_target(group, subscriptions, records, now_ms)


@dataclass(frozen=True, slots=True)
class _Subscriptions:
    """The existing topics to which any member subscribes, and the topics to which each member subscribes."""

    topics: dict[str, tuple[uuid.UUID, int]]
    of_members: dict[str, frozenset[uuid.UUID]]


def _subscriptions(
    group: ConsumerGroup, topics: Topics, matching: Mapping[str, Collection[str]]
) -> _Subscriptions:
    found: dict[str, tuple[uuid.UUID, int] | None] = {}
    of_members = {}
    for member_id, member in group.members.items():
        names = set(member.subscribed_names)
        if member.subscribed_regex:
            names.update(matching[member.subscribed_regex])
        found |= {name: topics.describe(name) for name in names if name not in found}
        described = (found[name] for name in names)
        of_members[member_id] = frozenset(topic[0] for topic in described if topic is not None)
    return _Subscriptions({name: topic for name, topic in found.items() if topic is not None}, of_members)


def _matches(regex: str, topics: Topics) -> list[str]:
    pattern = compiled(regex)
    return [name for name in topics.names() if pattern.fullmatch(name)]


def _make_target(
    group: ConsumerGroup, subscriptions: _Subscriptions, records: list[ConsumerRecord], now_ms: int
) -> None:
    """Assign partitions for the present group epoch; write records only for targets that change."""
    partitions = dict(subscriptions.topics.values())
    subscribers = {
        member_id: Subscriber(
            member.instance_id or member_id,
            subscriptions.of_members[member_id],
            group.targets.get(member_id, NOWHERE),
        )
        for member_id, member in group.members.items()
    }
    assignment = ASSIGNORS[group.preferred_assignor](subscribers, partitions)
    for member_id, places in assignment.items():
        if group.targets.get(member_id) != places:
            records.append(TargetRecord(group.group_id, member_id, places))
        group.targets[member_id] = places
    group.assignment_epoch, group.assigned_at_ms = group.group_epoch, now_ms
    records.append(AssignmentEpochRecord(group.group_id, group.assignment_epoch, now_ms))
