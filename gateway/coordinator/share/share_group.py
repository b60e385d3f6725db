"""Members of a share group: who reads which partitions. A partition may have several readers (KIP-932).

Members are known in memory only: after a restart they are unknown and join again, as their clients do by
themselves. What was acquired and acknowledged is durable. Source: Kafka's `GroupMetadataManager.shareGroupHeartbeat`,
`ShareGroup`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.deadlines import NEVER
from gateway.coordinator.places import Place
from gateway.coordinator.share.assignor import assign

Describe = Callable[[str], tuple[uuid.UUID, int] | None]
"""Name of a topic to its id and number of partitions."""
FIRST_EPOCH: Final = 1
"""Of a group that nobody joined yet."""
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
    previous_member_epoch: int = 0
    assigned: frozenset[Place] = frozenset()
    session_deadline_ms: int = NEVER


class ShareHeartbeatRefused(Exception):
    """The error that answers a heartbeat."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(slots=True)
class ShareGroup:
    """Members and epochs; the group epoch rises with every change, and the assignment follows it.

    The first of a group's partitions, and any that come later, raise it once more when they are begun. Kafka begins
    them in the background and gives them out from the next heartbeat on; here that is done at once.
    """

    group_id: str
    group_epoch: int = FIRST_EPOCH
    assignment_epoch: int = FIRST_EPOCH
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Place]] = field(default_factory=dict)
    places: frozenset[Place] = frozenset()
    """All partitions of the topics that the members ask for."""
    begun: set[Place] = field(default_factory=set)
    """Those that were ever given out."""

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
        member.session_deadline_ms = now_ms + limits.session_timeout_ms
        if self._change(member, request) or is_new:
            self.group_epoch += 1
        self._assign(describe, is_explained=self.group_epoch > self.assignment_epoch)
        target = self.targets[member.member_id]
        has_told_all = request.member_epoch == JOINING or request.subscribed_names is not None
        must_tell = has_told_all or member.assigned != target
        if member.member_epoch != self.assignment_epoch:
            member.previous_member_epoch = member.member_epoch
            member.member_epoch = self.assignment_epoch
        member.assigned = target
        return member, must_tell

    def _change(self, member: ShareMember, request: ShareHeartbeat) -> bool:
        """Take what a member tells of itself; whether that may change who reads what."""
        member.rack_id = request.rack_id or member.rack_id
        if request.subscribed_names is None:
            return False
        names = tuple(sorted(set(request.subscribed_names)))
        has_changed = names != member.subscribed_names
        member.subscribed_names = names
        return has_changed

    def _assign(self, describe: Describe, *, is_explained: bool) -> None:
        """Have the assignment follow the members and the topics that they ask for."""
        names = {name for member in self.members.values() for name in member.subscribed_names}
        topics = {name: found for name in names if (found := describe(name)) is not None}
        places = frozenset((topic_id, index) for topic_id, count in topics.values() for index in range(count))
        if places != self.places:
            self.places = places
            self.group_epoch += not is_explained
        if not places <= self.begun:
            self.begun |= places
            self.group_epoch += 1
        if self.assignment_epoch == self.group_epoch:
            return
        subscriptions = {
            member_id: frozenset(topics[name][0] for name in member.subscribed_names if name in topics)
            for member_id, member in self.members.items()
        }
        self.targets = assign(subscriptions, places, self.targets)
        self.assignment_epoch = self.group_epoch

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
        # with the epoch before, the answer that told the newer one was lost
        if request.member_epoch not in {JOINING, member.previous_member_epoch, member.member_epoch}:
            text = f"The member's epoch is {member.member_epoch}, not {request.member_epoch}."
            raise ShareHeartbeatRefused(ErrorCode.fenced_member_epoch, text)
        return member

    def leave(self, member_id: str) -> None:
        """A member goes. Raises ShareHeartbeatRefused."""
        if member_id not in self.members:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise ShareHeartbeatRefused(ErrorCode.unknown_member_id, text)
        self._remove([member_id])

    def expire(self, now_ms: int) -> list[str]:
        """Give up the members not heard of; returns who they are."""
        due = [name for name, member in self.members.items() if member.session_deadline_ms <= now_ms]
        if due:
            self._remove(due)
        return due

    def forget(self, topic_id: uuid.UUID) -> None:
        """What was known of a topic was deleted: its partitions would be begun anew."""
        self.begun = {place for place in self.begun if place[0] != topic_id}

    def _remove(self, member_ids: list[str]) -> None:
        """The others are given what these had with the next heartbeat of any of them."""
        for member_id in member_ids:
            del self.members[member_id]
            self.targets.pop(member_id, None)
        self.group_epoch += 1
