"""CreatePartitions (key 37, versions 0-3): add partitions to existing topics.

The client needs ALTER on the topic. This is checked before anything but repeated names, so a refusal does not
tell whether the topic exists. Source: Kafka's ControllerApis.createPartitions,
ReplicationControlManager.createPartitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.mutation_quota import charge_mutations
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata, log_change
from seqgate.gateway.handlers.answering.rights import refused_topics
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.topics import MorePartitions, TopicResult, create_partitions
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

_DENIED: Final = ApiError(ErrorCode.topic_authorization_failed)

STRICT_SINCE: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
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
            image,
            some,
            config=node.config,
            node_id=node.node_id,
            validate_only=request.validate_only,
        ),
        key=lambda topic: topic.name,
        partitions=lambda image, result: _added(image, str(result.name), counts),
        strict_since=STRICT_SINCE,
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
    results = [TopicResult(name=name, error=_DENIED) for name in sorted(denied)] + results
    module = context.response_module
    return build(
        module.CreatePartitionsResponse,
        results=tuple(
            build(
                module.CreatePartitionsTopicResult,
                name=result.name,
                error_code=result.error.error_code if result.error else ErrorCode.none,
                error_message=result.error.message if result.error else None,
            )
            for result in results
        ),
    )


def _added(image: MetadataImage, name: str, counts: Mapping[str, int]) -> int:
    return counts[name] - len(image.topics_by_name[name].partitions)


def _more_partitions(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        name=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [entry.broker_ids for entry in assignments],
    )


API = Api(37, "CreatePartitions", 0, 3, api.topics, handle=handle)
