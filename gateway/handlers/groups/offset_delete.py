"""OffsetDelete (key 47, version 0): delete a group's offsets, except for topics that its members subscribe
to. Rights: `DELETE` on the group; `READ` on the topic.

Source: Kafka's OffsetMetadataManager.deleteOffsets, KIP-496.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.handlers.answering.rights import refused_topics
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Delete the offsets durably; a partition that does not exist gets its own error."""
    group_id = request.group_id
    if not context.may_group(Operation.DELETE, group_id):
        return context.answer(error_code=ErrorCode.group_authorization_failed, topics=())
    hidden = await refused_topics(context, Operation.READ, (topic.name for topic in request.topics))
    refused, known = _sorted_out(context, request, hidden)
    places = [(name, index) for name, indexes in known for index in indexes]

    def note(outcome: list[ErrorCode] | ErrorCode) -> None:
        if not isinstance(outcome, ErrorCode):
            pairs = zip(places, outcome, strict=True)
            deleted = [f"{name}-{index}" for (name, index), error in pairs if error is ErrorCode.none]
            log_change(context, f"deleted the offsets of group {group_id} for", deleted)

    outcome: list[ErrorCode] | ErrorCode
    try:
        outcome = await TimeLimit(context).run(
            context.services.coordinators.groups.run(
                group_id, lambda shard, effects: delete_offsets(shard, group_id, places, effects)
            ),
            group_id,
            late=note,
        )
    except Unavailable as error:
        outcome = error.error_code
    except TimeoutError:
        outcome = ErrorCode.request_timed_out
    if isinstance(outcome, ErrorCode):
        return context.answer(error_code=outcome, topics=())
    note(outcome)
    errors = dict(zip(places, outcome, strict=True))
    answered = [(name, [(index, errors[name, index]) for index in indexes]) for name, indexes in known]
    if refused:
        for name, rows in answered:
            refused.setdefault(name, []).extend(rows)
        answered = list(refused.items())
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": error} for index, error in rows],
        }
        for name, rows in answered
    ]
    return context.answer(error_code=ErrorCode.none, topics=topics)


def delete_offsets(
    shard: GroupShard, group_id: str, places: Sequence[TopicPartition], effects: Effects
) -> ErrorCode | list[ErrorCode]:
    """Delete the offsets; return an error for the whole request, or one for each partition."""
    if not group_id:
        return ErrorCode.invalid_group_id
    group = shard.groups.get(group_id)
    assigned = shard.assigned(group_id)
    if assigned is not None:
        is_subscribed = assigned.subscription_test()
    elif group is None:
        return ErrorCode.group_id_not_found
    elif group.state is not GroupState.EMPTY and not group.is_of_consumers:
        return ErrorCode.non_empty_group
    else:
        is_subscribed = group.is_subscribed_to
    errors = [
        ErrorCode.group_subscribed_to_topic if is_subscribed(topic) else ErrorCode.none for topic, _ in places
    ]
    deletable = [place for place, error in zip(places, errors, strict=True) if error is ErrorCode.none]
    known = set(shard.offsets.places(group_id))
    shard.commits.forget(group_id, [place for place in dict.fromkeys(deletable) if place in known], effects)
    return errors


def _sorted_out(
    context: RequestContext[Services], request: Any, hidden: AbstractSet[str]
) -> tuple[dict[str, list[tuple[int, ErrorCode]]], list[tuple[str, list[int]]]]:
    """Split the request: hidden and unknown topics and partitions, with errors; other partitions by topic."""
    refused: dict[str, list[tuple[int, ErrorCode]]] = {}
    known: list[tuple[str, list[int]]] = []
    for wanted in request.topics:
        name = wanted.name
        is_hidden = name in hidden
        topic = None if is_hidden else context.services.partitions.registry.by_name.get(name)
        if topic is None:
            refused.setdefault(name, [])
        indexes = []
        for entry in wanted.partitions:
            if topic is None or not topic.has(entry.partition_index):
                error = (
                    ErrorCode.topic_authorization_failed
                    if is_hidden
                    else ErrorCode.unknown_topic_or_partition
                )
                refused.setdefault(name, []).append((entry.partition_index, error))
            else:
                indexes.append(entry.partition_index)
        if indexes:
            known.append((name, indexes))
    return refused, known


API = Api(key=47, versions=(0, 0), reaches=api.everything, handle=handle)
