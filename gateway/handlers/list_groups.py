"""ListGroups (key 16, versions 0–5): the groups of this node, by state (v4) and by type (v5) where asked.

Source: Kafka's GroupMetadataManager.listGroups, KIP-518, KIP-848.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, RequestContext
from gateway.protocol.messages import build, response_module

API_KEY: Final = 16
FIRST_WITH_STATES: Final = 4
FIRST_WITH_TYPES: Final = 5
CLASSIC: Final = "classic"


async def handle(context: RequestContext, request: Any) -> Any:
    """List all groups; filters know no case."""
    version = context.api_version
    module = response_module(API_KEY, version)
    states = {state.lower() for state in request.states_filter} if version >= FIRST_WITH_STATES else set()
    types = {kind.lower() for kind in request.types_filter} if version >= FIRST_WITH_TYPES else set()
    groups = tuple(
        build(
            module.ListedGroup,
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for shard in context.services.groups.loaded_shards()
        for group in shard.groups.values()
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    )
    return build(module.ListGroupsResponse, error_code=ErrorCode.none, groups=groups)


API = Api(key=API_KEY, name="ListGroups", min_version=0, max_version=5, handle=handle)
