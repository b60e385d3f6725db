"""Events of a group and its members, such as a join or a rebalance: the rules return events, and the runtime
logs them.

Kafka's `GroupMetadataManager` logs the same moments.

Compares a consumer, share or streams group before and after an operation, and returns the events for the log.

An operation on one member compares that member only, so that a heartbeat costs no more in a large group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Waiter
from seqgate.gateway.coordinator.group.epoch_group import EpochGroup, EpochMember
from seqgate.gateway.coordinator.group.records import GroupRecord, encode
from seqgate.gateway.coordinator.rows import RowRecord, size_of

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.classic_group import Member

LONGEST_REASON: Final = 255
"""Characters of a client's reason that are logged; Kafka's clients send no more."""


class Who(msgspec.Struct, frozen=True):
    """A member with its client: the subject of a log line."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


def who(member: EpochMember | Member) -> Who:
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def client_says(reason: str | None) -> str:
    """Return a client's reason to join or leave (KIP-800) as the end of a log line; empty without one."""
    if not reason:
        return ""
    kept = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in kept)
    return f"; its client says: {safe}"


class RebalanceBegan(msgspec.Struct, frozen=True):
    """A classic group left `state`: all members of the old generation must join again."""

    group_id: str
    state: str
    old_generation_id: int
    reason: str


class Stabilized(msgspec.Struct, frozen=True):
    """The leader of a classic group has assigned: the rebalance is over."""

    group_id: str
    generation_id: int
    size: int


class Emptied(msgspec.Struct, frozen=True):
    """A rebalance of a classic group ended without members."""

    group_id: str
    generation_id: int


class MemberJoined(msgspec.Struct, frozen=True):
    group_id: str
    who: Who


class MemberReplaced(msgspec.Struct, frozen=True):
    """A static member returned with a new id; the old id is fenced."""

    group_id: str
    old_member_id: str
    who: Who


class MemberLeft(msgspec.Struct, frozen=True):
    """A member left, or an administrator removed it."""

    group_id: str
    who: Who


class MemberRemoved(msgspec.Struct, frozen=True):
    """The coordinator removed a member that did not send a heartbeat, join, sync or revoke in time."""

    group_id: str
    who: Who
    reason: str


class EpochRaised(msgspec.Struct, frozen=True):
    """The group epoch rose: members get new assignments with their next heartbeats."""

    group_id: str
    kind: str
    group_epoch: int
    reason: str


# The effects of a group coordinator's operation: records to append, and answers to send once they are
# durable.


class JoinReply(msgspec.Struct, frozen=True):
    """The answer to a JoinGroup. The leader's `members`: (member_id, group_instance_id, metadata)."""

    error_code: ErrorCode = ErrorCode.none
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncReply(msgspec.Struct, frozen=True):
    error_code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


Reply = JoinReply | SyncReply


class Effects(msgspec.Struct):
    """The records and answers of one operation that runs at `now_ms`."""

    now_ms: int
    max_bytes: int = 2**31 - 1
    """The most bytes of a batch of the log, as `size_of` counts them."""
    records: list[GroupRecord] = msgspec.field(default_factory=list)
    replies: list[tuple[Waiter, Reply]] = msgspec.field(default_factory=list)
    gone_sharers: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """(group id, member id) of share group members whose session timed out."""
    events: list[Event] = msgspec.field(default_factory=list)
    """The events of this operation, which the runtime logs."""

    def fits(self, record: GroupRecord) -> bool:
        """Return whether a batch can hold the record. Ask before the operation changes a group: the log
        refuses a larger one, and then all groups of the shard are loaded again.
        """
        return size_of(encode, (record,)) <= self.max_bytes

    def reply(self, waiter: Waiter, answer: Reply) -> None:
        """Answer a request, once the operation's records are durable."""
        self.replies.append((waiter, answer))


class Before:
    """The fields of a group before an operation on one member, or on several."""

    __slots__ = ("_epoch", "_group", "_is_known", "_member_id", "_static_id")

    def __init__(self, group: EpochGroup[Any, Any], member_id: str, instance_id: str | None = None) -> None:
        self._group = group
        self._member_id = member_id
        self._epoch = group.group_epoch
        self._is_known = member_id in group.members
        self._static_id = None if instance_id is None else group.static_members.get(instance_id)

    def heartbeat_events(self, records: Iterable[RowRecord], reason_given: str | None = None) -> list[Event]:
        """Return what happened while a member joined or sent a heartbeat, which led to these records;
        `reason_given` is the client's.
        """
        group, member_id = self._group, self._member_id
        if self._is_known and group.group_epoch == self._epoch:
            return []
        events: list[Event] = []
        reason = group.when_topics_change
        member = group.members.get(member_id)
        if not self._is_known and member is not None:
            if self._static_id is None:
                events.append(MemberJoined(group.group_id, who(member)))
                reason = f"member {member_id} joined"
            else:
                events.append(MemberReplaced(group.group_id, self._static_id, who(member)))
                reason = f"static member {member_id} returned with another subscription"
        elif any(record.row is group.rows.member for record in records):
            reason = f"member {member_id} changed its {group.subscription}"
        return events + self._epoch_events(reason + client_says(reason_given))

    def leave_events(self, left: Iterable[EpochMember], reason_given: str | None = None) -> list[Event]:
        """Return the events of the members that left; `reason_given` is the client's reason."""
        gone = [member for member in left if member.member_id not in self._group.members]
        events: list[Event] = [MemberLeft(self._group.group_id, who(member)) for member in gone]
        return events + self._epoch_events(_subject(gone, "left") + client_says(reason_given))

    def timeout_events(self, members: Iterable[EpochMember], now_ms: int) -> list[Event]:
        """Return the events of the members that the coordinator removed because a timeout passed."""
        gone = [member for member in members if member.member_id not in self._group.members]
        events: list[Event] = []
        for member in gone:
            has_gone = member.session_deadline_ms <= now_ms
            reason = SESSION_TIMED_OUT if has_gone else self._group.when_late
            events.append(MemberRemoved(self._group.group_id, who(member), reason))
        return events + self._epoch_events(_subject(gone, "timed out"))

    def _epoch_events(self, reason: str) -> list[Event]:
        group = self._group
        if group.group_epoch == self._epoch:
            return []
        return [EpochRaised(group.group_id, group.type, group.group_epoch, reason)]


def _subject(gone: list[EpochMember], verb: str) -> str:
    if len(gone) == 1:
        return f"member {gone[0].member_id} {verb}"
    return f"{len(gone)} members {verb}"


Event = (
    RebalanceBegan
    | Stabilized
    | Emptied
    | MemberJoined
    | MemberReplaced
    | MemberLeft
    | MemberRemoved
    | EpochRaised
)

SESSION_TIMED_OUT = "its session timed out"
