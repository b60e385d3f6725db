"""The shared part of the five APIs between gateways about the delivery state of share groups (KIP-932).

Each request names partitions of one group. A request without a group or partitions gets an empty answer, as in Kafka; a partition that is
named twice is answered once, and partitions are answered in their order. The client needs CLUSTER_ACTION on the cluster. Source: Kafka's
ShareCoordinatorService, KafkaApis.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.change import Change
from gateway.coordinator.share.records import Refusal, SharePartitionKey, ShareStates
from gateway.handlers.answering.api import RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE
from gateway.protocol.messages import build, response_module, response_type
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

NO_TOPIC: Final = uuid.UUID(int=0)
NEGATIVE: Final = Refusal(ErrorCode.invalid_request, "The partition id cannot be a negative number.")
UNKNOWN: Final = Refusal(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions of one request that are carried out together; the rest follow when they are durable."""

Decide = Callable[[ShareStates, SharePartitionKey, Any, int], Change[Any]]
"""Decides about one partition: the states, the key, the request's entry for the partition, and the time (ms)."""


@dataclass(frozen=True, slots=True)
class StateApi:
    """The parts in which the APIs differ.

    `checks_topics`: a partition that does not exist is refused before the decision. `fields` returns the fields of an answer's row for
    the outcome of a decision; `refused_fields` are those of a refused row.
    """

    api_key: int
    topic_class: str
    decide: Decide
    checks_topics: bool
    fields: Callable[[Any, Any], dict[str, Any]] = lambda _, __: {}
    refused_fields: dict[str, Any] | None = None


async def answer_states(context: RequestContext[Services], request: Any, api: StateApi) -> Any:
    """Carry out the decision for each partition of the request, durably."""
    module = response_module(api.api_key, context.api_version)
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
        found = await asyncio.gather(*(_one(context, request, api, place, asked[place]) for place in some))
        outcomes.update(zip(some, found, strict=True))
    rows: dict[uuid.UUID, list[Any]] = {}
    for place, outcome in outcomes.items():
        rows.setdefault(place[0], []).append(_row(module, api, place[1], outcome))
    results = tuple(
        build(
            getattr(module, api.topic_class),
            topic_id=None if topic_id == NO_TOPIC else topic_id,
            partitions=tuple(of_topic),
        )
        for topic_id, of_topic in rows.items()
    )
    return build(response_type(api.api_key, context.api_version), results=results)


async def _one(
    context: RequestContext[Services], request: Any, api: StateApi, place: tuple[uuid.UUID, int], entry: Any
) -> Any:
    """Return the outcome for one partition: a Refusal, or the answer of the decision."""
    if place[1] < 0:
        return NEGATIVE
    topic = context.services.partitions.registry.by_id.get(place[0])
    if api.checks_topics and (topic is None or not topic.has(place[1])):
        return UNKNOWN
    key = SharePartitionKey(request.group_id, *place)
    shares = context.services.coordinators.shares
    try:
        await shares.ensure_topic()
        return await shares.stored.run(key, lambda states, now_ms: api.decide(states, key, entry, now_ms))
    except Unavailable as error:
        return Refusal(error.error_code)


def _row(module: Any, api: StateApi, partition: int, outcome: Any) -> Any:
    if isinstance(outcome, Refusal):
        return build(
            module.PartitionResult,
            partition=partition,
            error_code=outcome.error_code,
            error_message=outcome.message,
            **(api.refused_fields or {}),
        )
    return build(
        module.PartitionResult,
        partition=partition,
        error_code=ErrorCode.none,
        error_message=None,
        **api.fields(module, outcome),
    )
