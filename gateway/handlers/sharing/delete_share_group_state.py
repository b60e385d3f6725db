"""DeleteShareGroupState (key 86, version 0): delete the delivery state of partitions in a share group.

The group coordinator sends it when the group, or its offsets in a topic, are deleted. A state that does not exist is deleted already. Source:
KIP-932, Kafka's ShareCoordinatorShard.deleteState.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.share.records import delete
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_states import StateApi, answer_states
from gateway.runtime.services import Services

API_KEY: Final = 86
_STATES: Final = StateApi(
    API_KEY, "DeleteStateResult", lambda states, key, _, __: delete(states, key), checks_topics=True
)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Delete each state durably."""
    return await answer_states(context, request, _STATES)


API = Api(
    key=API_KEY,
    name="DeleteShareGroupState",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
)
