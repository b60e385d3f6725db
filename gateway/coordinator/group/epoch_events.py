"""Compares a consumer, share or streams group before and after an operation, and returns the events for the log.

An operation on one member compares that member only, so that a heartbeat costs no more in a large group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from gateway.coordinator.group.events import (
    SESSION_TIMED_OUT,
    EpochRaised,
    Event,
    MemberJoined,
    MemberLeft,
    MemberRemoved,
    MemberReplaced,
    Who,
    client_says,
)
from gateway.coordinator.group.share_group import ShareGroup, ShareMember
from gateway.coordinator.streams.group import StreamsGroup, StreamsMember

_Group: TypeAlias = ConsumerGroup | ShareGroup | StreamsGroup
_Member: TypeAlias = ConsumerMember | ShareMember | StreamsMember

NOT_RELEASED: Final = "it did not revoke partitions, join or sync in its rebalance timeout"
NOT_REVOKED: Final = "it did not revoke tasks in its rebalance timeout"


def _who(member: _Member) -> Who:
    if isinstance(member, ConsumerMember):
        return Who(member.member_id, member.instance_id, member.client_id, member.client_host)
    return Who(member.member_id, None, member.value.client_id, member.value.client_host)


class Before:
    """The fields of a group before an operation on one member, or on several."""

    __slots__ = ("_epoch", "_group", "_is_known", "_member_id", "_static_id")

    def __init__(self, group: _Group, member_id: str, instance_id: str | None = None) -> None:
        self._group = group
        self._member_id = member_id
        self._epoch = group.group_epoch
        self._is_known = member_id in group.members
        self._static_id = None
        if isinstance(group, ConsumerGroup):
            self._static_id = None if instance_id is None else group.static_members.get(instance_id)

    def heartbeat_events(self, *, subscription_changed: bool, reason_given: str | None = None) -> list[Event]:
        """Return what happened while the member joined or sent a heartbeat; `reason_given` is the client's."""
        group, member_id = self._group, self._member_id
        if self._is_known and group.group_epoch == self._epoch:
            return []
        events: list[Event] = []
        is_streams = isinstance(group, StreamsGroup)
        reason = (
            "topics of the topology or configurations changed" if is_streams else "subscribed topics changed"
        )
        member = group.members.get(member_id)
        if not self._is_known and member is not None:
            if self._static_id is None:
                events.append(MemberJoined(group.group_id, _who(member)))
                reason = f"member {member_id} joined"
            else:
                events.append(MemberReplaced(group.group_id, self._static_id, _who(member)))
                reason = f"static member {member_id} returned with another subscription"
        elif subscription_changed:
            reason = f"member {member_id} changed its {'description' if is_streams else 'subscription'}"
        return events + self._epoch_events(reason + client_says(reason_given))

    def leave_events(self, left: Iterable[_Member], reason_given: str | None = None) -> list[Event]:
        """Return the events of the members that left; `reason_given` is the client's reason."""
        gone = [member for member in left if member.member_id not in self._group.members]
        events: list[Event] = [MemberLeft(self._group.group_id, _who(member)) for member in gone]
        return events + self._epoch_events(_subject(gone, "left") + client_says(reason_given))

    def timeout_events(self, members: Iterable[_Member], now_ms: int) -> list[Event]:
        """Return the events of the members that the coordinator removed because a timeout passed."""
        gone = [member for member in members if member.member_id not in self._group.members]
        events: list[Event] = []
        for member in gone:
            late = NOT_REVOKED if isinstance(member, StreamsMember) else NOT_RELEASED
            reason = SESSION_TIMED_OUT if member.session_deadline_ms <= now_ms else late
            events.append(MemberRemoved(self._group.group_id, _who(member), reason))
        return events + self._epoch_events(_subject(gone, "timed out"))

    def _epoch_events(self, reason: str) -> list[Event]:
        group = self._group
        if group.group_epoch == self._epoch:
            return []
        return [EpochRaised(group.group_id, group.type, group.group_epoch, reason)]


def _subject(gone: list[_Member], verb: str) -> str:
    if len(gone) == 1:
        return f"member {gone[0].member_id} {verb}"
    return f"{len(gone)} members {verb}"
