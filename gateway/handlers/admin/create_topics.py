"""CreateTopics (key 19, versions 2-7): create topics with their partitions and configurations.

Each topic succeeds or fails by itself. The answer leaves when the topics are durable and their logs exist.
From v5 on it has the effective configuration, from v7 on the topic id.

The client needs CREATE on the cluster or on the topic. This is checked before anything but repeated names, so
a refusal does not tell whether the topic exists; refused topics are listed last. From v5 on a topic is
created for a client without DESCRIBE_CONFIGS on it, too, but its configuration and numbers stay out of the
answer. Source: Kafka's ControllerApis.createTopics, ReplicationControlManager.createTopic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.mutation_quota import charge_mutations
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import (
    change_metadata,
    fresh_topic_id,
    log_change,
    partitions_text,
)
from seqgate.gateway.handlers.answering.rights import NOTHING, has_on_cluster, refused_topics, unseen_topics
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.described import describe_topic
from seqgate.gateway.metadata.image import METADATA_TOPIC
from seqgate.gateway.metadata.topics import NewTopic, TopicResult, create_topics
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_CONFIGS: Final = 5
STRICT_SINCE: Final = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_DENIED: Final = ApiError(ErrorCode.topic_authorization_failed, "Authorization failed.")


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Create the topics, or only check them when `validate_only` is set."""
    node = context.node
    denied = await _denied(context, request.topics)
    undescribed = await _undescribed(context, request.topics)
    topics = [(_new_topic(topic), fresh_topic_id()) for topic in request.topics if topic.name not in denied]
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
        strict_since=STRICT_SINCE,
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
    return build(
        module.CreateTopicsResponse,
        topics=tuple([_result(context, module, result, undescribed) async for result in in_slices(results)]),
    )


async def _denied(context: RequestContext[TopicServices], topics: Sequence[Any]) -> AbstractSet[str]:
    """Return the names of the topics that the client may not create.

    Repeated names and the name of the metadata log are refused for that, whatever the client may do.
    """
    if has_on_cluster(context, Operation.CREATE):
        return NOTHING
    times = Counter(topic.name for topic in topics)
    asked = (name for name, count in times.items() if count == 1 and name != METADATA_TOPIC)
    return await refused_topics(context, Operation.CREATE, asked)


async def _undescribed(context: RequestContext[TopicServices], topics: Sequence[Any]) -> AbstractSet[str]:
    """Return the names of the topics whose configuration the client may not see."""
    if context.api_version < FIRST_WITH_CONFIGS:
        return NOTHING
    return await unseen_topics(context, Operation.DESCRIBE_CONFIGS, (topic.name for topic in topics))


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
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
    if result.error is not None:
        return build(
            module.CreatableTopicResult,
            name=result.name,
            topic_id=None,
            error_code=result.error.error_code,
            error_message=result.error.message,
            configs=(),
        )
    if result.name in undescribed:
        return build(
            module.CreatableTopicResult,
            name=result.name,
            topic_id=result.topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=int(ErrorCode.topic_authorization_failed),
            configs=(),
        )
    return build(
        module.CreatableTopicResult,
        name=result.name,
        topic_id=result.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=_effective_configs(context, module, result),
    )


def _effective_configs(
    context: RequestContext[TopicServices], module: ModuleType, result: TopicResult
) -> tuple[Any, ...]:
    if context.api_version < FIRST_WITH_CONFIGS:
        return ()
    return tuple(
        build(
            module.CreatableTopicConfigs,
            name=described.name,
            value=described.value,
            read_only=described.read_only,
            config_source=described.source,
            is_sensitive=described.is_sensitive,
        )
        for described in describe_topic(context.node.config, result.configs or {})
    )


API = Api(19, "CreateTopics", 2, 7, api.topics, handle=handle)
