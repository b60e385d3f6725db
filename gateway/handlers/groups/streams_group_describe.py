"""StreamsGroupDescribe (key 89, version 0): describe streams groups, their topology, members and tasks (KIP-1071).

The topology has the partitions of its internal topics once all topics exist; before, it is as the application described it.
Source: Kafka's GroupMetadataManager.streamsGroupDescribe, StreamsGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment, Tasks, by_subtopology
from gateway.coordinator.streams.topology import TopicInfo
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.described_group import GroupDescription, describe_each
from gateway.protocol.messages import build
from gateway.runtime.services import CoordinatorServices

API_KEY: Final = 89
HIDDEN_TOPICS: Final = "The described group uses topics that the client is not authorized to describe."


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Describe each group of the request."""
    groups = context.services.groups

    def describe(module: Any, group: StreamsGroup) -> GroupDescription:
        return GroupDescription(
            group.state_text,
            group.group_epoch,
            group.assignment.assignment_epoch,
            None,
            tuple(_member(module, group, member) for member in group.members.values()),
            _topology(module, group),
        )

    return await describe_each(
        context,
        request,
        API_KEY,
        lambda group_id: groups.shard_of(group_id).streams.groups.get(group_id),
        describe,
        _topics_of,
        HIDDEN_TOPICS,
    )


def _topics_of(description: GroupDescription) -> Iterable[str]:
    """Yield the names of the topics of the topology."""
    subtopologies = () if description.topology is None else description.topology.subtopologies
    for found in subtopologies:
        yield from found.source_topics
        yield from found.repartition_sink_topics
        yield from (topic.name for topic in found.repartition_source_topics)
        yield from (topic.name for topic in found.state_changelog_topics)


def _topology(module: Any, group: StreamsGroup) -> Any:
    configured, topology = group.configured, group.topology
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        found = tuple(_subtopology(module, name, each) for name, each in configured.subtopologies.items())
        return build(module.Topology, epoch=configured.epoch, subtopologies=found)
    if topology is None:
        return None
    found = tuple(_subtopology(module, name, each) for name, each in topology.by_id.items())
    return build(module.Topology, epoch=topology.epoch, subtopologies=found)


def _subtopology(module: Any, subtopology_id: str, subtopology: Any) -> Any:
    """Describe a subtopology, configured or not; both kinds have these fields."""
    return build(
        module.Subtopology,
        subtopology_id=subtopology_id,
        source_topics=tuple(sorted(subtopology.source_topics)),
        repartition_sink_topics=tuple(sorted(subtopology.repartition_sink_topics)),
        state_changelog_topics=_topics(module, subtopology.state_changelog_topics),
        repartition_source_topics=_topics(module, subtopology.repartition_source_topics),
    )


def _topics(module: Any, topics: Iterable[TopicInfo]) -> tuple[Any, ...]:
    return tuple(
        build(
            module.TopicInfo,
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=_pairs(module, topic.configs),
        )
        for topic in sorted(topics)
    )


def _pairs(module: Any, pairs: Iterable[tuple[str, str]]) -> tuple[Any, ...]:
    return tuple(build(module.KeyValue, key=key, value=value) for key, value in pairs)


def _member(module: Any, group: StreamsGroup, member: StreamsMember) -> Any:
    value, current = member.value, member.current
    endpoint = value.user_endpoint
    return build(
        module.Member,
        member_id=member.member_id,
        member_epoch=current.member_epoch,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None
        if endpoint is None
        else build(module.Endpoint, host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(module, value.client_tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=_assignment(module, current.assigned.tasks),
        target_assignment=_assignment(module, group.targets.get(member.member_id, NO_ASSIGNMENT)),
        is_classic=False,
    )


def _assignment(module: Any, tasks: TaskAssignment) -> Any:
    return build(
        module.Assignment,
        active_tasks=_task_ids(module, tasks.active),
        standby_tasks=_task_ids(module, tasks.standby),
        warmup_tasks=_task_ids(module, tasks.warmup),
    )


def _task_ids(module: Any, tasks: Tasks) -> tuple[Any, ...]:
    return tuple(
        build(module.TaskIds, subtopology_id=name, partitions=tuple(partitions))
        for name, partitions in by_subtopology(tasks).items()
    )


API = Api(
    key=API_KEY,
    name="StreamsGroupDescribe",
    min_version=0,
    max_version=0,
    reaches=api.coordinators,
    handle=handle,
    may_be_given_up=True,
)
