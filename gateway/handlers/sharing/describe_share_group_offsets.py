"""DescribeShareGroupOffsets (key 90, versions 0–1): describe the start offsets and the lag of share groups.

A client needs DESCRIBE on the group and on each topic; a request for all topics gets those that the client may describe. The start offsets
are those of the share coordinators, and the ends those of the leaders, whichever gateways these are.
Source: Kafka's GroupCoordinatorService.describeShareGroupOffsets, KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.places import TopicPartition
from gateway.coordinator.share.records import SharePartitionKey
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.named_twice import to_answer
from gateway.handlers.answering.rights import refused_topics_now
from gateway.handlers.sharing.share_group_offsets import NOT_READABLE
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.runtime.topics.latest_offsets import LatestOffsets
from gateway.security.acls.codes import Operation, ResourceType

API_KEY: Final = 90
UNKNOWN: Final = -1


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Describe each group; null topics mean all partitions that it ever read.

    An unknown partition gets no offset, no error.
    """
    module = response_module(API_KEY, context.api_version)
    asked = to_answer(request.groups, lambda group: group.group_id)
    answers = {group: await _group(context, module, group) async for group in in_slices(dict.fromkeys(asked))}
    return build(module.DescribeShareGroupOffsetsResponse, groups=tuple(answers[group] for group in asked))


async def _group(context: RequestContext[Services], module: Any, asked: Any) -> Any:
    if not context.may_group(Operation.DESCRIBE, asked.group_id):
        return _described(module, asked.group_id, (), ErrorCode.group_authorization_failed)
    shares = context.services.coordinators.shares
    if context.services.coordinators.groups.shards.is_elsewhere(asked.group_id):
        return _described(module, asked.group_id, (), ErrorCode.not_coordinator)
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        found = context.services.partitions.registry.by_id
        try:
            begun = shares.begun(asked.group_id)
        except Unavailable as error:
            return _described(module, asked.group_id, (), error.error_code)
        for topic_id, index in sorted(begun):
            if topic_id in found:
                wanted.setdefault(found[topic_id].name, []).append(index)
    else:
        wanted = {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in asked.topics}
    hidden: AbstractSet[str]
    if asked.topics is None:
        hidden = {name for name in wanted if not context.could(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    else:
        hidden = refused_topics_now(context, Operation.DESCRIBE, wanted)
    try:
        progress = await _progress(context, asked.group_id, wanted, hidden)
    except Unavailable as error:
        return _described(module, asked.group_id, (), error.error_code)
    topics = tuple(
        _hidden_topic(module, name, indexes)
        if name in hidden
        else _topic(context, module, name, indexes, progress)
        for name, indexes in wanted.items()
        if asked.topics is not None or name not in hidden
    )
    return _described(module, asked.group_id, topics, ErrorCode.none)


def _described(module: Any, group_id: str, topics: tuple[Any, ...], error: ErrorCode) -> Any:
    return build(
        module.DescribeShareGroupOffsetsResponseGroup,
        group_id=group_id,
        topics=topics,
        error_code=error,
        error_message=None,
    )


async def _progress(
    context: RequestContext[Services],
    group_id: str,
    wanted: Mapping[str, list[int]],
    hidden: AbstractSet[str],
) -> Mapping[TopicPartition, tuple[int, int]]:
    """Return the start offset and the lag of each partition that the group reads; UNKNOWN for a lag that is not known. Raises Unavailable."""
    by_name = context.services.partitions.registry.by_name
    keys = {
        SharePartitionKey(group_id, topic.topic_id, index): (name, index)
        for name, indexes in wanted.items()
        if name not in hidden and (topic := by_name.get(name)) is not None
        for index in indexes
    }
    found = await context.services.coordinators.shares.persister.progress(keys)
    begun = {keys[key]: summary for key, summary in found.items() if summary.start_offset >= 0}
    node = context.node
    ends = await LatestOffsets(
        context.services.partitions.registry,
        context.services.topics.metadata_log.image,
        node.brokers,
        node.peers,
    ).of(begun)
    return {
        place: (
            summary.start_offset,
            max(0, ends[place] - summary.start_offset - summary.done) if place in ends else UNKNOWN,
        )
        for place, summary in begun.items()
    }


def _topic(
    context: RequestContext[Services],
    module: Any,
    name: str,
    indexes: list[int],
    progress: Mapping[TopicPartition, tuple[int, int]],
) -> Any:
    topic = context.services.partitions.registry.by_name.get(name)
    rows = []
    for index in indexes:
        start_offset, lag = progress.get((name, index), (UNKNOWN, UNKNOWN))
        rows.append(
            build(
                module.DescribeShareGroupOffsetsResponsePartition,
                partition_index=index,
                start_offset=start_offset,
                leader_epoch=0,
                lag=lag,
                error_code=ErrorCode.none,
                error_message=None,
            )
        )
    return build(
        module.DescribeShareGroupOffsetsResponseTopic,
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(rows),
    )


def _hidden_topic(module: Any, name: str, indexes: list[int]) -> Any:
    """Return the answer for a topic that the client may not describe, whether or not it exists."""
    return build(
        module.DescribeShareGroupOffsetsResponseTopic,
        topic_name=name,
        topic_id=None,
        partitions=tuple(
            build(
                module.DescribeShareGroupOffsetsResponsePartition,
                partition_index=index,
                start_offset=UNKNOWN,
                leader_epoch=0,
                lag=UNKNOWN,
                error_code=ErrorCode.topic_authorization_failed,
                error_message=NOT_READABLE,
            )
            for index in indexes
        ),
    )


API = Api(
    key=API_KEY,
    name="DescribeShareGroupOffsets",
    min_version=0,
    max_version=1,
    reaches=api.everything,
    handle=handle,
    may_be_given_up=True,
)
