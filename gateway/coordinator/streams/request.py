"""A StreamsGroupHeartbeat request: its content and its validation.

Kafka refuses source topics by regular expression, although the schema has a field for them; so does this
gateway. Source: Kafka's
`GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    MAX_ID_BYTES,
    MAX_SUBSCRIPTION_BYTES,
    HeartbeatRefused,
)
from seqgate.gateway.coordinator.group.epoch_group import JOINING, LEAVING_FOR_A_WHILE
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES
from seqgate.gateway.coordinator.streams.internal_topics import StatusNote
from seqgate.gateway.coordinator.streams.records import StreamsEndpoint
from seqgate.gateway.coordinator.streams.task_assignor import TaskAssignment, TaskId
from seqgate.gateway.coordinator.streams.topology import (
    MAX_TASKS,
    Subtopology,
    TopicInfo,
    Topology,
    check_extent,
    refused,
    size_bytes_of,
)

_INVALID: Final = ErrorCode.invalid_request


TaskOffsets: TypeAlias = tuple[tuple[TaskId, int], ...]
"""The sum of the offsets of a task's changelogs, for each of a member's tasks."""
TASK_OFFSET_INTERVAL_MS: Final = 60_000
"""Interval at which members report them."""
ACCEPTABLE_RECOVERY_LAG: Final = 10_000
"""Records that a member may lack of a task's changelogs and count as caught up. In Kafka 4.4 nothing depends
on it, and both are settings that brokers do not offer.
"""
TASK_OFFSET_BYTES: Final = 200
"""Bytes of memory that one of these takes."""


class StreamsLimits(msgspec.Struct, frozen=True):
    """The limits of a streams group: the settings `group.streams.*` in `docs/configuration.md`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    standby_replicas: int = 0
    initial_delay_ms: int = 3_000
    assignment_interval_ms: int = 1_000
    tags: tuple[str, ...] = ()
    """Client tags that members must have."""
    description_max_bytes: int = 262_144
    """Bytes of a stored description of the topology; with 0 none is stored."""

    @property
    def assignment_configs(self) -> tuple[tuple[str, str], ...]:
        """The configurations that an assignment is made for, as the group's record stores them."""
        tags = (("rack.aware.assignment.tags", ",".join(self.tags)),) if self.tags else ()
        return (("num.standby.replicas", str(self.standby_replicas)), *tags)


def bytes_of_tags(tags: Iterable[tuple[str, str]]) -> int:
    return sum(len(key) + len(value) for key, value in tags)


class StreamsHeartbeat(msgspec.Struct, frozen=True):
    """A heartbeat request. A field that is None has not changed since the member's last request."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: TaskAssignment | None = None
    has_some_owned: bool = False
    """Whether the request has some roles of owned tasks, and not all three."""
    process_id: str | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    task_offsets: TaskOffsets | None = None
    task_end_offsets: TaskOffsets | None = None
    is_shutdown_asked: bool = False
    is_first_version: bool = True
    """Whether the client is older than descriptions of topologies and MISSING_CLIENT_TAGS (version 0)."""

    @property
    def joining_bytes(self) -> int:
        """An upper bound of the bytes that a joining member adds, with the topology if its group is new."""
        tags_bytes = bytes_of_tags(self.client_tags or ())
        return MEMBER_BYTES + tags_bytes + size_bytes_of(self.topology) + self.offsets_bytes

    @property
    def offsets_bytes(self) -> int:
        """An upper bound of the bytes of memory of the reported task offsets."""
        return TASK_OFFSET_BYTES * (len(self.task_offsets or ()) + len(self.task_end_offsets or ()))


class EndpointPartitions(msgspec.Struct, frozen=True):
    """The partitions of the topics that the tasks of a member with an endpoint read: (topic, partitions)."""

    endpoint: StreamsEndpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


class StreamsReply(msgspec.Struct, frozen=True):
    """The answer to a heartbeat; `tasks` and `endpoints` are None when the member has them already."""

    member_id: str
    member_epoch: int
    tasks: TaskAssignment | None = None
    notes: tuple[StatusNote, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[TopicInfo, ...] = ()
    """The internal topics that must be created."""
    wants_description: bool = False
    """Whether the member shall push the description of its topology."""


def check(request: StreamsHeartbeat) -> None:
    """Validate the request. Raises HeartbeatRefused."""
    if request.topology is not None:
        check_extent(request.topology)
    _check_support(request)
    for what, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise HeartbeatRefused(_INVALID, f"{what} can't be empty.")
    _check_sizes(request)
    if request.member_epoch == JOINING:
        _check_joining(request)
    elif request.member_epoch == LEAVING_FOR_A_WHILE:
        if request.instance_id is None:
            raise HeartbeatRefused(_INVALID, "InstanceId can't be null.")
    elif request.member_epoch < LEAVING_FOR_A_WHILE:
        text = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        raise HeartbeatRefused(_INVALID, text)
    if request.has_some_owned:
        raise HeartbeatRefused(_INVALID, "If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING and request.topology is not None:
        raise HeartbeatRefused(_INVALID, "Topology can only be provided when (re-)joining.")


def _check_support(request: StreamsHeartbeat) -> None:
    topology = request.topology
    if topology is not None and any(found.source_topic_regex for found in topology.subtopologies):
        raise HeartbeatRefused(_INVALID, "Regular expressions for source topics are not supported yet.")


def _check_joining(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise HeartbeatRefused(_INVALID, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is not None:
        names = "ActiveTasks", "StandbyTasks", "WarmupTasks"
        for what, tasks in zip(names, request.owned, strict=True):
            if tasks:
                raise HeartbeatRefused(_INVALID, f"{what} must be empty when (re-)joining.")
    if request.topology is None:
        raise HeartbeatRefused(_INVALID, "Topology must be non-null when (re-)joining.")
    _check_topology(request.topology)


def _check_topology(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise refused(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
        _check_references(subtopology)
    if topology.epoch < 0:
        raise HeartbeatRefused(_INVALID, f"The topology epoch must be 0 or more, not {topology.epoch}.")
    if len(topology.by_id) < len(topology.subtopologies):
        raise refused("Two subtopologies have the same id.")


def _check_references(subtopology: Subtopology) -> None:
    """Refuse partitions below 0, and copartition groups that name topics beyond the end of a list."""
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            raise refused(f"Repartition topic {topic.name} can't have {topic.partitions} partitions.")
    for group in subtopology.copartition_groups:
        for indexes, topics in (
            (group.source_topics, subtopology.source_topics),
            (group.repartition_source_topics, subtopology.repartition_source_topics),
        ):
            if any(not 0 <= index < len(topics) for index in indexes):
                raise refused(
                    f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that the "
                    "subtopology does not have."
                )


def _check_sizes(request: StreamsHeartbeat) -> None:
    """Refuse texts far longer than any client needs: each record of a member must fit into a batch."""
    endpoint = request.user_endpoint
    for what, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
        ("MemberId", request.member_id),
        ("ProcessId", request.process_id),
        ("UserEndpoint", None if endpoint is None else endpoint.host),
    ):
        if text is not None and len(text.encode()) > MAX_ID_BYTES:
            raise HeartbeatRefused(_INVALID, f"{what} can't be longer than {MAX_ID_BYTES} bytes.")
    for what, offsets in (
        ("TaskOffsets", request.task_offsets),
        ("TaskEndOffsets", request.task_end_offsets),
    ):
        if offsets is not None and len(offsets) > MAX_TASKS:
            raise HeartbeatRefused(_INVALID, f"{what} can't have more than {MAX_TASKS} entries.")
    tags_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in request.client_tags or ())
    for what, size_bytes in (("ClientTags", tags_bytes), ("Topology", size_bytes_of(request.topology))):
        if size_bytes > MAX_SUBSCRIPTION_BYTES:
            text = f"{what} can't be longer than {MAX_SUBSCRIPTION_BYTES} bytes."
            raise HeartbeatRefused(_INVALID, text)
