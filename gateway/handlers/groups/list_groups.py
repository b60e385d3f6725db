"""ListGroups (key 16, versions 0–5): list this node's groups, filtered by state (v4) and by type (v5).

Source: Kafka's GroupMetadataManager.listGroups, KIP-518, KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.any_group import all_groups
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from seqgate.gateway.handlers.answering.rights import has_on_cluster
from seqgate.gateway.protocol.messages import build, response_module
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType

API_KEY: Final = 16
FIRST_WITH_STATES: Final = 4
FIRST_WITH_TYPES: Final = 5


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """List the groups that the client may describe, all of them with DESCRIBE on the cluster.

    Filters ignore case. The state filter ignores spaces around a state and underscores in it.
    """
    version = context.api_version
    module = response_module(API_KEY, version)
    states = (
        {state.strip().lower().replace("_", "") for state in request.states_filter}
        if version >= FIRST_WITH_STATES
        else set()
    )
    types = {kind.lower() for kind in request.types_filter} if version >= FIRST_WITH_TYPES else set()
    shows_all = has_on_cluster(context, Operation.DESCRIBE)
    groups: list[Any] = []
    error = ErrorCode.none
    try:
        async for group_id, protocol_type, state, kind in TimeLimit(context).each(_all_groups(context)):
            if (
                (not states or state.lower() in states)
                and (not types or kind.lower() in types)
                and (shows_all or context.could(Operation.DESCRIBE, ResourceType.GROUP, group_id))
            ):
                groups.append(
                    build(
                        module.ListedGroup,
                        group_id=group_id,
                        protocol_type=protocol_type,
                        group_state=state,
                        group_type=kind,
                    )
                )
    except TimeoutError:
        error = ErrorCode.request_timed_out
        groups.clear()
    return build(module.ListGroupsResponse, error_code=error, groups=tuple(groups))


def _all_groups(context: RequestContext[CoordinatorServices]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (group id, protocol type, state, type) of every group."""
    for shard in context.services.groups.loaded_shards():
        for group in list(all_groups(shard)):
            yield group.group_id, group.protocol[0], group.state_text, group.type


API = Api(API_KEY, "ListGroups", 0, 5, api.coordinators, handle=handle, is_long=True, may_be_given_up=True)
