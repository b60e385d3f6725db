"""ReadShareGroupState (key 84, version 0): return the delivery state of partitions to their leader.

A leader in a new leader epoch takes the partition over: the changes of the leader before are refused from then on, and what its members had
acquired is available. Source: KIP-932, Kafka's ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.share.records import ShareState, read
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_states import StateApi, answer_states
from gateway.protocol.messages import build
from gateway.runtime.services import Services

API_KEY: Final = 84


def _fields(module: Any, state: ShareState) -> dict[str, Any]:
    batches = tuple(
        build(
            module.StateBatch,
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in state.batches
    )
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": batches,
    }


_STATES: Final = StateApi(
    API_KEY,
    "ReadStateResult",
    lambda states, key, entry, _: read(states, key, entry.leader_epoch),
    checks_topics=False,
    fields=_fields,
    refused_fields={"state_epoch": 0, "start_offset": 0, "state_batches": ()},
)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return each state, once a new leader epoch is durable."""
    return await answer_states(context, request, _STATES)


API = Api(
    key=API_KEY,
    name="ReadShareGroupState",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
)
