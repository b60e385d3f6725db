"""ReadShareGroupStateSummary (key 87, versions 0-1): return the start offsets of partitions in a share group.

The group coordinator sends it to describe the group. A state that has not begun has the start offset -1. From v1 on the answer counts the
deliveries that are completed from the start offset on. Source: KIP-932, KIP-1226, Kafka's ShareCoordinatorShard.readStateSummary.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.coordinator.share.records import Summary, summarize
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.sharing.share_states import StateApi, answer_states
from gateway.runtime.services import Services

API_KEY: Final = 87


def _fields(_: Any, summary: Summary) -> dict[str, Any]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.done,
    }


_STATES: Final = StateApi(
    API_KEY,
    "ReadStateSummaryResult",
    lambda states, key, _, __: summarize(states, key),
    checks_topics=True,
    fields=_fields,
    refused_fields={"state_epoch": 0, "leader_epoch": 0, "start_offset": 0, "delivery_complete_count": -1},
)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return the start offset of each state."""
    return await answer_states(context, request, _STATES)


API = Api(
    key=API_KEY,
    name="ReadShareGroupStateSummary",
    min_version=0,
    max_version=1,
    reaches=api.everything,
    handle=handle,
)
