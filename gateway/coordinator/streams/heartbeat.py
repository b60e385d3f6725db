"""StreamsGroupHeartbeat: joining, staying, revoking tasks, getting new ones, leaving (KIP-1071).

    member_epoch    the member
    0               joins, or joins again without tasks
    n > 0           is at epoch n; the previous epoch means that an answer was lost, any other epoch is fenced
    −1              leaves
    −2              leaves and may return, because it is static

`check` validates a request. Kafka refuses source topics by regular expression, although the schema has a
field for them; so does this gateway. `streams_heartbeat` finds or makes the group, which `heartbeat` and
`leave` change. The whole heartbeat is checked before any of its records changes the group. Source: Kafka's
`GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid`,
`GroupMetadataManager.streamsGroupHeartbeat`, `TargetAssignmentBuilder`.

`endpoints_of` returns the partitions that each instance of an application reads, so that interactive queries
find the state of a key. Source: Kafka's `EndpointToPartitionsManager`.

`reconciled` moves a member one step towards its target:

    state              the member                                         next step
    STABLE             has its target                                     when there is a newer target
    UNREVOKED_TASKS    must revoke tasks; its epoch stays                 when it reports none of them
    UNRELEASED_TASKS   waits for tasks that other members have or revoke  with each heartbeat

An active task goes to a member after its last owner has revoked it. A process never has a task twice, in
whatever roles, but for a member that changes its role: a task that becomes active is kept as a standby task
until the member gets it, and one that is no longer active becomes a standby task at once. Source: Kafka's
`CurrentAssignmentBuilder`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.group.classic_group import GroupState
from seqgate.gateway.coordinator.group.consumer_heartbeat import (
    MAX_SUBSCRIPTION_BYTES,
    known_member,
    refuse_blank,
    refuse_long,
    refuse_unknown_group,
)
from seqgate.gateway.coordinator.group.epoch_group import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    AssignmentEpoch,
    HeartbeatRefused,
)
from seqgate.gateway.coordinator.group.member_bytes import MEMBER_BYTES
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord
from seqgate.gateway.coordinator.places import Topics, by_topic
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams.group import (
    HeldByProcesses,
    StreamsGroup,
    StreamsMember,
    is_reconciled,
)
from seqgate.gateway.coordinator.streams.internal_topics import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    StatusNote,
    StreamsGroupStatus,
    configure,
)
from seqgate.gateway.coordinator.streams.records import (
    ASSIGNMENT,
    CURRENT,
    GROUP,
    MEMBER,
    NOT_VALIDATED,
    ROWS,
    TARGET,
    TOPOLOGY,
    StreamsCurrentValue,
    StreamsEndpoint,
    StreamsMemberState,
    StreamsMemberValue,
)
from seqgate.gateway.coordinator.streams.task_assignor import (
    NO_ASSIGNMENT,
    NOTHING_HELD,
    AssignmentMember,
    HeldTasks,
    TaskAssignment,
    TaskId,
    Tasks,
    assign_tasks,
)
from seqgate.gateway.coordinator.streams.topology import (
    MAX_TASKS,
    Subtopology,
    TopicInfo,
    Topology,
    check_extent,
    refused,
    size_bytes_of,
    standby_replicas_within,
)
from seqgate.gateway.coordinator.streams.topology_description import NO_EPOCH, is_wanted

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.group.events import Effects
    from seqgate.gateway.coordinator.group.shard import GroupShard


# --- the request, and the answer

_INVALID: Final = ErrorCode.invalid_request
FIRST_WITH_DESCRIPTIONS: Final = 1
"""The first version whose clients know descriptions of topologies and MISSING_CLIENT_TAGS."""

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
    api_version: int = 0

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
        if any(found.source_topic_regex for found in request.topology.subtopologies):
            raise HeartbeatRefused(_INVALID, "Regular expressions for source topics are not supported yet.")
    texts = {
        "MemberId": request.member_id,
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    refuse_blank(texts)
    _check_sizes(request, texts)
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


def _check_sizes(request: StreamsHeartbeat, texts: dict[str, str | None]) -> None:
    """Refuse what is far larger than any client needs: each record of a member must fit into a batch."""
    endpoint = request.user_endpoint
    host = None if endpoint is None else endpoint.host
    refuse_long(texts | {"ProcessId": request.process_id, "UserEndpoint": host})
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


# --- the group of the request


def streams_heartbeat(shard: GroupShard, request: StreamsHeartbeat, effects: Effects) -> StreamsReply:
    """Handle a valid heartbeat; an empty classic group becomes a streams group and keeps its offsets, and a
    group of another kind refuses it. Raises HeartbeatRefused.
    """
    group_id = request.group_id
    group = shard.groups.get(group_id)
    is_joining = request.member_epoch == JOINING
    is_replaced = is_joining and group is not None and group.state is GroupState.EMPTY
    if not is_replaced and group_id not in shard.streams.groups and shard.knows(group_id):
        text = f"Group {group_id} is not a streams group."
        raise HeartbeatRefused(ErrorCode.group_id_not_found, text)
    if is_joining:
        shard.check_room(group_id)
        held_bytes = shard.held_bytes(group_id, request.member_id, request.instance_id)
        known = shard.streams.groups.get(group_id)
        if known is not None:
            held_bytes += min(size_bytes_of(request.topology), size_bytes_of(known.topology))
        shard.admit_member(request.joining_bytes, effects.now_ms, held_bytes)
    elif request.offsets_bytes and not shard.member_bytes.admit(request.offsets_bytes, effects.now_ms):
        # the member stays: offsets only make a better assignment
        request = replace(request, task_offsets=None, task_end_offsets=None)
    deletion = [] if group is None or group.is_simple else [GroupMetadataRecord(group_id, None)]
    effects.records += deletion
    title = "Streams group" if request.member_epoch > JOINING else "Group"
    refuse_unknown_group(shard.streams.groups, request, title)
    reply = shard.streams.leave_or_heartbeat(request, shard.topics, effects)
    shard.groups.pop(group_id, None)
    return reply


def first_reply(group: StreamsGroup, reply: StreamsReply) -> StreamsReply:
    """Return the answer to the first member of a new group, whose fields that are not stored are dropped."""
    group.forget_what_is_not_stored()
    return replace(reply, endpoint_epoch=group.endpoint_epoch)


class _Plan(msgspec.Struct):
    """The changes that one operation makes, before the group is changed."""

    group: StreamsGroup
    limits: StreamsLimits
    now_ms: int
    replaced: str | None = None
    """The former member id of a static member that returns under a new one."""
    records: list[RowRecord] = msgspec.field(default_factory=list)
    notes: list[StatusNote] = msgspec.field(default_factory=list)

    def carry_out(self) -> None:
        """Replay the records into the group."""
        for record in self.records:
            self.group.replay(record, self.now_ms, self.limits.session_timeout_ms)

    def note(self, status: StreamsGroupStatus, detail: str) -> None:
        """Add a condition of the group to the statuses in the answer."""
        self.notes.append(StatusNote(status, detail))


def heartbeat(
    group: StreamsGroup, request: StreamsHeartbeat, topics: Topics, limits: StreamsLimits, now_ms: int
) -> tuple[StreamsReply, list[RowRecord]]:
    """Handle a valid heartbeat of a member that joins or stays. Raises HeartbeatRefused."""
    plan = _Plan(group, limits, now_ms)
    member = _member(plan, request)
    value = _described(member.value, request)
    is_changed = value != member.value
    if is_changed:
        plan.records.append(MEMBER.of(group.group_id, request.member_id, value))
        # what a static member says of itself may change with each start, without other tasks for anybody
        is_changed = request.instance_id is None or _assigned_by(value) != _assigned_by(member.value)
    topology = _topology(plan, request, value)
    configured, metadata_hash = _configured(group, topology, topics)
    _check_tasks(configured, request.owned)
    group_epoch = _raise_epoch(plan, topology, configured, metadata_hash, is_changed=is_changed)
    if group.is_empty and limits.initial_delay_ms > 0 and not group.is_delayed:
        group.initial_delay_deadline_ms = now_ms + limits.initial_delay_ms
    offsets = _offsets(request.task_offsets, member.task_offsets)
    end_offsets = _offsets(request.task_end_offsets, member.task_end_offsets)
    updated = StreamsMember(
        request.member_id, value, member.current, task_offsets=offsets, task_end_offsets=end_offsets
    )
    target = _target(plan, group_epoch, configured, updated)
    current = reconciled(member.current, target, request.owned, lambda: group.held(value.process_id))
    if current != member.current:
        plan.records.append(CURRENT.of(group.group_id, request.member_id, current))
    group.configured, group.topics_changed = configured, False
    is_assigned = current.assigned != member.current.assigned
    has_moved = value.user_endpoint != member.value.user_endpoint
    plan.carry_out()
    known = group.members[request.member_id]
    known.session_deadline_ms = now_ms + limits.session_timeout_ms
    known.task_offsets, known.task_end_offsets = offsets, end_offsets
    if request.is_shutdown_asked:
        _ask_for_shutdown(group, request.member_id)
    if has_moved or (is_assigned and value.user_endpoint is not None):
        group.endpoint_epoch += 1
    must_send = is_assigned or request.member_epoch == JOINING
    return _reply(plan, request, topics, must_send=must_send), plan.records


def _offsets(reported: TaskOffsets | None, before: Mapping[TaskId, int]) -> Mapping[TaskId, int]:
    """Return a member's offsets: those that it reports, else those of before. Raises HeartbeatRefused."""
    if reported is None:
        return before
    offsets = dict(reported)
    if len(offsets) < len(reported):
        counts = Counter(task for task, _ in reported)
        subtopology_id, partition = max(counts, key=lambda task: counts[task])
        text = (
            f"Task offsets contain a duplicate entry for subtopology {subtopology_id} and partition "
            f"{partition}."
        )
        raise HeartbeatRefused(ErrorCode.invalid_request, text)
    return offsets


def _assigned_by(value: StreamsMemberValue) -> tuple[object, ...]:
    """Return the part of a description that the assignment depends on."""
    return value.topology_epoch, value.rack_id, value.client_tags, value.process_id


def _reply(plan: _Plan, request: StreamsHeartbeat, topics: Topics, *, must_send: bool) -> StreamsReply:
    group, configured = plan.group, plan.group.configured
    member = group.members[request.member_id]
    if configured is not None and configured.problem is not None:
        plan.notes.append(configured.problem)
    if group.shutdown_member_id is not None:
        plan.note(
            StreamsGroupStatus.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a "
            "shutdown for the entire application.",
        )
    missing = [tag for tag in plan.limits.tags if tag not in dict(member.value.client_tags)]
    if missing and request.api_version >= FIRST_WITH_DESCRIPTIONS:
        plan.note(
            StreamsGroupStatus.MISSING_CLIENT_TAGS,
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config.",
        )
    knows_endpoints = group.endpoint_epoch == request.endpoint_epoch
    is_stale = any(note.status is StreamsGroupStatus.STALE_TOPOLOGY for note in plan.notes)
    topology_epoch = NO_EPOCH if group.topology is None else group.topology.epoch
    can_ask = (
        request.api_version >= FIRST_WITH_DESCRIPTIONS
        and plan.limits.description_max_bytes > 0
        and not is_stale
    )
    return StreamsReply(
        member.member_id,
        member.current.member_epoch,
        member.current.assigned.tasks if must_send else None,
        tuple(plan.notes),
        group.endpoint_epoch,
        None if knows_endpoints else endpoints_of(group, member, topics),
        () if configured is None else configured.missing,
        can_ask and is_wanted(group) and group.asking.ask(topology_epoch, plan.now_ms),
    )


def _ask_for_shutdown(group: StreamsGroup, member_id: str) -> None:
    """Note the first member that asks the whole application to shut down."""
    if group.shutdown_member_id is None:
        group.shutdown_member_id = member_id


# --- the member


def _member(plan: _Plan, request: StreamsHeartbeat) -> StreamsMember:
    """Return the member that sent the heartbeat; a new one is not added. Raises HeartbeatRefused."""
    group, limits, instance_id = plan.group, plan.limits, request.instance_id
    if request.member_epoch != JOINING:
        known = known_member(group, request)
        _check_epoch(known, request)
        return known
    member = group.members.get(request.member_id)
    static = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
    if static is None and member is None and len(group.members) >= limits.max_size:
        text = f"The streams group has reached its maximum capacity of {limits.max_size} members."
        raise HeartbeatRefused(ErrorCode.group_max_size_reached, text)
    if static is not None and static is not member:
        return _returned(plan, static, request)
    if member is None:
        return StreamsMember(request.member_id)
    return _returned(plan, member, request) if member.is_away else member


def _returned(plan: _Plan, static: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    """Return a static member that was away, under its new member id; the member keeps its tasks and target.
    Raises HeartbeatRefused.
    """
    group_id, member_id = plan.group.group_id, request.member_id
    if not static.is_away:
        text = (
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {static.member_id} member."
        )
        raise HeartbeatRefused(ErrorCode.unreleased_instance_id, text)
    current = static.current._replace(member_epoch=JOINING, previous_member_epoch=JOINING)
    target = plan.group.targets.get(static.member_id, NO_ASSIGNMENT)
    plan.replaced = static.member_id
    plan.records += ROWS.removal_records(group_id, static.member_id)
    plan.records += [
        MEMBER.of(group_id, member_id, static.value),
        TARGET.of(group_id, member_id, target),
        CURRENT.of(group_id, member_id, current),
    ]
    return StreamsMember(member_id, static.value, current)


def _check_epoch(member: StreamsMember, request: StreamsHeartbeat) -> None:
    """Accept the member's epoch, or the previous one with no more tasks than the lost answer left. Raises
    HeartbeatRefused.
    """
    epoch, current = request.member_epoch, member.current
    if epoch == current.member_epoch:
        return
    is_lost_answer = (
        epoch < current.member_epoch
        and epoch == current.previous_member_epoch
        and request.owned is not None
        and request.owned.is_within(current.assigned.tasks)
    )
    if not is_lost_answer:
        size = "greater" if epoch > current.member_epoch else "smaller"
        text = (
            f"The streams group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({current.member_epoch}). The member must abandon all its partitions and rejoin."
        )
        raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)


def _described(before: StreamsMemberValue, request: StreamsHeartbeat) -> StreamsMemberValue:
    """Return the member's description: the request's fields, and stored values of those it omits."""
    asked, topology, tags = request.rebalance_timeout_ms, request.topology, request.client_tags
    has_endpoint = request.user_endpoint is not None or request.member_epoch == JOINING
    return StreamsMemberValue(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.rebalance_timeout_ms if asked == -1 else asked,
        before.topology_epoch if topology is None else topology.epoch,
        before.process_id if request.process_id is None else request.process_id,
        request.user_endpoint if has_endpoint else before.user_endpoint,
        before.client_tags if tags is None else tuple(sorted(dict(tags).items())),
    )


# --- the topology and its topics


def _topology(plan: _Plan, request: StreamsHeartbeat, value: StreamsMemberValue) -> Topology:
    """Return the group's topology; the first member sets it. Raises HeartbeatRefused."""
    group, asked = plan.group, request.topology
    known = group.topology
    if known is None:
        if asked is None:
            raise HeartbeatRefused(
                ErrorCode.unknown_server_error,
                f"Group {group.group_id} has no topology: its records are gone.",
            )
        plan.records.append(TOPOLOGY.of(group.group_id, asked))
        return asked
    if asked is not None and known.epoch <= asked.epoch and not known.is_same(asked):
        raise HeartbeatRefused(ErrorCode.invalid_request, "Topology updates are not supported yet.")
    if value.topology_epoch < known.epoch:
        plan.note(
            StreamsGroupStatus.STALE_TOPOLOGY,
            f"The member's topology epoch {value.topology_epoch} is behind the group's topology epoch "
            f"{known.epoch}.",
        )
    return known


def _configured(group: StreamsGroup, topology: Topology, topics: Topics) -> tuple[ConfiguredTopology, int]:
    """Return the topology compared with the topics, and a hash of these. Raises HeartbeatRefused."""
    metadata_hash = group.value.metadata_hash
    known = None if group.topology is None else group.configured
    if known is not None and not group.topics_changed:
        return known, metadata_hash
    found = topic_hash(topology.required_topics, topics)
    if known is not None and found == metadata_hash:
        return known, metadata_hash
    configured = configure(topology, topics)
    if group.topology is None and configured.has_too_many_tasks and configured.problem is not None:
        raise refused(configured.problem.detail)
    return configured, found


def _check_tasks(configured: ConfiguredTopology, owned: TaskAssignment | None) -> None:
    """Refuse tasks that the topology does not have. Raises HeartbeatRefused."""
    if owned is None or not configured.is_ready:
        return
    known = configured.tasks
    for tasks in owned:
        for subtopology_id, partition in sorted(tasks):
            subtopology = known.get(subtopology_id)
            if subtopology is None:
                text = f"Subtopology {subtopology_id} does not exist in the topology."
                raise HeartbeatRefused(ErrorCode.invalid_request, text)
            if not 0 <= partition < subtopology.partitions:
                text = (
                    f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.partitions}"
                )
                raise HeartbeatRefused(ErrorCode.invalid_request, text)


def _raise_epoch(
    plan: _Plan, topology: Topology, configured: ConfiguredTopology, metadata_hash: int, *, is_changed: bool
) -> int:
    """Return the group epoch, raised if the targets may have to change."""
    before = plan.group.value
    value = before._replace(
        metadata_hash=metadata_hash,
        validated_topology_epoch=topology.epoch if configured.is_ready else NOT_VALIDATED,
        assignment_configs=plan.limits.assignment_configs,
    )
    if is_changed or value != before:
        value = value._replace(group_epoch=before.group_epoch + 1)
        plan.records.append(GROUP.of(plan.group.group_id, value))
    return value.group_epoch


# --- targets


def _target(
    plan: _Plan, group_epoch: int, configured: ConfiguredTopology, updated: StreamsMember | None = None
) -> TargetTasks:
    """Return the target of the updated member; make new targets for all when the group epoch has risen."""
    group, limits = plan.group, plan.limits
    last = group.assignment
    if group.is_delayed:
        plan.note(
            StreamsGroupStatus.ASSIGNMENT_DELAYED,
            "Assignment delayed due to the configured initial rebalance delay.",
        )
        return TargetTasks(last.epoch, NO_ASSIGNMENT)
    member_id = "" if updated is None else updated.member_id
    known = group.targets.get(member_id if plan.replaced is None else plan.replaced, NO_ASSIGNMENT)
    if last.epoch >= group_epoch:
        return TargetTasks(last.epoch, known)
    if not group.may_assign(limits.assignment_interval_ms, plan.now_ms):
        plan.note(
            StreamsGroupStatus.ASSIGNMENT_DELAYED,
            "Assignment delayed due to the configured assignment interval.",
        )
        return TargetTasks(last.epoch, known)
    targets = _make_targets(plan, group_epoch, configured, updated)
    return TargetTasks(group_epoch, targets.get(member_id, NO_ASSIGNMENT))


def _make_targets(
    plan: _Plan, group_epoch: int, configured: ConfiguredTopology, updated: StreamsMember | None
) -> dict[str, TaskAssignment]:
    """Assign all tasks for a group epoch; write records only for targets that change."""
    group = plan.group
    everyone, before = dict(group.members), dict(group.targets)
    configs = group.value.assignment_configs
    if updated is not None:
        if plan.replaced is not None:
            del everyone[plan.replaced]
            before[updated.member_id] = before.pop(plan.replaced, NO_ASSIGNMENT)
        everyone[updated.member_id] = updated
        configs = plan.limits.assignment_configs
    members = {
        member_id: AssignmentMember(
            member.value.process_id, *member.current.assigned.tasks[:2], member.task_offsets
        )
        for member_id, member in everyone.items()
    }
    asked = int(dict(configs).get("num.standby.replicas", plan.limits.standby_replicas))
    if configured.is_ready:
        tasks = configured.tasks
        stateful = sum(row.partitions for row in tasks.values() if row.is_stateful)
        targets = dict(assign_tasks(members, tasks, standby_replicas_within(asked, stateful)))
    else:
        targets = dict.fromkeys(members, NO_ASSIGNMENT)
    for member_id in members:
        target = targets.setdefault(member_id, NO_ASSIGNMENT)
        if before.get(member_id) != target:
            plan.records.append(TARGET.of(group.group_id, member_id, target))
    plan.records.append(ASSIGNMENT.of(group.group_id, AssignmentEpoch(group_epoch, plan.now_ms)))
    return targets


# --- leaving and timeouts


def leave(group: StreamsGroup, request: StreamsHeartbeat) -> tuple[StreamsReply, list[RowRecord]]:
    """Handle a heartbeat of a member that leaves, for good or for a while. Raises HeartbeatRefused."""
    member = known_member(group, request)
    if request.is_shutdown_asked:
        _ask_for_shutdown(group, request.member_id)
    reply = StreamsReply(request.member_id, request.member_epoch)
    if request.member_epoch == LEAVING_FOR_A_WHILE:
        return reply, _leave_for_a_while(group, member)
    return reply, group.remove([request.member_id])


def _leave_for_a_while(group: StreamsGroup, member: StreamsMember) -> list[RowRecord]:
    """Keep the tasks of a static member until it returns or its session times out; its epochs begin anew."""
    assigned, deadline_ms = member.current.assigned, member.session_deadline_ms
    current = member.current._replace(
        member_epoch=LEAVING_FOR_A_WHILE,
        assigned=assigned._replace(active=dict.fromkeys(assigned.active, 0)),
        pending_revocation=NOTHING_HELD,
    )
    plan = _Plan(group, StreamsLimits(), 0, records=[CURRENT.of(group.group_id, member.member_id, current)])
    plan.carry_out()
    member.session_deadline_ms = deadline_ms
    return plan.records


def expire(group: StreamsGroup, limits: StreamsLimits, now_ms: int) -> list[RowRecord]:
    """End the initial delay, and remove at most MAX_EXPIRED_AT_ONCE members whose session timed out or that
    did not revoke tasks in time. The next call removes the rest.
    """
    records: list[RowRecord] = []
    if group.initial_delay_deadline_ms <= now_ms:
        group.initial_delay_deadline_ms = NEVER
        records += _assign_after_delay(group, limits, now_ms)
    return records + group.remove_overdue(now_ms)


def _assign_after_delay(group: StreamsGroup, limits: StreamsLimits, now_ms: int) -> list[RowRecord]:
    if group.is_empty or group.configured is None:
        return []
    plan = _Plan(group, limits, now_ms)
    _target(plan, group.group_epoch, group.configured)
    plan.carry_out()
    return plan.records


def endpoints_of(
    group: StreamsGroup, asking: StreamsMember, topics: Topics
) -> tuple[EndpointPartitions, ...]:
    """Return the partitions of every member with an endpoint; those of the member that asks come last."""
    configured = None if group.configured is None else group.configured.subtopologies
    members = [member for member in group.members.values() if member is not asking]
    found = []
    for member in (*members, asking):
        endpoint = member.value.user_endpoint
        if endpoint is not None:
            assigned = member.current.assigned.tasks
            active = _partitions(assigned.active, configured or {}, topics)
            standby = _partitions(assigned.standby, configured or {}, topics)
            found.append(EndpointPartitions(endpoint, active, standby))
    return tuple(found)


def _partitions(
    tasks: Tasks, configured: Mapping[str, ConfiguredSubtopology], topics: Topics
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (topic, partitions) of source topics; a smaller topic has none for the last tasks."""
    found = []
    for subtopology_id, numbers in by_topic(tasks).items():
        subtopology = configured.get(subtopology_id)
        for topic in () if subtopology is None else subtopology.sources:
            described = topics.describe(topic)
            count = 0 if described is None else described[1]
            partitions = tuple(number for number in numbers if number < count)
            if partitions:
                found.append((topic, partitions))
    return tuple(found)


# A hash of the topics that a topology needs. The hash changes when such a topic is created, deleted or
# enlarged.

_HASH_BYTES: Final = 8
_NO_TOPICS: Final = 0


def topic_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a signed 64-bit hash of name, id and partitions of existing topics; 0 when there is none."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    is_empty = True
    for name in sorted(names):
        described = topics.describe(name)
        if described is not None:
            topic_id, count = described
            digest.update(f"{name}/{count}/".encode() + topic_id.bytes)
            is_empty = False
    return _NO_TOPICS if is_empty else int.from_bytes(digest.digest(), "big", signed=True)


class TargetTasks(NamedTuple):
    """The tasks that a member shall have, and the epoch for which they were assigned."""

    epoch: int
    tasks: TaskAssignment


def reconciled(
    current: StreamsCurrentValue,
    target: TargetTasks,
    owned: TaskAssignment | None,
    held: Callable[[], HeldByProcesses],
) -> StreamsCurrentValue:
    """Return the next state of a member. `owned` are the tasks that it reports to have; None when it reports
    none.

    `held` returns the tasks that the group's members, this one among them, had before. Raises
    HeartbeatRefused.
    """
    if is_reconciled(current, target.epoch):
        return current
    if current.state is StreamsMemberState.UNREVOKED_TASKS:
        if owned is None or owned.has_any_of(current.pending_revocation.tasks):
            return current
        # the next epoch, which may still be older than the target's
        return _step(current, current.member_epoch + 1, target, owned, held())
    if current.state is StreamsMemberState.UNKNOWN:
        if owned is None or any(owned):
            text = (
                "The streams group member is in a unknown state. "
                "The member must abandon all its tasks and rejoin."
            )
            raise HeartbeatRefused(ErrorCode.fenced_member_epoch, text)
        return _step(current, target.epoch, target, owned, held())
    return _step(current, current.member_epoch, target, owned, held())


def _step(
    current: StreamsCurrentValue,
    member_epoch: int,
    target: TargetTasks,
    owned: TaskAssignment | None,
    held: HeldByProcesses,
) -> StreamsCurrentValue:
    """Assign what the member can have now; a member that must revoke tasks first stays at `member_epoch`."""
    own, tasks = current.assigned, target.tasks
    own_active = frozenset(own.active)
    standby_beside, warmup_beside = held.standby_here - own.standby, held.warmup_here - own.warmup
    wanted = TaskAssignment(tasks.active - own_active, tasks.standby - own.standby, tasks.warmup - own.warmup)
    free = TaskAssignment(
        wanted.active - held.active - standby_beside - warmup_beside,
        wanted.standby - (held.active_here - own_active) - held.standby_here - warmup_beside,
        wanted.warmup - held.active_here - standby_beside - held.warmup_here,
    )
    # these tasks only change their role at this member, so that there is nothing to wait for
    to_standby, to_warmup = free.standby & (own_active | own.warmup), free.warmup & own.standby
    promoted = TaskAssignment(standby=own.standby & tasks.active, warmup=own.warmup & tasks.active)
    to_revoke = HeldTasks(
        {task: epoch for task, epoch in own.active.items() if task not in tasks.active},
        own.standby - tasks.standby - to_warmup - promoted.standby,
        own.warmup - tasks.warmup - to_standby - promoted.warmup,
    )
    kept = HeldTasks(
        {task: epoch for task, epoch in own.active.items() if task in tasks.active},
        own.standby & tasks.standby | to_standby,
        own.warmup & tasks.warmup | to_warmup,
    )
    if not to_revoke.is_empty and (owned is None or owned.has_any_of(to_revoke.tasks)):
        kept = HeldTasks(kept.active, kept.standby | promoted.standby, kept.warmup | promoted.warmup)
        return StreamsCurrentValue(
            member_epoch, current.member_epoch, StreamsMemberState.UNREVOKED_TASKS, kept, to_revoke
        )
    state = StreamsMemberState.STABLE if free == wanted else StreamsMemberState.UNRELEASED_TASKS
    gained = HeldTasks(
        {**kept.active, **dict.fromkeys(free.active, target.epoch)},
        kept.standby | free.standby | promoted.standby - free.active,
        kept.warmup | free.warmup | promoted.warmup - free.active,
    )
    return StreamsCurrentValue(target.epoch, current.member_epoch, state, gained, NOTHING_HELD)
