"""Creates the internal topics of a streams group in the background, as Kafka does: the answer to a heartbeat does not wait.

Source: Kafka's `KafkaApis.handleStreamsGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.coordinator.streams.internal_topics import Status, StatusNote
from gateway.coordinator.streams.request import StreamsReply
from gateway.coordinator.streams.topology import TopicInfo
from gateway.handlers.answering.api import RequestContext
from gateway.handlers.answering.changes import fresh_topic_id, log_change, partitions_text
from gateway.handlers.answering.rights import has_on_cluster
from gateway.metadata.decision import Decision
from gateway.metadata.image import MetadataImage
from gateway.metadata.topics import NewTopic, TopicResult, create_topics
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation
from log import LogError

logger = logging.getLogger(__name__)

_KEPT_INTERVALS: Final = 2
"""Heartbeat intervals for which a failure is reported, before the creation is tried again."""
_SHOWN: Final = 3
_DEFAULT_REPLICAS: Final = -1


def create_missing(context: RequestContext[Services], group_id: str, reply: StreamsReply) -> StreamsReply:
    """Begin to create the internal topics that are missing; return the answer with the reasons why earlier tries failed."""
    if not reply.missing:
        return reply
    refused = _refused(context, [topic.name for topic in reply.missing])
    if refused:
        return _with_detail(reply, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
    topics = context.services.coordinators.streams_topics
    names = topics.begin(topic.name for topic in reply.missing)
    if names:
        wanted = [topic for topic in reply.missing if topic.name in names]
        tasks = context.node.tasks
        task = tasks.begin(f"create the internal topics of {group_id}", is_brief=True)
        tasks.start(task, _create(context, group_id, wanted))
    failures = topics.failures(topic.name for topic in reply.missing)
    return _with_failures(reply, failures) if failures else reply


def _refused(context: RequestContext[Services], names: Sequence[str]) -> list[str]:
    """Return the topics that the client may not create."""
    if has_on_cluster(context, Operation.CREATE):
        return []
    return [name for name in names if not context.may_topic(Operation.CREATE, name)]


async def _create(context: RequestContext[Services], group_id: str, wanted: Sequence[TopicInfo]) -> None:
    coordinators = context.services.coordinators
    keep_ms = _KEPT_INTERVALS * coordinators.group_configs.streams_limits(group_id).heartbeat_interval_ms
    names = [topic.name for topic in wanted]
    failures = dict.fromkeys(names, "The creation was interrupted.")
    try:
        results = await context.services.topics.metadata_log.commit(
            lambda image: _decide(context, image, wanted)
        )
        failures = {
            result.name: result.error.message or result.error.error_code.name
            for result in results
            if result.name is not None and result.error is not None
        }
        created = [
            f"{result.name} ({partitions_text(result.num_partitions)})"
            for result in results
            if result.error is None
        ]
        log_change(context, f"streams group {group_id} created internal topic", created)
    except LogError as error:
        logger.error("the internal topics of group %s can't be created: %s", group_id, error)  # noqa: TRY400
        failures = dict.fromkeys(names, str(error))
    finally:
        coordinators.streams_topics.ended(names, failures, keep_ms)


def _decide(
    context: RequestContext[Services], image: MetadataImage, wanted: Sequence[TopicInfo]
) -> Decision[list[TopicResult]]:
    """Create the topics, except for those that exist by now."""
    node = context.node
    topics = [
        NewTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor or _DEFAULT_REPLICAS,
            configs=topic.configs,
        )
        for topic in wanted
        if topic.name not in image.topics_by_name
    ]
    return create_topics(
        image,
        topics,
        fresh_ids=[fresh_topic_id() for _ in topics],
        config=node.config,
        node_id=node.node_id,
    )


def _with_failures(reply: StreamsReply, failures: dict[str, str]) -> StreamsReply:
    shown = ", ".join(f"{name} ({message})" for name, message in list(failures.items())[:_SHOWN])
    more = f" and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    return _with_detail(reply, f"Creation failed: {shown}{more}.")


def _with_detail(reply: StreamsReply, detail: str) -> StreamsReply:
    """Return the answer with the reason why internal topics are missing."""
    notes = tuple(
        StatusNote(note.status, f"{note.detail}; {detail}")
        if note.status is Status.MISSING_INTERNAL_TOPICS
        else note
        for note in reply.notes
    )
    return replace(reply, notes=notes)
