"""Events of a group and its members, such as a join or a rebalance: the rules return events, and the runtime logs them.

Kafka's `GroupMetadataManager` logs the same moments.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

LONGEST_REASON: Final = 255
"""Characters of a client's reason that are logged; Kafka's clients send no more."""


class Who(NamedTuple):
    """A member with its client: the subject of a log line."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class Described(Protocol):
    """A member of a classic group."""

    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


def who(member: Described) -> Who:
    """Return the member of a classic group as the subject of a log line."""
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


def client_says(reason: str | None) -> str:
    """Return the reason that a client gave to join or to leave (KIP-800), as the end of a log line; empty without one."""
    if not reason:
        return ""
    kept = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
    safe = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in kept)
    return f"; its client says: {safe}"


class RebalanceBegan(NamedTuple):
    """A classic group left `state`: all members of the old generation must join again."""

    group_id: str
    state: str
    old_generation_id: int
    reason: str


class Stabilized(NamedTuple):
    """The leader of a classic group has assigned: the rebalance is over."""

    group_id: str
    generation_id: int
    size: int


class Emptied(NamedTuple):
    """A rebalance of a classic group ended without members."""

    group_id: str
    generation_id: int


class MemberJoined(NamedTuple):
    """A group has a new member."""

    group_id: str
    who: Who


class MemberReplaced(NamedTuple):
    """A static member returned with a new id; the old id is fenced."""

    group_id: str
    old_member_id: str
    who: Who


class MemberLeft(NamedTuple):
    """A member left, or an administrator removed it."""

    group_id: str
    who: Who


class MemberRemoved(NamedTuple):
    """The coordinator removed a member that sent no heartbeat, or did not join, sync or revoke partitions in time."""

    group_id: str
    who: Who
    reason: str


class EpochRaised(NamedTuple):
    """The group epoch of a consumer, share or streams group rose: members get new assignments with their next heartbeats."""

    group_id: str
    kind: str
    group_epoch: int
    reason: str


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
