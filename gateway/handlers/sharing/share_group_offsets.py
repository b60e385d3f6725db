"""The check that AlterShareGroupOffsets and DeleteShareGroupOffsets share: the group must have no members."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.shard import GroupShard
from gateway.handlers.answering.api import RequestContext, TimeLimit
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

NO_SUCH_PARTITION: Final = "The topic or partition does not exist."
NOT_READABLE: Final = "Topic authorization failed."

MESSAGES: Final = {
    ErrorCode.unknown_topic_or_partition: NO_SUCH_PARTITION,
    ErrorCode.topic_authorization_failed: NOT_READABLE,
}
"""The messages of the errors of topics and partitions; other errors have none."""


async def group_error(
    context: RequestContext[Services], limit: TimeLimit, group_id: str, needed: Operation
) -> tuple[ErrorCode, str | None]:
    """Return why the offsets of a share group can't be changed, as (error code, message); (none, None) if they can.

    The client needs the right to carry out the operation `needed` on the group. The offsets of a group that does not
    exist can be changed, too.
    """
    if not context.may_group(needed, group_id):
        return ErrorCode.group_authorization_failed, "Group authorization failed."
    if not group_id:
        return ErrorCode.invalid_group_id, "The group id is empty."
    try:
        return await limit.run(_read(context, group_id), group_id)
    except Unavailable as error:
        return error.error_code, None
    except TimeoutError:
        return ErrorCode.request_timed_out, None


async def _read(context: RequestContext[Services], group_id: str) -> tuple[ErrorCode, str | None]:
    services = context.services
    await services.coordinators.groups.ensure_topic()
    await services.coordinators.shares.ensure_topic()
    return await services.coordinators.groups.read(group_id, lambda shard: _error_of(shard, group_id))


def _error_of(shard: GroupShard, group_id: str) -> tuple[ErrorCode, str | None]:
    if shard.stored.is_read_alone(group_id):
        return ErrorCode.group_id_not_found, f"Group {group_id} is not a share group."
    group = shard.shares.groups.get(group_id)
    if group is not None and group.members:
        return ErrorCode.non_empty_group, f"Group {group_id} has members."
    return ErrorCode.none, None
