"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: the group may not have members."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from gateway.handlers.api import RequestContext


def group_error(context: RequestContext, group_id: str) -> tuple[ErrorCode, str | None]:
    """Why the offsets of a share group can't be changed, as (error code, message); (none, None) if they can."""
    group = context.services.shares.group(group_id)
    if group is None:
        return ErrorCode.group_id_not_found, f"Group {group_id} not found."
    if group.members:
        return ErrorCode.non_empty_group, f"Group {group_id} has members."
    return ErrorCode.none, None
