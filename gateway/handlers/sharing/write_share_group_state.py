"""WriteShareGroupState (key 85, versions 0-1): store changes of the delivery state of partitions, sent by their leader.

A leader of an earlier leader epoch gets FENCED_LEADER_EPOCH; changes of a state that has begun anew get FENCED_STATE_EPOCH. The number of
completed deliveries (v1) is not stored, because it follows from the state. Batches that no state can have get INVALID_REQUEST; Kafka stores
them. Source: KIP-932, Kafka's ShareCoordinatorShard.writeState.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.share.records import Write, write
from gateway.coordinator.share.share_partition import StateBatch
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_states import StateApi, answer_states
from gateway.runtime.services import Services

API_KEY: Final = 85


def _wanted(entry: Any) -> Write:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in entry.state_batches
    ]
    return Write(entry.state_epoch, entry.leader_epoch, entry.start_offset, batches)


_STATES: Final = StateApi(
    API_KEY,
    "WriteStateResult",
    lambda states, key, entry, _: write(states, key, _wanted(entry)),
    checks_topics=False,
)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Store the changes of each partition; the answer leaves when they are durable."""
    return await answer_states(context, request, _STATES)


API = Api(
    key=API_KEY,
    name="WriteShareGroupState",
    min_version=0,
    max_version=1,
    reaches=api.everything,
    handle=handle,
)
