"""Events of a group and its members, such as a join or a rebalance: the rules return events, and the runtime logs them.

Kafka's `GroupMetadataManager` logs the same moments.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


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
    """Return who a member of a classic group is."""
    return Who(member.member_id, member.group_instance_id, member.client_id, member.client_host)


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
    """The coordinator removed a member: it did not do in time what it had to."""

    group_id: str
    who: Who
    reason: str


class EpochRaised(NamedTuple):
    """The group epoch of a consumer or share group rose: members get new assignments with their next heartbeats."""

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
