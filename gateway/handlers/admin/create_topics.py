"""CreateTopics (key 19, versions 2-7): create topics with their partitions and configurations.

Each topic succeeds or fails by itself. The answer leaves when the topics are durable and their logs exist. From v5 on
it has the effective configuration, from v7 on the topic id. Source: Kafka's ControllerApis.createTopics.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import log_change, partitions_text
from gateway.handlers.answering.fresh_ids import fresh_topic_id
from gateway.handlers.answering.metadata_change import change_metadata
from gateway.metadata.decision import ApiError
from gateway.metadata.described import describe_topic
from gateway.metadata.topics import NewTopic, TopicResult, create_topics
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Create the topics, or only check them when `validate_only` is set."""
    node = context.node
    topics = [_new_topic(topic) for topic in request.topics]
    fresh_ids = [fresh_topic_id() for _ in topics]
    results = await change_metadata(
        context,
        lambda image: create_topics(
            image,
            topics,
            fresh_ids=fresh_ids,
            config=node.config,
            node_id=node.node_id,
            validate_only=request.validate_only,
        ),
        request.timeout,
    )
    if isinstance(results, ApiError):
        results = [TopicResult(name=topic.name, error=results) for topic in topics]
    if not request.validate_only:
        created = [result for result in results if not result.error]
        log_change(
            context,
            "created topic",
            [f"{topic.name} ({partitions_text(topic.num_partitions)})" for topic in created],
        )
    module = response_module(19, context.api_version)
    return build(
        module.CreateTopicsResponse,
        topics=tuple([_result(context, module, result) async for result in in_slices(results)]),
    )


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=[(entry.name, entry.value) for entry in topic.configs],
    )


def _result(context: RequestContext[TopicServices], module: ModuleType, result: TopicResult) -> Any:
    if result.error is not None:
        return build(
            module.CreatableTopicResult,
            name=result.name,
            topic_id=None,
            error_code=result.error.error_code,
            error_message=result.error.message,
            configs=(),
        )
    return build(
        module.CreatableTopicResult,
        name=result.name,
        topic_id=result.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=result.num_partitions,
        replication_factor=1,
        configs=_effective_configs(context, module, result),
    )


def _effective_configs(
    context: RequestContext[TopicServices], module: ModuleType, result: TopicResult
) -> tuple[Any, ...]:
    if context.api_version < 5:
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


API = Api(key=19, name="CreateTopics", min_version=2, max_version=7, reaches=reach.topics, handle=handle)
