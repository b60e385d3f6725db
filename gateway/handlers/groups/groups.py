"""ListGroups (key 16, versions 0–5): list this node's groups, filtered by state (v4) and by type (v5).
Rights: `DESCRIBE` on the cluster (shows all groups); `DESCRIBE` on the group (shows the group).

Source: Kafka's GroupMetadataManager.listGroups, KIP-518, KIP-848.

DeleteGroups (key 42, versions 0–3): delete empty groups with all their offsets. Rights: `DELETE` on the
group.

From v3 on a result has an error message, which is null as in Kafka: only a failing plugin sets it there.
Source: Kafka's GroupCoordinatorService.deleteGroups.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.handlers.answering.rights import has_on_cluster, refused_names
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType


async def handle_list(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """List the groups that the client may describe, all of them with DESCRIBE on the cluster. Filters ignore
    case. The state filter ignores spaces around a state and underscores in it. As in Kafka, the answer has no
    groups, but an error, while a partition that is led here is loading; groups of one that can't be read are
    left out.
    """
    states = {state.strip().lower().replace("_", "") for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    shows_all = has_on_cluster(context, Operation.DESCRIBE)
    limit = TimeLimit(context)
    shards = context.services.groups.loaded_shards()
    is_awaiting = context.services.groups.shards.is_awaiting
    found = (group for shard in shards for group in list(shard.all_groups()))
    groups: list[Any] = []
    error = ErrorCode.none
    try:
        groups = [
            context.row(
                "ListedGroup",
                group_id=group.group_id,
                protocol_type=group.protocol[0],
                group_state=group.state_text,
                group_type=group.type,
            )
            async for group in limit.each(found)
            if (not states or group.state_text.lower() in states)
            and (not types or group.type.lower() in types)
            and (shows_all or context.could(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    except TimeoutError:
        error = ErrorCode.request_timed_out
    if error is ErrorCode.none and is_awaiting:
        error, groups = ErrorCode.coordinator_load_in_progress, []
    return context.answer(error_code=error, groups=tuple(groups))


async def handle_delete(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Delete the groups one after another; each gets its own result, and a repeated group only one."""
    results, deleted = [], []
    limit = TimeLimit(context)
    named = dict.fromkeys(request.groups_names)
    refused = await refused_names(context, Operation.DELETE, ResourceType.GROUP, named)
    for group_id in named:
        if group_id in refused:
            continue
        try:
            error = await limit.run(
                _delete(context, group_id), group_id, late=partial(_note_late, context, group_id)
            )
        except TimeoutError:
            error = ErrorCode.request_timed_out
        results.append(_result(context, group_id, error))
        if error is ErrorCode.none:
            deleted.append(group_id)
    results += [
        _result(context, group_id, ErrorCode.group_authorization_failed)
        for group_id in named
        if group_id in refused
    ]
    log_change(context, "deleted group", deleted)
    return context.answer(results=tuple(results))


def _result(context: RequestContext[CoordinatorServices], group_id: str, error: ErrorCode) -> Any:
    return context.row("DeletableGroupResult", group_id=group_id, error_code=error, error_message=None)


def _note_late(context: RequestContext[CoordinatorServices], group_id: str, error: ErrorCode) -> None:
    if error is ErrorCode.none:
        log_change(context, "deleted group", [group_id])


async def _delete(context: RequestContext[CoordinatorServices], group_id: str) -> ErrorCode:
    try:
        error_of_share_group = await context.services.shares.delete_without_members(group_id)
        if error_of_share_group is not None:
            return error_of_share_group
        return await context.services.groups.run(
            group_id, lambda shard, effects: delete_group(shard, group_id, effects)
        )
    except Unavailable as error:
        return error.error_code


def delete_group(shard: GroupShard, group_id: str, effects: Effects) -> ErrorCode:
    """Delete a classic, consumer or streams group without members, and all its offsets."""
    group = shard.groups.get(group_id)
    assigned = shard.assigned(group_id)
    if group is None and assigned is None:
        return ErrorCode.group_id_not_found
    if (group is not None and group.state is not GroupState.EMPTY) or (
        assigned is not None and not assigned.is_empty
    ):
        return ErrorCode.non_empty_group
    shard.commits.forget(group_id, shard.offsets.places(group_id), effects)
    if group is not None:
        shard.delete_classic(group, effects)
    if assigned is not None:
        shard.delete_assigned(group_id, effects)
    return ErrorCode.none


DELETE_GROUPS_API = Api(key=42, versions=(0, 3), reaches=api.coordinators, handle=handle_delete)


LIST_GROUPS_API = Api(
    key=16, versions=(0, 5), reaches=api.coordinators, handle=handle_list, is_long=True, may_be_given_up=True
)
