"""The table of the members of a streams group."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.admin.groups.assigned import NONE, assigned
from gateway.admin.groups.messages import GroupMember, StreamsMember
from gateway.admin.printing import Column, print_lines, print_table, shown


def print_streams_members(members: Sequence[GroupMember]) -> None:
    """Print the members of a streams group with their tasks."""
    columns = (
        Column("member"),
        Column("instance"),
        Column("client"),
        Column("host"),
        Column("process"),
        Column("epoch", number=True),
        Column("topology\nepoch", number=True),
        Column("active"),
        Column("standby"),
        Column("warm-up"),
    )
    rows = [(member, member.streams) for member in members if member.streams is not None]
    print_table(columns, [_cells(member, streams) for member, streams in rows])
    moving = [member for member, streams in rows if streams.tasks != streams.target]
    if moving:
        names = ", ".join(shown(member.member_id) for member in moving)
        print_lines(f"Tasks are moving from or to {names}; --json shows the target.")


def _cells(member: GroupMember, streams: StreamsMember) -> tuple[str, ...]:
    return (
        shown(member.member_id),
        NONE if member.group_instance_id is None else shown(member.group_instance_id),
        shown(member.client_id),
        shown(member.client_host),
        shown(streams.process_id),
        str(streams.member_epoch),
        str(streams.topology_epoch),
        assigned(streams.tasks.active),
        assigned(streams.tasks.standby),
        assigned(streams.tasks.warmup),
    )
