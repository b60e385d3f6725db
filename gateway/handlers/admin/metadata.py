"""Metadata (key 3, versions 0-13): describe the brokers, and topics with their partitions, leaders and leader
epochs. Rights: `DESCRIBE` on the topic; `CREATE` on the cluster (to create unknown topics); `CREATE` on the
topic (or this, to create it); `DESCRIBE` on the cluster (else the list of authorized operations is empty).

    request                      answer
    topics null (v0: empty)      all topics
    topics empty                 no topics, only the brokers
    topic ids (v12 on)           these topics; names beside ids are ignored, as in Kafka
    unknown name                 UNKNOWN_TOPIC_OR_PARTITION; the topic is created in the background if allowed
    unknown, no legal name       INVALID_TOPIC_EXCEPTION, and nothing is created
    unknown id                   UNKNOWN_TOPIC_ID
    without DESCRIBE             TOPIC_AUTHORIZATION_FAILED: by name whether the topic exists or not, by id
                                 only if it exists, with a null name; all topics leave it out
    unknown, without CREATE on   TOPIC_AUTHORIZATION_FAILED, if a name with this right would create the topic
    the topic or the cluster

`__cluster_metadata` and the internal topics of coordinators are never created in this way.
Source: Kafka's KafkaApis.handleTopicMetadataRequest, KIP-516 (topic ids), KIP-430 (authorized operations).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import fresh_id, log_change, partitions_text
from seqgate.gateway.handlers.answering.leaders import PartitionState, partition_state
from seqgate.gateway.handlers.answering.rights import (
    NOT_ASKED,
    NOTHING,
    cluster_operations_if_described,
    has_on_cluster,
    refused_ids,
    refused_topics,
    topic_operations,
    unseen_topics,
)
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    MetadataImage,
    TopicImage,
    name_complaint,
)
from seqgate.gateway.metadata.topics import TopicCreation, TopicResult, create_topics
from seqgate.gateway.protocol.messages import build, response_module, written
from seqgate.gateway.protocol.schema import EncodedEntity
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

logger = logging.getLogger(__name__)

FEW_PARTITIONS: Final = 32
"""A topic with more partitions than this gets its rows from `_written_rows`, which encodes the common bytes
once.
"""
INDEX_IN_ROW: Final = slice(2, 6)
"""The bytes of partition_index in a row: after error_code, an int16, in all versions."""


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Answer from the image, and start the creation of unknown topics."""
    module = response_module(context.api_key, context.api_version)
    if context.api_version < 12 and request.topics and context.api_version >= 10:
        refused = [topic for topic in request.topics if topic.name is None or topic.topic_id is not None]
    else:
        refused = [topic for topic in request.topics or () if _names_nothing(topic)]
    if refused:
        return await _refuse_all(context, module, request.topics)
    topics = await _topics(context, module, request)
    asked = getattr(request, "include_cluster_authorized_operations", False)
    node = context.node
    brokers = [
        {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
        for broker in node.brokers.on(context.listener_name)
        if not broker.is_fenced
    ]
    return context.answer(
        brokers=brokers,
        cluster_id=node.cluster_id,
        controller_id=node.brokers.controller_id,
        topics=tuple([topic async for topic in in_slices(topics)]),
        error_code=ErrorCode.none,
        cluster_authorized_operations=cluster_operations_if_described(context) if asked else NOT_ASKED,
    )


def _names_nothing(topic: Any) -> bool:
    return topic.name is None and getattr(topic, "topic_id", None) is None


async def _refuse_all(context: RequestContext[Services], module: ModuleType, topics: Sequence[Any]) -> Any:
    """Refuse a malformed request: every topic gets INVALID_REQUEST, and no broker is listed."""
    error = ErrorCode.invalid_request
    rows = [
        _topic_error(module, error, topic.name or "", getattr(topic, "topic_id", None))
        async for topic in in_slices(topics)
    ]
    return context.answer(
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=tuple(rows),
        error_code=error,
        cluster_authorized_operations=NOT_ASKED,
    )


async def _topics(context: RequestContext[Services], module: ModuleType, request: Any) -> Iterator[Any]:
    """Find out what the client may see, and return the topics of the answer."""
    image = context.services.topics.metadata_log.image
    operations_asked = getattr(request, "include_topic_authorized_operations", False)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        # other requests create and delete topics between the slices
        topics = list(image.topics_by_name.values())
        denied = await unseen_topics(context, Operation.DESCRIBE, (topic.name for topic in topics))
        shown = (topic for topic in topics if topic.name not in denied)
        return (_topic(context, module, topic, operations_asked) for topic in shown)
    ids = dict.fromkeys(
        topic.topic_id for topic in request.topics if getattr(topic, "topic_id", None) is not None
    )
    if ids:
        # An id that a new topic gets after the rights were checked is answered as unknown.
        found = {topic_id: topic for topic_id in ids if (topic := image.topics_by_id.get(topic_id))}
        denied_ids = await refused_ids(context, Operation.DESCRIBE, ids, found)
        return _topics_by_id(context, module, ids, found, denied_ids, operations_asked)
    names = dict.fromkeys(topic.name for topic in request.topics)
    denied = await refused_topics(context, Operation.DESCRIBE, names)
    named = _Named.of(image, names, denied)
    if named.unknown and getattr(request, "allow_auto_topic_creation", True):
        named.creates = context.node.config.bool("auto.create.topics.enable")
        if named.creates and not has_on_cluster(context, Operation.CREATE):
            named.not_created = await refused_topics(context, Operation.CREATE, named.unknown)
    return _topics_by_name(context, module, named, operations_asked)


class _Named(msgspec.Struct):
    """The names of a request, as they were when its rights were checked. A topic that is deleted after the
    check must not be created again for a client that may not create it.
    """

    found: list[TopicImage]
    unknown: list[str]
    denied: list[str]
    """The names of topics that the client may not describe."""
    creates: bool = False
    """Whether the request creates unknown topics."""
    not_created: AbstractSet[str] = NOTHING
    """The unknown names of topics that the request would create, but that the client may not create."""

    @classmethod
    def of(cls, image: MetadataImage, names: Mapping[str, None], denied: AbstractSet[str]) -> _Named:
        found, unknown = [], []
        for name in names:
            if name in denied:
                continue
            topic = image.topics_by_name.get(name)
            if topic is None:
                unknown.append(name)
            else:
                found.append(topic)
        return cls(found, unknown, sorted(denied))


def _topics_by_id(
    context: RequestContext[Services],
    module: ModuleType,
    ids: Mapping[uuid.UUID, None],
    found: Mapping[uuid.UUID, TopicImage],
    denied: AbstractSet[uuid.UUID],
    operations_asked: bool,
) -> Iterator[Any]:
    for topic_id in ids:
        if topic_id not in found:
            yield _topic_error(module, ErrorCode.unknown_topic_id, None, topic_id)
    for topic_id, topic in found.items():
        if topic_id not in denied:
            yield _topic(context, module, topic, operations_asked)
    for topic_id in found:
        if topic_id in denied:
            yield _topic_error(module, ErrorCode.topic_authorization_failed, None, topic_id)


def _topics_by_name(
    context: RequestContext[Services], module: ModuleType, named: _Named, operations_asked: bool
) -> Iterator[Any]:
    for topic in named.found:
        yield _topic(context, module, topic, operations_asked)
    for name in named.unknown:
        if name in named.not_created:
            yield _topic_error(module, ErrorCode.topic_authorization_failed, name, None)
            continue
        error = ErrorCode.invalid_topic_exception
        if name_complaint(name) is None:
            error = ErrorCode.unknown_topic_or_partition
            if named.creates:
                _create_soon(context, name)
        operations = topic_operations(context, name) if operations_asked else NOT_ASKED
        yield _topic_error(module, error, name, None, operations)
    for name in named.denied:
        yield _topic_error(module, ErrorCode.topic_authorization_failed, name, None)


def _create_soon(context: RequestContext[Services], name: str) -> None:
    node = context.node
    if name in INTERNAL_TOPICS | {METADATA_TOPIC}:
        return
    topic_id = fresh_id()

    def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
        return create_topics(
            image, [TopicCreation(name=name)], fresh_ids=[topic_id], config=node.config, node_id=node.node_id
        )

    def when_durable(results: list[TopicResult]) -> None:
        error = results[0].error
        if error is None:
            how = "named in Metadata, auto.create.topics.enable"
            log_change(
                context, "created topic", [f"{name} ({partitions_text(results[0].num_partitions)}; {how})"]
            )
        elif error.error_code is not ErrorCode.topic_already_exists:
            logger.warning("topic %s is not created although a client asked for it: %s", name, error.message)

    context.services.topics.metadata_log.commit_soon(("create", name), decide, when_durable)


def _topic(
    context: RequestContext[Services], module: ModuleType, topic: TopicImage, operations_asked: bool
) -> Any:
    many = len(topic.partitions) > FEW_PARTITIONS
    rows = _written_rows if many else _rows
    return build(
        module.MetadataResponseTopic,
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(rows(context, module, topic)),
        topic_authorized_operations=topic_operations(context, topic.name) if operations_asked else NOT_ASKED,
    )


def _rows(context: RequestContext[Services], module: ModuleType, topic: TopicImage) -> Iterator[Any]:
    served = context.services.partitions.registry.by_name.get(topic.name)
    for index, image in topic.partitions.items():
        yield _row(module, index, partition_state(context, image, served, index))


def _written_rows(
    context: RequestContext[Services], module: ModuleType, topic: TopicImage
) -> Iterator[EncodedEntity]:
    """Yield the encoded partitions of a topic; those that differ only in their index are encoded once."""
    served = context.services.partitions.registry.by_name.get(topic.name)
    seen: dict[Any, tuple[bytes, bytes]] = {}
    for index, image in topic.partitions.items():
        state = partition_state(context, image, served, index)
        around = seen.get(state)
        if around is None:
            row = written(_row(module, index, state))
            around = seen[state] = row[: INDEX_IN_ROW.start], row[INDEX_IN_ROW.stop :]
        yield EncodedEntity(around[0] + index.to_bytes(4, "big") + around[1])


def _row(module: ModuleType, index: int, state: PartitionState) -> Any:
    return build(
        module.MetadataResponsePartition,
        error_code=state.error_code,
        partition_index=index,
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=state.offline_replicas,
    )


def _topic_error(
    module: ModuleType,
    error: ErrorCode,
    name: str | None,
    topic_id: uuid.UUID | None,
    operations: int = NOT_ASKED,
) -> Any:
    return build(
        module.MetadataResponseTopic,
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=error is not ErrorCode.topic_authorization_failed and name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )


API = Api(key=3, versions=(0, 13), reaches=api.everything, handle=handle, may_be_given_up=True)
