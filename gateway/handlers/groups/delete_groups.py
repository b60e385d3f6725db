"""DeleteGroups (key 42, versions 0–2): delete empty groups with all their offsets.

Source: Kafka's GroupCoordinatorService.deleteGroups.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.rights import refused_names
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Delete the groups one after another; each gets its own result, and a repeated group only one."""
    module = context.response_module
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
        results.append(build(module.DeletableGroupResult, group_id=group_id, error_code=error))
        if error is ErrorCode.none:
            deleted.append(group_id)
    results += [
        build(module.DeletableGroupResult, group_id=group_id, error_code=ErrorCode.group_authorization_failed)
        for group_id in named
        if group_id in refused
    ]
    log_change(context, "deleted group", deleted)
    return build(module.DeleteGroupsResponse, results=tuple(results))


def _note_late(context: RequestContext[CoordinatorServices], group_id: str, error: ErrorCode) -> None:
    if error is ErrorCode.none:
        log_change(context, "deleted group", [group_id])


async def _delete(context: RequestContext[CoordinatorServices], group_id: str) -> ErrorCode:
    try:
        share_group = await context.services.shares.delete(group_id)
        if share_group is not None:
            return share_group
        return await context.services.groups.run(
            group_id, lambda shard, effects: shard.delete_group(group_id, effects)
        )
    except Unavailable as error:
        return error.error_code


API = Api(42, "DeleteGroups", 0, 2, api.coordinators, handle=handle)
