"""Streams groups: described, kept by heartbeats, and the description of their topology.

StreamsGroupDescribe (key 89, versions 0–1): describe streams groups, their topology, members and tasks
(KIP-1071), with version 1 also the description of the topology (KIP-1331) and the assignor (KIP-1357).
Rights: `DESCRIBE` on the group; `DESCRIBE` on the topic (each topic of the topology).

The topology has the partitions of its internal topics once all topics exist; before, it is as the application
described it. `describe_each` in `handlers/answering/described_group.py` decides who may see a group. Source:
Kafka's GroupMetadataManager.streamsGroupDescribe, StreamsGroup.asDescribedGroup.

StreamsGroupHeartbeat (key 88, versions 0–1): join, stay in and leave the group of a Kafka Streams application
(KIP-1071). Rights: `READ` on the group; `DESCRIBE` on the topic (each topic of the topology); `CREATE` on the
cluster (to create internal topics); `CREATE` on the topic (or this, to create it).

The coordinator assigns the application's tasks: `streams_heartbeat` in `coordinator/streams/heartbeat.py`
decides. The application's repartition and changelog topics are created in the background; the answer does not
wait: `create_missing` in `handlers/groups/streams_group.py` decides. Source: Kafka's
KafkaApis.handleStreamsGroupHeartbeat, GroupMetadataManager.streamsGroupHeartbeat.

StreamsGroupTopologyDescriptionUpdate (key 93, version 0): store the description of a group's topology, which
a heartbeat asked a member for (KIP-1331). Rights: `READ` on the group.

`store_description` in `handlers/groups/streams_group.py` decides: only a member of the group describes it,
only in the group's present topology epoch, and with at most 10,000 nodes. Source: Kafka's
GroupCoordinatorService.streamsGroupTopologyDescriptionUpdate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.group.consumer_heartbeat import unknown_member
from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import by_topic
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember
from seqgate.gateway.coordinator.streams.heartbeat import (
    ACCEPTABLE_RECOVERY_LAG,
    TASK_OFFSET_INTERVAL_MS,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsLimits,
    StreamsReply,
    TaskOffsets,
    check,
    streams_heartbeat,
)
from seqgate.gateway.coordinator.streams.internal_topics import StatusNote, StreamsGroupStatus
from seqgate.gateway.coordinator.streams.records import StreamsEndpoint
from seqgate.gateway.coordinator.streams.task_assignor import NO_ASSIGNMENT, TaskAssignment, TaskId, Tasks
from seqgate.gateway.coordinator.streams.topology import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_extent,
    refused,
)
from seqgate.gateway.coordinator.streams.topology_description import (
    DESCRIPTION,
    NO_EPOCH,
    PROCESSOR,
    SINK,
    SOURCE,
    Asking,
    DescribedSubtopology,
    GlobalStore,
    Node,
    StoredDescription,
    TopologyDescription,
    current_description,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import fresh_id, log_change, partitions_text
from seqgate.gateway.handlers.answering.described_group import NO_TIME, describe_each, refusing
from seqgate.gateway.handlers.answering.rights import describes_all, has_on_cluster
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, MetadataImage, name_complaint
from seqgate.gateway.metadata.topics import TopicCreation, TopicResult, create_topics
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError

logger = logging.getLogger(__name__)


NOT_REQUESTED: Final = 0
NOT_STORED: Final = 1
AVAILABLE: Final = 3
"""The status of a topology's description in the answer. Kafka has a status 2 for a plugin that failed."""
HIDDEN_TOPICS: Final = "The described group uses topics that the client is not authorized to describe."


async def handle_describe(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    groups = context.services.groups
    with_nodes = getattr(request, "include_topology_description", False)

    def topologies(group: StreamsGroup) -> dict[str, Any]:
        nodes = _nodes(group) if with_nodes else None
        return {
            "topology": _topology(group),
            "topology_description": nodes,
            "topology_description_status": (AVAILABLE if nodes else NOT_STORED)
            if with_nodes
            else NOT_REQUESTED,
        }

    return await describe_each(
        context,
        request,
        lambda group_id: groups.shard_of(group_id).streams.groups.get(group_id),
        _member,
        topologies,
        needs_describe_on=_topics_of_topology,
        hidden_message=HIDDEN_TOPICS,
        no_assignor=None,
    )


def _nodes(group: StreamsGroup) -> dict[str, Any] | None:
    """Return the description of the group's topology; None if there is none of this topology."""
    found = current_description(group)
    if found is None:
        return None
    return {
        "subtopologies": [
            {"subtopology_id": part.subtopology_id, "nodes": [node._asdict() for node in part.nodes]}
            for part in found.subtopologies
        ],
        "global_stores": [
            {"source": each.source._asdict(), "processor": each.processor._asdict()}
            for each in found.global_stores
        ],
    }


def _topics_of_topology(description: Mapping[str, Any]) -> Iterable[str]:
    topology = description["topology"]
    for found in () if topology is None else topology["subtopologies"]:
        yield from found["source_topics"]
        yield from found["repartition_sink_topics"]
        yield from (topic["name"] for topic in found["repartition_source_topics"])
        yield from (topic["name"] for topic in found["state_changelog_topics"])


def _topology(group: StreamsGroup) -> dict[str, Any] | None:
    configured, topology = group.configured, group.topology
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        found = [_subtopology(name, each) for name, each in configured.subtopologies.items()]
        return {"epoch": configured.epoch, "subtopologies": found}
    if topology is None:
        return None
    found = [_subtopology(name, each) for name, each in topology.by_id.items()]
    return {"epoch": topology.epoch, "subtopologies": found}


def _subtopology(subtopology_id: str, subtopology: Any) -> dict[str, Any]:
    """Describe a subtopology, configured or not; both kinds have these fields."""
    return {
        "subtopology_id": subtopology_id,
        "source_topics": tuple(sorted(subtopology.source_topics)),
        "repartition_sink_topics": tuple(sorted(subtopology.repartition_sink_topics)),
        "state_changelog_topics": _topics(subtopology.state_changelog_topics),
        "repartition_source_topics": _topics(subtopology.repartition_source_topics),
    }


def _topics(topics: Iterable[TopicInfo]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "topic_configs": _pairs(topic.configs),
        }
        for topic in sorted(topics)
    ]


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _member(group: StreamsGroup, member: StreamsMember) -> dict[str, Any]:
    value, current = member.value, member.current
    endpoint = value.user_endpoint
    return {
        "member_id": member.member_id,
        "member_epoch": current.member_epoch,
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "topology_epoch": value.topology_epoch,
        "process_id": value.process_id,
        "user_endpoint": None if endpoint is None else endpoint._asdict(),
        "client_tags": _pairs(value.client_tags),
        "task_offsets": _task_offsets(member.task_offsets),
        "task_end_offsets": _task_offsets(member.task_end_offsets),
        "assignment": _assignment(current.assigned.tasks),
        "target_assignment": _assignment(group.targets.get(member.member_id, NO_ASSIGNMENT)),
        "is_classic": False,
    }


def _task_offsets(offsets: Mapping[TaskId, int]) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": name, "partition": partition, "offset": offset}
        for (name, partition), offset in sorted(offsets.items())
    ]


def _assignment(tasks: TaskAssignment) -> dict[str, Any]:
    return {
        "active_tasks": _task_ids(tasks.active),
        "standby_tasks": _task_ids(tasks.standby),
        "warmup_tasks": _task_ids(tasks.warmup),
    }


def _task_ids(tasks: Tasks) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": name, "partitions": tuple(partitions)}
        for name, partitions in by_topic(tasks).items()
    ]


def _check_names(topology: Topology) -> None:
    """Refuse internal topics of the coordinators and impossible topics. Raises HeartbeatRefused."""
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
    endpoint, tags, topology = request.user_endpoint, request.client_tags, request.topology
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
        topology=None
        if topology is None
        else Topology(topology.epoch, tuple(map(_subtopology_heartbeat, topology.subtopologies))),
        owned=TaskAssignment(*map(_tasks, owned)) if has_all else None,
        has_some_owned=not has_all and not has_none,
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else _pairs_heartbeat(tags),
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        is_shutdown_asked=request.shutdown_application,
        api_version=context.api_version,
    )


def _pairs_heartbeat(entries: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((entry.key, entry.value) for entry in entries)


def _tasks(entries: Iterable[Any]) -> Tasks:
    return frozenset(
        TaskId(entry.subtopology_id, partition) for entry in entries for partition in entry.partitions
    )


def _offsets(entries: Iterable[Any] | None) -> TaskOffsets | None:
    if entries is None:
        return None
    return tuple((TaskId(entry.subtopology_id, entry.partition), entry.offset) for entry in entries)


def _subtopology_heartbeat(entry: Any) -> Subtopology:
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
    return TopicInfo(
        topic.name, topic.partitions, topic.replication_factor, _pairs_heartbeat(topic.topic_configs)
    )


# --- the answer


_NO_REPLY: Final = StreamsReply("", 0)
NO_LAG: Final = -1


def _answer(
    context: RequestContext[Services],
    reply: StreamsReply,
    limits: StreamsLimits | None = None,
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> Any:
    """Return the answer; a member that was refused or has left gets no limits."""
    tasks = {} if reply.tasks is None else _assignment(reply.tasks)
    interval = offset_interval = NO_TIME
    lag = NO_LAG
    if limits is not None:
        interval = timedelta(milliseconds=limits.heartbeat_interval_ms)
        offset_interval = timedelta(milliseconds=TASK_OFFSET_INTERVAL_MS)
        lag = ACCEPTABLE_RECOVERY_LAG
    return context.answer(
        error_code=error,
        error_message=message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=interval,
        # version 0 has another field of this name, which Kafka no longer sets
        acceptable_recovery_lag=lag if context.api_version else 0,
        task_offset_interval=offset_interval,
        status=[{"status_code": int(note.status), "status_detail": note.detail} for note in reply.notes],
        **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks")) | tasks,
        topology_description_required=reply.wants_description,
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if reply.endpoints is None
        else list(map(_endpoint, reply.endpoints)),
    )


def _refused(context: RequestContext[Services], error: ErrorCode, message: str | None = None) -> Any:
    return _answer(context, _NO_REPLY, None, error, message)


def _endpoint(found: EndpointPartitions) -> dict[str, Any]:
    def partitions(topics: Iterable[tuple[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": each} for name, each in topics]

    return {
        "user_endpoint": found.endpoint._asdict(),
        "active_partitions": partitions(found.active),
        "standby_partitions": partitions(found.standby),
    }


@refusing(_refused)
async def handle_heartbeat(context: RequestContext[Services], request: Any) -> Any:
    """Handle the heartbeat; answer when its effects are durable. A client needs READ on the group, DESCRIBE
    on the topology's topics and, to have missing internal topics created, CREATE on the cluster or on each.
    """
    groups = context.services.coordinators.groups
    if not context.may_group(Operation.READ, request.group_id):
        return _refused(context, ErrorCode.group_authorization_failed)
    heartbeat = _heartbeat(context, request)
    if heartbeat.topology is not None:
        check_extent(heartbeat.topology)
        _check_names(heartbeat.topology)
        if not await describes_all(context, heartbeat.topology.named_topics):
            return _refused(context, ErrorCode.topic_authorization_failed)
    check(heartbeat)
    await groups.ensure_topic()
    reply = await groups.run(
        heartbeat.group_id, lambda shard, effects: streams_heartbeat(shard, heartbeat, effects)
    )
    if reply.member_epoch < 0:
        return _answer(context, reply)
    limits = context.services.coordinators.group_configs.of(heartbeat.group_id).streams
    reply = create_missing(context, heartbeat.group_id, reply)
    return _answer(context, reply, limits)


STREAMS_GROUP_HEARTBEAT_API = Api(
    key=88, versions=(0, 1), reaches=api.everything, handle=handle_heartbeat, is_eager=True
)


# --- the description of the topology


def _told(context: RequestContext[Any], error: ErrorCode | LaterErrorCode, message: str | None = None) -> Any:
    return context.answer(error_code=error, error_message=message)


@refusing(_told)
async def handle_description(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Store the description; answer when it is durable."""
    groups, group_id = context.services.groups, request.group_id
    if not context.may_group(Operation.READ, group_id):
        return _told(context, ErrorCode.group_authorization_failed)
    if not context.node.config.int("seqgate.streams.topology.description.max.bytes"):
        return _told(context, ErrorCode.unsupported_version, NO_DESCRIPTIONS)
    for what, text in (("MemberId", request.member_id), ("GroupId", group_id)):
        if not text.strip():
            return _told(context, ErrorCode.invalid_request, f"{what} can't be empty.")
    found = request.topology_description
    description = TopologyDescription(
        tuple(
            DescribedSubtopology(part.subtopology_id, tuple(map(_node, part.nodes)))
            for part in found.subtopologies
        ),
        tuple(GlobalStore(_node(store.source), _node(store.processor)) for store in found.global_stores),
    )
    update = DescriptionUpdate(group_id, request.member_id, request.topology_epoch, description)
    complaint = await groups.run(group_id, lambda shard, effects: store_description(shard, update, effects))
    if complaint is None:
        return _told(context, ErrorCode.none)
    return _told(context, LaterErrorCode.streams_topology_description_update_failed, complaint)


MAX_NODES: Final = 10_000
"""Nodes of a description; a description with more is refused."""
NO_DESCRIPTIONS: Final = (
    "This gateway stores no topology descriptions: seqgate.streams.topology.description.max.bytes is 0."
)


def _node(entry: Any) -> Node:
    return Node(
        entry.name, entry.node_type, entry.source_topics, entry.sink_topic, entry.stores, entry.successors
    )


class DescriptionUpdate(msgspec.Struct, frozen=True):
    """A StreamsGroupTopologyDescriptionUpdate request."""

    group_id: str
    member_id: str
    topology_epoch: int
    description: TopologyDescription


def store_description(shard: GroupShard, update: DescriptionUpdate, effects: Effects) -> str | None:
    """Store the description of the group's topology; return why it can't be stored, None if it is. Heartbeats
    ask no more for a description that is too large. Raises HeartbeatRefused.
    """
    group_id, epoch = update.group_id, update.topology_epoch
    group = shard.streams.groups.get(group_id)
    if group is None:
        text = "is not a streams group." if shard.knows(group_id) else "not found."
        raise HeartbeatRefused(ErrorCode.group_id_not_found, f"Group {group_id} {text}")
    if update.member_id not in group.members:
        raise unknown_member(group_id, update.member_id)
    current = NO_EPOCH if group.topology is None else group.topology.epoch
    if epoch != current:
        text = f"Topology epoch {epoch} does not match the group's current topology epoch {current}."
        raise HeartbeatRefused(ErrorCode.invalid_request, text)
    data = _checked(update.description).encoded()
    refusal = _refusal_of_size(update.description, data, shard.streams.limits_of(group_id))
    if refusal is None and not shard.member_bytes.admit(len(data), effects.now_ms):
        group.asking.wait_longer(epoch, effects.now_ms)
        return "The groups of this gateway hold as many bytes as seqgate.group.members.max.bytes allows."
    group.asking = Asking()
    if refusal is None:
        value = group.value._replace(stored_description_epoch=epoch)
        shard.streams.write(DESCRIPTION.of(group_id, StoredDescription(epoch, data)), effects)
    else:
        value = group.value._replace(failed_description_epoch=epoch)
    shard.streams.write(group.rows.group.of(group_id, value), effects)
    return refusal


def _refusal_of_size(description: TopologyDescription, data: bytes, limits: StreamsLimits) -> str | None:
    """Return why a description is too large to be stored; None for one that is not."""
    count, max_bytes = description.node_count, limits.description_max_bytes
    if count > MAX_NODES:
        return f"The topology description has {count} nodes; at most {MAX_NODES} are stored."
    if len(data) > max_bytes:
        return (
            f"The topology description has {len(data)} bytes; at most {max_bytes} are stored "
            "(seqgate.streams.topology.description.max.bytes)."
        )
    return None


def _checked(description: TopologyDescription) -> TopologyDescription:
    """Return the description with only the fields that each type of node has. Raises HeartbeatRefused."""
    subtopologies = tuple(
        found._replace(nodes=tuple(map(_checked_node, found.nodes))) for found in description.subtopologies
    )
    stores = tuple(
        GlobalStore(_checked_node(store.source), _checked_node(store.processor))
        for store in description.global_stores
    )
    if any((store.source.node_type, store.processor.node_type) != (SOURCE, PROCESSOR) for store in stores):
        text = "Global store must be composed of a source and a processor node."
        raise HeartbeatRefused(ErrorCode.invalid_request, text)
    return TopologyDescription(subtopologies, stores)


def _checked_node(node: Node) -> Node:
    if node.node_type not in {SOURCE, PROCESSOR, SINK}:
        text = f"Unknown topology node type: {node.node_type}"
        raise HeartbeatRefused(ErrorCode.invalid_request, text)
    return Node(
        node.name,
        node.node_type,
        _once(node.source_topics) if node.node_type == SOURCE else (),
        node.sink_topic if node.node_type == SINK else None,
        _once(node.stores) if node.node_type == PROCESSOR else (),
        _once(node.successors),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


TOPOLOGY_DESCRIPTION_UPDATE_API = Api(
    key=93, versions=(0, 0), reaches=api.coordinators, handle=handle_description
)


_KEPT_INTERVALS: Final = 2
"""Heartbeat intervals for which a failure is reported, before the creation is tried again."""
_SHOWN: Final = 3
_DEFAULT_REPLICAS: Final = -1


def create_missing(context: RequestContext[Services], group_id: str, reply: StreamsReply) -> StreamsReply:
    """Begin to create missing internal topics; return the answer, which says why earlier tries failed."""
    if not reply.missing:
        return reply
    may_create = has_on_cluster(context, Operation.CREATE)
    names = [] if may_create else [topic.name for topic in reply.missing]
    refused = [name for name in names if not context.may_topic(Operation.CREATE, name)]
    if refused:
        return _with_detail(reply, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
    topics = context.services.coordinators.streams_topics
    begun = topics.begin(topic.name for topic in reply.missing)
    if begun:
        wanted = [topic for topic in reply.missing if topic.name in begun]
        tasks = context.node.tasks
        task = tasks.begin(f"create the internal topics of {group_id}", is_brief=True)
        tasks.start(task, _create(context, group_id, wanted))
    failures = topics.failures(topic.name for topic in reply.missing)
    if not failures:
        return reply
    shown = ", ".join(f"{name} ({message})" for name, message in list(failures.items())[:_SHOWN])
    more = f" and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    return _with_detail(reply, f"Creation failed: {shown}{more}.")


async def _create(context: RequestContext[Services], group_id: str, wanted: Sequence[TopicInfo]) -> None:
    coordinators = context.services.coordinators
    keep_ms = _KEPT_INTERVALS * coordinators.group_configs.of(group_id).streams.heartbeat_interval_ms
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
        TopicCreation(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor or _DEFAULT_REPLICAS,
            configs=topic.configs,
        )
        for topic in wanted
        if topic.name not in image.topics_by_name
    ]
    return create_topics(
        image, topics, fresh_ids=[fresh_id() for _ in topics], config=node.config, node_id=node.node_id
    )


def _with_detail(reply: StreamsReply, detail: str) -> StreamsReply:
    """Return the answer with the reason why internal topics are missing."""
    notes = tuple(
        StatusNote(note.status, f"{note.detail}; {detail}")
        if note.status is StreamsGroupStatus.MISSING_INTERNAL_TOPICS
        else note
        for note in reply.notes
    )
    return replace(reply, notes=notes)


STREAMS_GROUP_DESCRIBE_API = Api(
    key=89, versions=(0, 1), reaches=api.coordinators, handle=handle_describe, may_be_given_up=True
)
