"""Topics: created, enlarged by partitions, and deleted.

CreateTopics (key 19, versions 2-7): create topics with their partitions and configurations. Rights:
`CREATE` on the cluster; `CREATE` on the topic (or this); `DESCRIBE_CONFIGS` on the topic (else the answer has
no configuration).

Each topic succeeds or fails by itself. The answer leaves when the topics are durable and their logs exist.
From v5 on it has the effective configuration, from v7 on the topic id.

The right is checked before anything but repeated names, so a refusal does not tell whether the topic exists;
refused topics are listed last. From v5 on a topic is created for a client without DESCRIBE_CONFIGS on it,
too, but its configuration and numbers stay out of the answer. `create_topics` in `metadata/topics.py`
decides. Source: Kafka's ControllerApis.createTopics, ReplicationControlManager.createTopic.

CreatePartitions (key 37, versions 0-3): add partitions to existing topics. Rights: `ALTER` on the topic.

The right is checked before anything but repeated names, so a refusal does not tell whether the topic exists.
`create_partitions` in `metadata/topics.py` decides. Source: Kafka's ControllerApis.createPartitions,
ReplicationControlManager.createPartitions.

DeleteTopics (key 20, versions 1-6): delete topics by name, from v6 on also by id. Rights: `DELETE` on the
cluster; `DELETE` on the topic (or this, and DESCRIBE where the topic is named); `DESCRIBE` on the topic (to
learn whether the name exists, or the name of an id).

TOPIC_AUTHORIZATION_FAILED has the name of a topic deleted by id only if the client may describe the topic,
and does not tell whether a topic exists that the client may not describe. The results come in the order of
the request; Kafka shuffles them. `delete_topics` in `metadata/topics.py` decides. Source: Kafka's
ControllerApis.deleteTopics.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata, fresh_id, log_change, partitions_text
from seqgate.gateway.handlers.answering.rights import NOTHING, has_on_cluster, refused_topics, unseen_topics
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.described import describe_topic
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage
from seqgate.gateway.metadata.topics import (
    DeletionRight,
    MorePartitions,
    TopicCreation,
    TopicResult,
    TopicToDelete,
    create_partitions,
    create_topics,
    delete_topics,
)
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_CONFIGS: Final = 5
CREATE_TOPICS_STRICT_SINCE: Final = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_DENIED: Final = ApiError(ErrorCode.topic_authorization_failed, "Authorization failed.")


async def handle_create_topics(context: RequestContext[TopicServices], request: Any) -> Any:
    """Create the topics, or only check them when `validate_only` is set."""
    node = context.node
    denied = await _denied(context, request.topics)
    undescribed = await _undescribed(context, request.topics)
    topics = [(_new_topic(topic), fresh_id()) for topic in request.topics if topic.name not in denied]
    decide = charge_mutations(
        context,
        topics,
        lambda image, some: create_topics(
            image,
            [topic for topic, _ in some],
            fresh_ids=[fresh_id for _, fresh_id in some],
            config=node.config,
            node_id=node.node_id,
            validate_only=request.validate_only,
        ),
        key=lambda pair: pair[0].name,
        partitions=lambda _, result: result.num_partitions,
        strict_since=CREATE_TOPICS_STRICT_SINCE,
    )

    def note(results: Sequence[TopicResult]) -> None:
        created = [result for result in results if not result.error]
        names = [f"{topic.name} ({partitions_text(topic.num_partitions)})" for topic in created]
        if not request.validate_only:
            log_change(context, "created topic", names)

    results = await change_metadata(context, decide, request.timeout, note=note)
    if isinstance(results, ApiError):
        results = [TopicResult(name=topic.name, error=results) for topic, _ in topics]
    results += [TopicResult(name=name, error=_DENIED) for name in sorted(denied)]
    module = context.response_module
    return context.answer(
        topics=tuple([_result(context, module, result, undescribed) async for result in in_slices(results)])
    )


async def _denied(context: RequestContext[TopicServices], topics: Sequence[Any]) -> AbstractSet[str]:
    """Return the names of the topics that the client may not create. Repeated names and the name of the
    metadata log are refused for that, whatever the client may do.
    """
    if has_on_cluster(context, Operation.CREATE):
        return NOTHING
    times = Counter(topic.name for topic in topics)
    asked = (name for name, count in times.items() if count == 1 and name != METADATA_TOPIC)
    return await refused_topics(context, Operation.CREATE, asked)


async def _undescribed(context: RequestContext[TopicServices], topics: Sequence[Any]) -> AbstractSet[str]:
    if context.api_version < FIRST_WITH_CONFIGS:
        return NOTHING
    return await unseen_topics(context, Operation.DESCRIBE_CONFIGS, (topic.name for topic in topics))


def _new_topic(topic: Any) -> TopicCreation:
    return TopicCreation(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=[(entry.name, entry.value) for entry in topic.configs],
    )


def _result(
    context: RequestContext[TopicServices],
    module: ModuleType,
    result: TopicResult,
    undescribed: AbstractSet[str],
) -> Any:
    shown: dict[str, Any] = {"topic_id": None, "configs": ()}
    if result.error is None:
        shown["topic_id"] = result.topic_id
        if result.name in undescribed:
            shown["topic_config_error_code"] = int(ErrorCode.topic_authorization_failed)
        else:
            shown["num_partitions"] = result.num_partitions
            shown["replication_factor"] = result.replication_factor
            shown["configs"] = _effective_configs(context, result)
    return build(module.CreatableTopicResult, name=result.name, **told(result.error), **shown)


def _effective_configs(context: RequestContext[TopicServices], result: TopicResult) -> list[dict[str, Any]]:
    if context.api_version < FIRST_WITH_CONFIGS:
        return []
    return [
        {
            "name": described.name,
            "value": described.value,
            "read_only": described.read_only,
            "config_source": described.source,
            "is_sensitive": described.is_sensitive,
        }
        for described in describe_topic(context.node.config, result.configs or {})
    ]


_CREATE_PARTITIONS_DENIED: Final = ApiError(ErrorCode.topic_authorization_failed)

CREATE_PARTITIONS_STRICT_SINCE: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle_create_partitions(context: RequestContext[TopicServices], request: Any) -> Any:
    """Add the partitions, or only check the request when `validate_only` is set."""
    node = context.node
    times = Counter(topic.name for topic in request.topics)
    once = (name for name, count in times.items() if count == 1)
    denied = await refused_topics(context, Operation.ALTER, once)
    topics = [_more_partitions(topic) for topic in request.topics if topic.name not in denied]
    counts = {topic.name: topic.count for topic in topics}
    decide = charge_mutations(
        context,
        topics,
        lambda image, some: create_partitions(
            image, some, config=node.config, node_id=node.node_id, validate_only=request.validate_only
        ),
        key=lambda topic: topic.name,
        partitions=lambda image, result: _added(image, str(result.name), counts),
        strict_since=CREATE_PARTITIONS_STRICT_SINCE,
    )

    def note(results: Sequence[TopicResult]) -> None:
        grown = [str(result.name) for result in results if not result.error]
        if not request.validate_only:
            log_change(
                context, "added partitions to topic", [f"{name} (now {counts[name]})" for name in grown]
            )

    results = await change_metadata(context, decide, request.timeout, note=note)
    if isinstance(results, ApiError):
        results = [TopicResult(name=topic.name, error=results) for topic in topics]
    results = [TopicResult(name=name, error=_CREATE_PARTITIONS_DENIED) for name in sorted(denied)] + results
    return context.answer(results=[{"name": result.name, **told(result.error)} for result in results])


def _added(image: MetadataImage, name: str, counts: Mapping[str, int]) -> int:
    return counts[name] - len(image.topics_by_name[name].partitions)


def _more_partitions(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        name=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [entry.broker_ids for entry in assignments],
    )


CREATE_PARTITIONS_API = Api(37, 0, 3, api.topics, handle=handle_create_partitions)


FIRST_WITH_DELETION_DISABLED: Final = 3
DELETE_TOPICS_STRICT_SINCE: Final = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle_delete_topics(context: RequestContext[TopicServices], request: Any) -> Any:
    """Delete the topics, unless `delete.topic.enable` is off."""
    if context.api_version >= 6:
        topics = [TopicToDelete(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]
    else:
        topics = [TopicToDelete(name=name) for name in request.topic_names]
    results: list[TopicResult] | ApiError
    if context.node.config.bool("delete.topic.enable"):
        decide = charge_mutations(
            context,
            topics,
            lambda image, some: delete_topics(image, some, _right_on(context)),
            key=lambda topic: topic.name or topic.topic_id,
            partitions=lambda image, result: len(image.topics_by_name[str(result.name)].partitions),
            strict_since=DELETE_TOPICS_STRICT_SINCE,
        )
        results = await change_metadata(
            context, decide, request.timeout, note=lambda results: _note(context, results)
        )
    else:
        has_code = context.api_version >= FIRST_WITH_DELETION_DISABLED
        code = ErrorCode.topic_deletion_disabled if has_code else ErrorCode.invalid_request
        results = ApiError(code, "Topic deletion is disabled.")
    if isinstance(results, ApiError):
        results = [TopicResult(name=topic.name, topic_id=topic.topic_id, error=results) for topic in topics]
    return context.answer(
        responses=[
            {"name": result.name, "topic_id": result.topic_id, **told(result.error)} for result in results
        ]
    )


def _note(context: RequestContext[TopicServices], results: Sequence[TopicResult]) -> None:
    log_change(context, "deleted topic", [str(result.name) for result in results if not result.error])


def _right_on(context: RequestContext[TopicServices]) -> Callable[[str], DeletionRight] | None:
    """Return the function that returns the client's rights on a topic; None if it may delete all topics."""
    if has_on_cluster(context, Operation.DELETE):
        return None

    def right(name: str) -> DeletionRight:
        return DeletionRight(
            describe=context.may_topic(Operation.DESCRIBE, name),
            delete=context.may_topic(Operation.DELETE, name),
        )

    return right


DELETE_TOPICS_API = Api(20, 1, 6, api.topics, handle=handle_delete_topics)


CREATE_TOPICS_API = Api(19, 2, 7, api.topics, handle=handle_create_topics)


# The charge of created and deleted partitions to `controller_mutation_rate` (KIP-599).

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

    A request of a newer version gets THROTTLING_QUOTA_EXCEEDED for each topic that comes after the one that
    overdrew the quota; the changes of an older version are made, and the client is throttled after them. A
    topic that is refused for another reason is not charged. Source: Kafka's ControllerMutationQuotaManager,
    ControllerApis.

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
