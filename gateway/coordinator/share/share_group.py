"""Members of a share group: who reads which partitions. A partition may have several readers (KIP-932).

Members are known in memory only: after a restart they are unknown and join again, as their clients do by
themselves. What was acquired and acknowledged is durable. Source: Kafka's `GroupMetadataManager.shareGroupHeartbeat`,
`ShareGroup`, `SimpleAssignor`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.places import Place

Describe = Callable[[str], tuple[uuid.UUID, int] | None]
"""Name of a topic to its id and number of partitions."""
JOINING: Final = 0
LEAVING: Final = -1


@dataclass(frozen=True, slots=True)
class ShareGroupLimits:
    """See the settings `group.share.*` in `docs/configuration.md`."""

    session_timeout_ms: int = 45_000
    max_size: int = 200


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A request; None stands for "as before"."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...] | None


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member and what it was last told to read."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    subscribed_names: tuple[str, ...] = ()
    member_epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    session_deadline_ms: int = NEVER


class ShareHeartbeatRefused(Exception):
    """The error that answers a heartbeat."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(slots=True)
class ShareGroup:
    """Members and epochs; the group epoch rises with every change, and with it the assignment."""

    group_id: str
    group_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The name that ListGroups and ShareGroupDescribe tell."""
        return "Stable" if self.members else "Empty"

    def heartbeat(
        self, request: ShareHeartbeat, describe: Describe, limits: ShareGroupLimits, now_ms: int
    ) -> tuple[ShareMember, bool]:
        """Take a heartbeat; the member, and whether it must be told what to read. Raises ShareHeartbeatRefused."""
        member = self._member(request, limits)
        is_new = member.member_id not in self.members
        self.members[member.member_id] = member
        member.client_id, member.client_host = request.client_id, request.client_host
        member.rack_id = request.rack_id or member.rack_id
        member.session_deadline_ms = now_ms + limits.session_timeout_ms
        if request.subscribed_names is not None:
            member.subscribed_names = tuple(sorted(set(request.subscribed_names)))
        targets = assign(self.members, describe)
        if is_new or targets != self.targets:
            self.group_epoch += 1
            self.targets = targets
        # an older epoch: the answer that told the newer one, and what to read, was lost
        is_behind = request.member_epoch != member.member_epoch
        must_tell = is_new or is_behind or member.assigned != targets[member.member_id]
        member.member_epoch = self.group_epoch
        member.assigned = targets[member.member_id]
        return member, must_tell

    def _member(self, request: ShareHeartbeat, limits: ShareGroupLimits) -> ShareMember:
        member = self.members.get(request.member_id)
        if member is None:
            if request.member_epoch != JOINING:
                text = f"Member {request.member_id} is not a member of group {self.group_id}."
                raise ShareHeartbeatRefused(ErrorCode.unknown_member_id, text)
            if len(self.members) >= limits.max_size:
                text = f"The share group has reached its maximum capacity of {limits.max_size} members."
                raise ShareHeartbeatRefused(ErrorCode.group_max_size_reached, text)
            return ShareMember(request.member_id)
        if request.member_epoch > member.member_epoch:
            text = f"The member has a greater member epoch ({request.member_epoch}) than the one known."
            raise ShareHeartbeatRefused(ErrorCode.fenced_member_epoch, text)
        return member

    def leave(self, member_id: str, describe: Describe) -> None:
        """A member goes. Raises ShareHeartbeatRefused."""
        if member_id not in self.members:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise ShareHeartbeatRefused(ErrorCode.unknown_member_id, text)
        self._remove([member_id], describe)

    def expire(self, describe: Describe, now_ms: int) -> list[str]:
        """Give up the members not heard of; returns who they are."""
        due = [name for name, member in self.members.items() if member.session_deadline_ms <= now_ms]
        if due:
            self._remove(due, describe)
        return due

    def _remove(self, member_ids: list[str], describe: Describe) -> None:
        for member_id in member_ids:
            del self.members[member_id]
        self.group_epoch += 1
        self.targets = assign(self.members, describe)


def assign(members: dict[str, ShareMember], describe: Describe) -> dict[str, frozenset[Place]]:
    """Of each topic every partition has a reader and, with enough of them, as many readers as any other."""
    found: dict[str, set[Place]] = {member_id: set() for member_id in members}
    turn = 0
    for name in sorted({name for member in members.values() for name in member.subscribed_names}):
        topic = describe(name)
        readers = sorted(member_id for member_id, one in members.items() if name in one.subscribed_names)
        if topic is None:
            continue
        topic_id, count = topic
        pairs = max(count, len(readers)) if count else 0
        for number in range(pairs):
            found[readers[(turn + number) % len(readers)]].add((topic_id, number % count))
        turn += pairs  # whoever had one more of this topic is not the first of the next one
    return {member_id: frozenset(places) for member_id, places in found.items()}
