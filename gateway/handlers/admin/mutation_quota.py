"""Charges created and deleted partitions to `controller_mutation_rate` (KIP-599).

A request of a newer version gets THROTTLING_QUOTA_EXCEEDED for each topic that comes after the one that
overdrew the quota; the changes of an older version are made, and the client is throttled after them. A topic
that is refused for another reason is not charged. Source: Kafka's ControllerMutationQuotaManager,
ControllerApis.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.topics import TopicResult

T = TypeVar("T")
DecideOn = Callable[[MetadataImage, Sequence[T]], Decision[list[TopicResult]]]

EXCEEDED = ApiError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


def charge_mutations(
    context: RequestContext[Any],
    topics: Sequence[T],
    decide: DecideOn[T],
    *,
    key: Callable[[T], str | uuid.UUID | None],
    partitions: Callable[[MetadataImage, TopicResult], int],
    strict_since: int,
) -> Callable[[MetadataImage], Decision[list[TopicResult]]]:
    """Return the decision about the topics that the quota lets through; the others are refused.

    `key` returns the name or the id of a topic of the request, and `partitions` how many partitions a change
    creates or deletes. A decision that is made again, because another gateway changed the metadata first,
    charges no topic twice.
    """
    charge = context.charge
    if charge is None:
        return lambda image: decide(image, topics)
    strict = context.api_version >= strict_since
    charged: dict[tuple[str | None, uuid.UUID | None], bool] = {}

    def may_change(image: MetadataImage, result: TopicResult) -> bool:
        place = result.name, result.topic_id
        if place not in charged:
            charged[place] = charge.may_mutate(partitions(image, result), strict=strict)
        return charged[place]

    def decide_within_quota(image: MetadataImage) -> Decision[list[TopicResult]]:
        decision = decide(image, topics)
        refused: set[str | uuid.UUID | None] = set()
        results = []
        for result in decision.answer:
            if result.error is None and not may_change(image, result):
                refused |= {result.name, result.topic_id} - {None}
                results.append(TopicResult(name=result.name, topic_id=result.topic_id, error=EXCEEDED))
            else:
                results.append(result)
        if not refused:
            return decision
        allowed = decide(image, [topic for topic in topics if key(topic) not in refused])
        return Decision(allowed.records, results)

    return decide_within_quota
