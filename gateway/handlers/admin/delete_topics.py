"""DeleteTopics (key 20, versions 1-6): delete topics by name, from v6 on also by id.

The client needs DELETE on the topic or on the cluster. TOPIC_AUTHORIZATION_FAILED has the name of a topic
deleted by id only if the client may describe the topic, and does not tell whether a topic exists that the
client may not describe. Source: Kafka's ControllerApis.deleteTopics. The results come in the order of the
request; Kafka shuffles them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.mutation_quota import charge_mutations
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata, log_change
from seqgate.gateway.handlers.answering.rights import has_on_cluster
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.topics import DeletionRight, TopicResult, TopicToDelete, delete_topics
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

STRICT_SINCE: Final = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
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
            strict_since=STRICT_SINCE,
        )
        results = await change_metadata(
            context, decide, request.timeout, note=lambda results: _note(context, results)
        )
    else:
        results = _disabled(context.api_version)
    if isinstance(results, ApiError):
        results = [TopicResult(name=topic.name, topic_id=topic.topic_id, error=results) for topic in topics]
    module = context.response_module
    return build(
        module.DeleteTopicsResponse,
        responses=tuple(
            build(
                module.DeletableTopicResult,
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.error_code if result.error else ErrorCode.none,
                error_message=result.error.message if result.error else None,
            )
            for result in results
        ),
    )


def _note(context: RequestContext[TopicServices], results: Sequence[TopicResult]) -> None:
    log_change(context, "deleted topic", [str(result.name) for result in results if not result.error])


def _right_on(context: RequestContext[TopicServices]) -> Callable[[str], DeletionRight] | None:
    """Return the function that returns the client's rights on a topic; None if the client may delete all
    topics.
    """
    if has_on_cluster(context, Operation.DELETE):
        return None

    def right(name: str) -> DeletionRight:
        return DeletionRight(
            describe=context.may_topic(Operation.DESCRIBE, name),
            delete=context.may_topic(Operation.DELETE, name),
        )

    return right


def _disabled(api_version: int) -> ApiError:
    code = ErrorCode.topic_deletion_disabled if api_version >= 3 else ErrorCode.invalid_request
    return ApiError(code, "Topic deletion is disabled.")


API = Api(20, "DeleteTopics", 1, 6, api.topics, handle=handle)
