"""InitializeShareGroupState (key 83, version 0): begin the delivery state of partitions in a share group, or begin it anew.

Group coordinators and share-partition leaders of other gateways send it. A start offset of -1 leaves it to the partition's leader where the
group begins. Source: KIP-932, Kafka's ShareCoordinatorShard.initializeState.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.share.records import initialize
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_states import StateApi, answer_states
from gateway.runtime.services import Services

API_KEY: Final = 83
_STATES: Final = StateApi(
    API_KEY,
    "InitializeStateResult",
    lambda states, key, entry, now_ms: initialize(states, key, entry.state_epoch, entry.start_offset, now_ms),
    checks_topics=True,
)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Begin each state at its start offset."""
    return await answer_states(context, request, _STATES)


API = Api(
    key=API_KEY,
    name="InitializeShareGroupState",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
)
