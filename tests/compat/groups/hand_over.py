"""Handing over the partitions of a member that leaves or dies, in every group protocol."""

from __future__ import annotations

from tests.compat.groups.members import GroupMember, Members, once_each


def read_together(members: Members, *joined: GroupMember) -> None:
    """Wait until each member has got records of the shared topic."""
    members.await_shared(*joined)
    members.deliver(10)
    assert all(member.records for member in joined)


def kill_and_take_over(members: Members, killed: GroupMember, left: GroupMember) -> None:
    """Kill one of two members while records flow, and check that no record is lost."""
    read_together(members, killed, left)
    members.produce(10)
    killed.kill()
    members.deliver(10)
    members.await_shared(left)


def finish_hand_over(members: Members, leaving: GroupMember, left: GroupMember) -> None:
    """Wait until the leaving member is gone. Check that no record was read twice and that all offsets are
    committed."""
    leaving.await_end()
    members.await_shared(left)
    members.deliver(10)
    assert once_each(members.sent, members.delivered)
    left.leave()
    assert members.committed_offsets() == members.end_offsets()
