"""Elections of preferred leaders in a cluster: each leader is ordered to hand over, and the request waits until it has."""

from __future__ import annotations

import logging
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext, TimeLimit
from gateway.metadata.image import MetadataImage
from gateway.metadata.leadership import order_move
from gateway.metadata.records import MetadataRecord
from gateway.metadata.users import ApiError, Decision
from gateway.runtime.services import Services
from log import LogError

logger = logging.getLogger(__name__)

_ELECTED: Final = ApiError(ErrorCode.none)
_LATE: Final = ApiError(ErrorCode.request_timed_out, "The move is not complete yet and continues.")

Place = tuple[str, int]


async def elect_preferred(context: RequestContext[Services], request: Any) -> dict[Place, ApiError]:
    """Move partitions to their preferred leaders; return the outcome for each partition whose election was needed."""
    limit = TimeLimit(context, request.timeout)
    outcomes: dict[Place, ApiError] = {}
    targets: dict[Place, int] = {}

    def decide(image: MetadataImage) -> Decision[None]:
        outcomes.clear()
        targets.clear()
        records: list[MetadataRecord] = []
        for name, index in _asked(image, request):
            topic = image.topics_by_name[name]
            preferred = topic.partitions[index].replicas[0]
            decision = order_move(image, topic.topic_id, index, preferred)
            records += decision.records
            if decision.answer is None:
                targets[name, index] = preferred
            elif decision.answer.error_code is not ErrorCode.election_not_needed:
                outcomes[name, index] = decision.answer
        return Decision(records, None)

    try:
        await limit.run(context.services.topics.metadata_log.commit(decide))
    except TimeoutError:
        return dict.fromkeys(targets, _LATE) | outcomes
    except LogError as error:
        logger.error("elections of preferred leaders failed: %s", error)  # noqa: TRY400 - an expected failure of the disk
        return dict.fromkeys(targets, ApiError(ErrorCode(error.kafka_error_code), str(error))) | outcomes
    await context.services.topics.waiters.until(
        lambda image: all(_leads(image, place, to) for place, to in targets.items()), max(0.0, limit.left_s)
    )
    image = context.services.topics.metadata_log.image
    moved = {place: _ELECTED if _leads(image, place, to) else _LATE for place, to in targets.items()}
    return moved | outcomes


def _asked(image: MetadataImage, request: Any) -> list[Place]:
    if request.topic_partitions is None:
        return [(topic.name, index) for topic in image.topics_by_name.values() for index in topic.partitions]
    named = [(entry.topic, index) for entry in request.topic_partitions for index in entry.partitions]
    return [
        (name, index)
        for name, index in dict.fromkeys(named)
        if name in image.topics_by_name and index in image.topics_by_name[name].partitions
    ]


def _leads(image: MetadataImage, place: Place, node_id: int) -> bool:
    """Whether the node leads the partition by now; True, too, if the topic was deleted meanwhile."""
    topic = image.topics_by_name.get(place[0])
    partition = None if topic is None else topic.partitions.get(place[1])
    return partition is None or partition.leader == node_id
