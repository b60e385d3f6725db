"""The sender of an OffsetCommit or OffsetFetch, and the check whether the sender may commit to a classic group."""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.classic_group import ClassicGroup, GroupError, GroupState


class Committer(NamedTuple):
    """The sender of an OffsetCommit or OffsetFetch. A consumer outside any group has generation -1 and no member id."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    has_member_epoch: bool = True
    """Whether the request can come from a member of the consumer protocol (OffsetCommit v9 and later)."""

    @property
    def is_anonymous(self) -> bool:
        """Whether the request names no member at all."""
        return self.generation_id < 0 and not self.member_id and self.group_instance_id is None


def check_commit(group: ClassicGroup, committer: Committer, now_ms: int) -> None:
    """Restart the session of a member that may commit. Raises GroupError.

    Source: Kafka's ClassicGroup.validateOffsetCommit.
    """
    if committer.generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if committer.is_anonymous:
        raise GroupError(ErrorCode.unknown_member_id)
    member = group.check_member(committer.member_id, committer.group_instance_id)
    if committer.generation_id != group.generation_id:
        raise GroupError(ErrorCode.illegal_generation)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise GroupError(ErrorCode.rebalance_in_progress)
    member.restart_session(now_ms)
