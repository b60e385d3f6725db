"""DeleteRecords (key 21, versions 0-2): move the log start offset of partitions forward. Rights: `DELETE` on
the topic.

Offset -1 means the high watermark. The new start is durable before the answer. Where a request names a
partition twice, its last offset counts, as in Kafka. The request's timeout is ignored: in Kafka it concerns
other replicas only. A topic whose cleanup.policy is `compact` refuses the request. With an empty
cleanup.policy this API is the only way to delete records. Partitions of a topic on which the client has no
DELETE get TOPIC_AUTHORIZATION_FAILED, whether they exist or not. Source: Kafka's
KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.handlers.answering.rights import refused_topics
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import persist_start_and_remove
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.upkeep.name_keeping import complete_names, is_behind
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError, retention

logger = logging.getLogger(__name__)

_HIGH_WATERMARK: Final = -1
_NO_LOW_WATERMARK: Final = -1
_DENIED: Final = (_NO_LOW_WATERMARK, ErrorCode.topic_authorization_failed)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Delete the records before each requested offset."""
    limit = TimeLimit(context)
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((entry.partition_index, entry.offset) for entry in topic.partitions)
    denied = await refused_topics(context, Operation.DELETE, wanted)
    topics = []
    for topic_name, offsets in wanted.items():
        partitions, deleted = [], []
        async for index, offset in in_slices(offsets.items()):
            name = f"{topic_name}-{index}"
            try:
                low_watermark, error_code = (
                    _DENIED
                    if topic_name in denied
                    else await limit.run(
                        _delete(context, topic_name, index, offset),
                        name,
                        late=partial(_note_late, context, name),
                    )
                )
            except TimeoutError:
                low_watermark, error_code = _NO_LOW_WATERMARK, ErrorCode.request_timed_out
            if error_code is ErrorCode.none:
                deleted.append(_shown(name, low_watermark))
            partitions.append(
                context.row(
                    "DeleteRecordsPartitionResult",
                    partition_index=index,
                    low_watermark=low_watermark,
                    error_code=error_code,
                )
            )
        log_change(context, "deleted records of", deleted)
        topics.append(context.row("DeleteRecordsTopicResult", name=topic_name, partitions=tuple(partitions)))
    return context.answer(topics=tuple(topics))


def _shown(name: str, low_watermark: int) -> str:
    return f"{name} (before {low_watermark})"


def _note_late(context: RequestContext[Services], name: str, result: tuple[int, ErrorCode]) -> None:
    low_watermark, error_code = result
    if error_code is ErrorCode.none:
        log_change(context, "deleted records of", [_shown(name, low_watermark)])


async def _delete(
    context: RequestContext[Services], topic: str, index: int, offset: int
) -> tuple[int, ErrorCode]:
    partition = context.services.partitions.registry.get(topic, index)
    if partition is None:
        return _NO_LOW_WATERMARK, context.services.partitions.registry.error_without(topic, index)
    if topic in INTERNAL_TOPICS:
        return _NO_LOW_WATERMARK, ErrorCode.invalid_topic_exception
    log = partition.log
    if log.offline:
        return _NO_LOW_WATERMARK, ErrorCode.kafka_storage_error
    configs = context.services.topics.metadata_log.image.topic_configs(topic)
    policies = context.node.config.topic_value("cleanup.policy", configs)
    if isinstance(policies, tuple) and "compact" in policies and "delete" not in policies:
        return _NO_LOW_WATERMARK, ErrorCode.policy_violation
    if offset == _HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        return _NO_LOW_WATERMARK, ErrorCode.offset_out_of_range
    try:
        if is_behind(log):
            await complete_names(partition, context.node.clock, math.inf)
            if partition.closed:
                return _NO_LOW_WATERMARK, _closed(context, topic, index)
        now_ms = context.node.clock.now_ms()
        ticket = retention.prepare_delete_records(log, offset, now_ms)
        if ticket is not None:
            await persist_start_and_remove(partition, ticket, now_ms)
            if partition.closed:
                return _NO_LOW_WATERMARK, _closed(context, topic, index)
            log.check_online()
    except LogError as error:
        logger.error("records of %s-%d can't be deleted: %s", topic, index, error)  # noqa: TRY400
        return _NO_LOW_WATERMARK, ErrorCode(error.kafka_error_code)
    return log.log_start_offset, ErrorCode.none


def _closed(context: RequestContext[Services], topic: str, index: int) -> ErrorCode:
    """Return the error for a closed partition: it is deleted, led elsewhere, or this gateway is stopping."""
    if context.services.partitions.registry.has(topic, index):
        return ErrorCode.not_leader_or_follower
    return ErrorCode.unknown_topic_or_partition


API = Api(key=21, versions=(0, 2), reaches=api.everything, handle=handle)
