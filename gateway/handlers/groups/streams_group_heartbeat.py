"""StreamsGroupHeartbeat (key 88, version 0): join, stay in and leave the group of a Kafka Streams application (KIP-1071).

The coordinator assigns the application's tasks, and creates its repartition and changelog topics in the background.
Source: Kafka's KafkaApis.handleStreamsGroupHeartbeat, GroupMetadataManager.streamsGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused
from gateway.coordinator.streams.records import Endpoint
from gateway.coordinator.streams.request import EndpointPartitions, StreamsHeartbeat, StreamsReply, check
from gateway.coordinator.streams.task_assignor import TaskAssignment, TaskId, Tasks, by_subtopology
from gateway.coordinator.streams.topology import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_extent,
    refused,
)
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.rights import describes_all
from gateway.handlers.groups.streams_topics import create_missing
from gateway.metadata.topic_names import INTERNAL_TOPICS, name_complaint
from gateway.protocol.messages import build, milliseconds, response_module, response_type
from gateway.runtime.coordinators.group_log import log_refused
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

API_KEY: Final = 88
_NO_TIME: Final = timedelta(0)


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Handle the heartbeat; the answer leaves when its effects are durable.

    A client needs READ on the group, and DESCRIBE on every topic of its topology. The internal topics that are missing are
    created for a client that has CREATE on the cluster or on each of these topics.
    """
    version, groups = context.api_version, context.services.coordinators.groups
    if not context.may_group(Operation.READ, request.group_id):
        return _refused(version, ErrorCode.group_authorization_failed, None)
    heartbeat = _heartbeat(context, request)
    try:
        if heartbeat.topology is not None:
            check_extent(heartbeat.topology)
            _check_names(heartbeat.topology)
            if not await describes_all(context, heartbeat.topology.named_topics):
                return _refused(version, ErrorCode.topic_authorization_failed, None)
        check(heartbeat)
        await groups.ensure_topic()
        reply = await groups.run(
            heartbeat.group_id, lambda shard, effects: shard.members.streams_heartbeat(heartbeat, effects)
        )
    except HeartbeatRefused as error:
        log_refused(heartbeat.group_id, heartbeat.member_id, error)
        return _refused(version, error.error_code, str(error))
    except Unavailable as error:
        return _refused(version, error.error_code, None)
    if reply.member_epoch < 0:
        return _answer(version, reply, _NO_TIME)
    limits = context.services.coordinators.group_configs.streams_limits(heartbeat.group_id)
    reply = create_missing(context, heartbeat.group_id, reply)
    return _answer(version, reply, timedelta(milliseconds=limits.heartbeat_interval_ms))


def _check_names(topology: Topology) -> None:
    """Refuse a topology that names internal topics of the coordinators, or impossible topics. Raises HeartbeatRefused."""
    names = topology.named_topics
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        text = (
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        )
        raise refused(text)
    invalid = [name for name in names if name_complaint(name) is not None]
    if invalid:
        raise refused(f"Topic names {','.join(invalid)} are not valid topic names.")


# --- the request


def _heartbeat(context: RequestContext[Services], request: Any) -> StreamsHeartbeat:
    owned = request.active_tasks, request.standby_tasks, request.warmup_tasks
    has_all, has_none = None not in owned, all(tasks is None for tasks in owned)
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=context.client_id,
        client_host=f"/{context.peer_host}",
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        topology=None if request.topology is None else _topology(request.topology),
        owned=TaskAssignment(*map(_tasks, owned)) if has_all else None,
        has_some_owned=not has_all and not has_none,
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else _pairs(tags),
        has_task_offsets=request.task_offsets is not None,
        has_task_end_offsets=request.task_end_offsets is not None,
        is_shutdown_asked=request.shutdown_application,
    )


def _pairs(entries: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((entry.key, entry.value) for entry in entries)


def _tasks(entries: Iterable[Any]) -> Tasks:
    return frozenset(
        TaskId(entry.subtopology_id, partition) for entry in entries for partition in entry.partitions
    )


def _topology(topology: Any) -> Topology:
    return Topology(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(entry: Any) -> Subtopology:
    return Subtopology(
        entry.subtopology_id,
        tuple(entry.source_topics),
        tuple(entry.source_topic_regex),
        tuple(map(_topic, entry.state_changelog_topics)),
        tuple(entry.repartition_sink_topics),
        tuple(map(_topic, entry.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in entry.copartition_groups
        ),
    )


def _topic(topic: Any) -> TopicInfo:
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.topic_configs))


# --- the answer


def _answer(version: int, reply: StreamsReply, interval: timedelta) -> Any:
    module, tasks = response_module(API_KEY, version), reply.tasks
    return build(
        response_type(API_KEY, version),
        error_code=ErrorCode.none,
        error_message=None,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=interval,
        acceptable_recovery_lag=0,
        task_offset_interval=_NO_TIME,
        status=tuple(
            build(module.Status, status_code=int(note.status), status_detail=note.detail)
            for note in reply.notes
        ),
        active_tasks=None if tasks is None else _task_ids(module, tasks.active),
        standby_tasks=None if tasks is None else _task_ids(module, tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(module, tasks.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if reply.endpoints is None
        else tuple(_endpoint(module, each) for each in reply.endpoints),
    )


def _refused(version: int, error: ErrorCode, message: str | None) -> Any:
    return build(
        response_type(API_KEY, version),
        error_code=error,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval=_NO_TIME,
        acceptable_recovery_lag=0,
        task_offset_interval=_NO_TIME,
        status=(),
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
        endpoint_information_epoch=0,
        partitions_by_user_endpoint=None,
    )


def _task_ids(module: Any, tasks: Tasks) -> tuple[Any, ...]:
    return tuple(
        build(module.TaskIds, subtopology_id=name, partitions=tuple(partitions))
        for name, partitions in by_subtopology(tasks).items()
    )


def _endpoint(module: Any, found: EndpointPartitions) -> Any:
    def partitions(topics: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[Any, ...]:
        return tuple(build(module.TopicPartition, topic=name, partitions=each) for name, each in topics)

    return build(
        module.EndpointToPartitions,
        user_endpoint=build(module.Endpoint, host=found.endpoint.host, port=found.endpoint.port),
        active_partitions=partitions(found.active),
        standby_partitions=partitions(found.standby),
    )


API = Api(
    key=API_KEY,
    name="StreamsGroupHeartbeat",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
    is_eager=True,
)
