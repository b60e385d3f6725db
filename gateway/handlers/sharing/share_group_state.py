"""InitializeShareGroupState (key 83, version 0): begin the delivery state of partitions in a share group, or
begin it anew. Rights: `CLUSTER_ACTION` on the cluster.

Group coordinators and share-partition leaders of other gateways send it. A start offset of -1 leaves it to
the partition's leader where the group begins (`ShareCoordinator.open` in
`runtime/coordinators/share_coordinator.py`). `ShareStates.initialize` in `coordinator/share/records.py`
decides. Source: KIP-932, Kafka's ShareCoordinatorShard.initializeState.

ReadShareGroupState (key 84, version 0): return the delivery state of partitions to their leader. Rights:
`CLUSTER_ACTION` on the cluster.

A leader in a new leader epoch takes the partition over: the changes of the leader before are refused from
then on, and what its members had acquired is available. `ShareStates.read` in `coordinator/share/records.py`
decides. Source: KIP-932, Kafka's ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch.

ReadShareGroupStateSummary (key 87, versions 0-1): return the start offsets of partitions in a share group.
Rights: `CLUSTER_ACTION` on the cluster.

The group coordinator sends it to describe the group. A state that has not begun has the start offset -1. From
v1 on the answer counts the deliveries that are completed from the start offset on. `ShareStates.summarize` in
`coordinator/share/records.py` decides. Source: KIP-932, KIP-1226, Kafka's
ShareCoordinatorShard.readStateSummary.

WriteShareGroupState (key 85, versions 0-1): store changes of the delivery state of partitions, sent by their
leader. Rights: `CLUSTER_ACTION` on the cluster.

A leader of an earlier leader epoch gets FENCED_LEADER_EPOCH; changes of a state that has begun anew get
FENCED_STATE_EPOCH. The number of completed deliveries (v1) is not stored, because it follows from the state.
Batches that no state can have get INVALID_REQUEST; Kafka stores them. `ShareStates.write` in
`coordinator/share/records.py` decides. Source: KIP-932, Kafka's ShareCoordinatorShard.writeState.

DeleteShareGroupState (key 86, version 0): delete the delivery state of partitions in a share group. Rights:
`CLUSTER_ACTION` on the cluster.

The group coordinator sends it when the group, or its offsets in a topic, are deleted. A state that does not
exist is deleted already. `ShareStates.delete` in `coordinator/share/records.py` decides. Source: KIP-932,
Kafka's ShareCoordinatorShard.deleteState.

The shared part of the five APIs between gateways about the delivery state of share groups (KIP-932).

Each request names partitions of one group. A request without a group or partitions gets an empty answer, as
in Kafka; a partition that is named twice is answered once, and partitions are answered in their order.
Source: Kafka's ShareCoordinatorService, KafkaApis.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.share.records import (
    Refusal,
    SharePartitionKey,
    ShareState,
    ShareStates,
    Summary,
    Write,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.share_persister import batches_of, state_batches
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

NO_TOPIC: Final = uuid.UUID(int=0)
NEGATIVE: Final = Refusal(ErrorCode.invalid_request, "The partition id cannot be a negative number.")
UNKNOWN: Final = Refusal(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions of one request that are carried out together; the rest follow when they are durable."""

Decide = Callable[[ShareStates, SharePartitionKey, Any, int], Change[Any]]
"""Decides about one partition: the states, the key, the request's entry for the partition, and the time (ms).
"""


class _States(msgspec.Struct, frozen=True):
    """One of the APIs: the parts in which they differ, and its handler. `checks_topics`: a partition that
    does not exist is refused before the decision. `fields` returns the fields of an answer's row for the
    outcome of a decision; `refused_fields` are those of a refused row.
    """

    decide: Decide
    checks_topics: bool
    fields: Callable[[Any], dict[str, Any]] = lambda _: {}
    refused_fields: dict[str, Any] | None = None

    async def handle(self, context: RequestContext[Services], request: Any) -> Any:
        """Carry out the decision for each partition of the request; answer when all are durable."""
        denied = cluster_refusal(context, Operation.CLUSTER_ACTION)
        refusal = None if denied is None else Refusal(denied.error_code, denied.message)
        is_empty = not request.group_id or not all(topic.partitions for topic in request.topics)
        asked: dict[tuple[uuid.UUID, int], Any] = {}
        for topic in () if is_empty else request.topics:
            for entry in sorted(topic.partitions, key=lambda entry: entry.partition):
                asked[topic.topic_id or NO_TOPIC, entry.partition] = entry
        outcomes = dict.fromkeys(asked, refusal)
        places = list(asked) if refusal is None else []
        for start in range(0, len(places), PARTITIONS_AT_ONCE):
            some = places[start : start + PARTITIONS_AT_ONCE]
            found = await asyncio.gather(
                *(self._one(context, request.group_id, place, asked[place]) for place in some)
            )
            outcomes.update(zip(some, found, strict=True))
        rows: dict[uuid.UUID, list[dict[str, Any]]] = {}
        for place, outcome in outcomes.items():
            rows.setdefault(place[0], []).append(self._row(place[1], outcome))
        results = [
            {"topic_id": None if topic_id == NO_TOPIC else topic_id, "partitions": of_topic}
            for topic_id, of_topic in rows.items()
        ]
        return context.answer(results=results)

    async def _one(
        self, context: RequestContext[Services], group_id: str, place: tuple[uuid.UUID, int], entry: Any
    ) -> Any:
        """Return the outcome for one partition: a Refusal, or the answer of the decision."""
        if place[1] < 0:
            return NEGATIVE
        topic = context.services.partitions.registry.by_id.get(place[0])
        if self.checks_topics and (topic is None or not topic.has(place[1])):
            return UNKNOWN
        key = SharePartitionKey(group_id, *place)
        shares = context.services.coordinators.shares
        try:
            await shares.ensure_topic()
            return await shares.stored.run(
                key, lambda states, now_ms: self.decide(states, key, entry, now_ms)
            )
        except Unavailable as error:
            return Refusal(error.error_code)

    def _row(self, partition: int, outcome: Any) -> dict[str, Any]:
        if isinstance(outcome, Refusal):
            error, message = outcome.error_code, outcome.message
            fields = self.refused_fields or {}
        else:
            error, message = ErrorCode.none, None
            fields = self.fields(outcome)
        return {"partition": partition, "error_code": error, "error_message": message, **fields}


def _state_fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": state_batches(state.batches),
    }


def _summary_fields(summary: Summary) -> dict[str, Any]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.done,
    }


def _written(entry: Any) -> Write:
    batches = batches_of(entry.state_batches)
    return Write(entry.state_epoch, entry.leader_epoch, entry.start_offset, batches)


INITIALIZE_SHARE_GROUP_STATE_API = Api(
    key=83,
    versions=(0, 0),
    reaches=api.everything,
    handle=_States(
        lambda states, key, entry, now_ms: states.initialize(
            key, entry.state_epoch, entry.start_offset, now_ms
        ),
        checks_topics=True,
    ).handle,
)

READ_SHARE_GROUP_STATE_API = Api(
    key=84,
    versions=(0, 0),
    reaches=api.everything,
    handle=_States(
        lambda states, key, entry, _: states.read(key, entry.leader_epoch),
        checks_topics=False,
        fields=_state_fields,
        refused_fields={"state_epoch": 0, "start_offset": 0, "state_batches": ()},
    ).handle,
)

WRITE_SHARE_GROUP_STATE_API = Api(
    key=85,
    versions=(0, 1),
    reaches=api.everything,
    handle=_States(
        lambda states, key, entry, _: states.write(key, _written(entry)), checks_topics=False
    ).handle,
)

DELETE_SHARE_GROUP_STATE_API = Api(
    key=86,
    versions=(0, 0),
    reaches=api.everything,
    handle=_States(lambda states, key, _, __: states.delete(key), checks_topics=True).handle,
)

READ_SHARE_GROUP_STATE_SUMMARY_API = Api(
    key=87,
    versions=(0, 1),
    reaches=api.everything,
    handle=_States(
        lambda states, key, _, __: states.summarize(key),
        checks_topics=True,
        fields=_summary_fields,
        refused_fields={
            "state_epoch": 0,
            "leader_epoch": 0,
            "start_offset": 0,
            "delivery_complete_count": -1,
        },
    ).handle,
)
