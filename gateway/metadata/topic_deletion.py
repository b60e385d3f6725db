"""Decisions about topics: delete them.

Rules and order of checks: Kafka's ControllerApis.deleteTopics. A refused topic does not affect the other topics of the
request.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from gateway.metadata.decision import UNKNOWN_TOPIC_ID_MESSAGE, UNKNOWN_TOPIC_MESSAGE, ApiError, Decision
from gateway.metadata.image import MetadataImage, TopicImage
from gateway.metadata.records import MetadataRecord, RemoveTopicRecord
from gateway.metadata.topics import TopicResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToDelete:
    """A topic to delete, by name or by id."""

    name: str | None = None
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRight:
    """The rights of a client on a topic that the client wants to delete."""

    describe: bool
    delete: bool


def delete_topics(
    image: MetadataImage,
    topics: Sequence[TopicToDelete],
    right: Callable[[str], DeletionRight] | None = None,
) -> Decision[list[TopicResult]]:
    """Delete topics. A name or id that the request repeats, or a topic named both ways, is INVALID_REQUEST.

    `right` returns the client's rights on the topic of a name; None if the client may delete all topics.
    """
    names = Counter(topic.name for topic in topics if topic.name is not None and topic.topic_id is None)
    ids = Counter(topic.topic_id for topic in topics if topic.name is None and topic.topic_id is not None)
    results: dict[tuple[str | None, uuid.UUID | None], TopicResult] = {}
    records: list[MetadataRecord] = []
    deleted: set[uuid.UUID] = set()
    for topic in topics:
        key = (topic.name, topic.topic_id)
        if key in results:
            continue
        error = _deletion_error(topic, names, ids)
        found = None if error else _find(image, topic)
        denied = None if error or right is None else _denial(topic, found, right)
        if denied is not None:
            results[key] = denied
        elif found is None:
            results[key] = TopicResult(
                name=topic.name, topic_id=topic.topic_id, error=error or _not_found(topic)
            )
        elif found.topic_id in deleted:
            text = "The provided topic name maps to an ID that was already supplied."
            results[key] = TopicResult(
                name=found.name,
                topic_id=found.topic_id,
                error=ApiError(ErrorCode.invalid_request, text),
            )
        else:
            deleted.add(found.topic_id)
            records.append(RemoveTopicRecord(found.topic_id))
            results[key] = TopicResult(name=found.name, topic_id=found.topic_id)
    return Decision(records, list(results.values()))


def _find(image: MetadataImage, topic: TopicToDelete) -> TopicImage | None:
    if topic.name is not None:
        return image.topics_by_name.get(topic.name)
    return None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)


def _denial(
    topic: TopicToDelete, found: TopicImage | None, right: Callable[[str], DeletionRight]
) -> TopicResult | None:
    """Return the result of a topic that the client may not delete, or must not find.

    A client that may not describe the topic learns neither whether its name exists nor the name of its id.
    """
    error = ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
    if topic.name is not None:
        allowed = right(topic.name)
        if allowed.describe and (found is None or allowed.delete):
            return None
        return TopicResult(name=topic.name, error=error)
    if found is None:
        return None
    allowed = right(found.name)
    if allowed.delete:
        return None
    return TopicResult(name=found.name if allowed.describe else None, topic_id=found.topic_id, error=error)


def _not_found(topic: TopicToDelete) -> ApiError:
    if topic.name is not None:
        return ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
    return ApiError(ErrorCode.unknown_topic_id, UNKNOWN_TOPIC_ID_MESSAGE)


def _deletion_error(
    topic: TopicToDelete, names: Mapping[str, int], ids: Mapping[uuid.UUID, int]
) -> ApiError | None:
    text = None
    if topic.name is None and topic.topic_id is None:
        text = "Neither topic name nor id were specified."
    elif topic.name is not None and topic.topic_id is not None:
        text = "You may not specify both topic name and topic id."
    elif topic.name is not None and names[topic.name] > 1:
        text = "Duplicate topic name."
    elif topic.topic_id is not None and ids[topic.topic_id] > 1:
        text = "Duplicate topic id."
    return ApiError(ErrorCode.invalid_request, text) if text else None
