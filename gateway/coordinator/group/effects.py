"""The effects of a group coordinator's operation: records to append, and answers to send once they are durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Waiter
from gateway.coordinator.group.events import Event
from gateway.coordinator.group.records import GroupRecord


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a JoinGroup. `members` are (member_id, group_instance_id, metadata), filled for the leader only."""

    error_code: ErrorCode = ErrorCode.none
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a SyncGroup."""

    error_code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


Reply = JoinReply | SyncReply


@dataclass(slots=True)
class Effects:
    """The records and answers of one operation that runs at `now_ms`."""

    now_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[tuple[Waiter, Reply]] = field(default_factory=list)
    gone_sharers: list[tuple[str, str]] = field(default_factory=list)
    """(group id, member id) of share group members whose session timed out."""
    events: list[Event] = field(default_factory=list)
    """The events of this operation, which the runtime logs."""

    def reply(self, waiter: Waiter, answer: Reply) -> None:
        """Answer a request, once the operation's records are durable."""
        self.replies.append((waiter, answer))
