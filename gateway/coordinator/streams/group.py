"""One streams group (KIP-1071): the coordinator assigns the tasks of a Kafka Streams application to its
members.

    group epoch        rises with every change of members, topology, topics or assignment configurations
    assignment epoch   the group epoch for which the present targets were made
    member epoch       the assignment epoch whose target the member has begun to follow

    group state   when
    Empty         no members
    NotReady      the topics that exist do not fit the topology, or internal topics are missing
    Assigning     the targets are older than the group epoch
    Reconciling   some member does not have its target yet
    Stable        every member has its target

Source: Kafka's `StreamsGroup`, `StreamsGroupMember`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.coordinator.streams.internal_topics import ConfiguredTopology
from seqgate.gateway.coordinator.streams.records import (
    ASSIGNMENT,
    GROUP,
    MEMBER,
    TARGET,
    TOPOLOGY,
    MemberState,
    StreamsAssignmentRecord,
    StreamsAssignmentValue,
    StreamsCurrentRecord,
    StreamsCurrentValue,
    StreamsGroupRecord,
    StreamsGroupValue,
    StreamsMemberRecord,
    StreamsMemberValue,
    StreamsRecord,
    StreamsTargetRecord,
    StreamsTopologyRecord,
)
from seqgate.gateway.coordinator.streams.task_assignor import ASSIGNOR_NAME, TaskAssignment, TaskId, Tasks
from seqgate.gateway.coordinator.streams.topology import Topology

STREAMS: Final = "streams"
"""The type of a streams group, and the type of its members' protocol."""
FIRST_EPOCH: Final = 1
"""The group and assignment epoch of a group before its first member."""
NEW_GROUP: Final = StreamsGroupValue(FIRST_EPOCH, 0, 0)
NEVER_ASSIGNED: Final = StreamsAssignmentValue(FIRST_EPOCH)
STATES: Final = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")
_EMPTY, _NOT_READY, _ASSIGNING, _RECONCILING, _STABLE = STATES


class HeldByProcesses(NamedTuple):
    """The tasks that the members of a group have, or have not revoked yet."""

    active: Tasks
    """The active tasks of all processes."""
    active_here: Tasks
    """The active tasks of one process."""
    others_here: Tasks
    """The standby and warm-up tasks of that process."""


@dataclass(slots=True, eq=False)
class StreamsMember:
    """A member, its own description, and its tasks. Deadlines in ms."""

    member_id: str
    value: StreamsMemberValue = field(default_factory=StreamsMemberValue)
    current: StreamsCurrentValue = field(default_factory=StreamsCurrentValue)
    session_deadline_ms: int = NEVER
    revocation_deadline_ms: int = NEVER

    @property
    def deadline_ms(self) -> int:
        """The time at which the member is removed, unless before it sends a heartbeat or revokes tasks."""
        return min(self.session_deadline_ms, self.revocation_deadline_ms)

    def clock_was_set(self, by_ms: int) -> None:
        """Move every deadline by the change of the clock, so that the member keeps the time that it had left."""
        self.session_deadline_ms = moved(self.session_deadline_ms, by_ms)
        self.revocation_deadline_ms = moved(self.revocation_deadline_ms, by_ms)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has all of its target of this epoch and nothing else."""
        return is_reconciled(self.current, assignment_epoch)

    def assignment_epoch_of(self, task: TaskId) -> int | None:
        """Return the epoch at which the member was assigned an active task that it has; None for any other
        task.
        """
        epoch = self.current.assigned.active.get(task)
        return self.current.pending_revocation.active.get(task) if epoch is None else epoch


def is_reconciled(current: StreamsCurrentValue, assignment_epoch: int) -> bool:
    """Return whether a member with this state owns exactly the tasks of its target assignment, and has
    acknowledged `assignment_epoch`.
    """
    return current.state is MemberState.STABLE and current.member_epoch == assignment_epoch


@dataclass(slots=True)
class StreamsGroup:
    """Members, topology and epochs of a group.

    Records change them, live and at replay. The fields from `configured` on are not stored.
    """

    type: ClassVar = STREAMS
    """The word of ListGroups for a group of this protocol."""

    group_id: str
    value: StreamsGroupValue = NEW_GROUP
    assignment: StreamsAssignmentValue = NEVER_ASSIGNED
    topology: Topology | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    targets: dict[str, TaskAssignment] = field(default_factory=dict)
    configured: ConfiguredTopology | None = None
    """The topology compared with the topics that existed at the last heartbeat with a topology; None after a
    restart.
    """
    topics_changed: bool = True
    """Whether topics were created, deleted or enlarged since the topology was configured."""
    initial_delay_deadline_ms: int = NEVER
    """The end of the delay in which an empty group gathers members before it assigns tasks."""
    shutdown_member_id: str | None = None
    """The member that asked the whole application to shut down."""
    endpoint_epoch: int = 0
    """A number that rises when the tasks of a member with an endpoint change."""

    @property
    def group_epoch(self) -> int:
        """The group epoch."""
        return self.value.group_epoch

    @property
    def state_text(self) -> str:
        """The state by the table above."""
        if not self.members:
            return _EMPTY
        if self.topology is None or self.topology.epoch != self.value.validated_topology_epoch:
            return _NOT_READY
        epoch = self.assignment.assignment_epoch
        if self.group_epoch > epoch:
            return _ASSIGNING
        are_reconciled = all(member.is_reconciled_to(epoch) for member in self.members.values())
        return _STABLE if are_reconciled else _RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def generation(self) -> int:
        """The group epoch."""
        return self.group_epoch

    @property
    def protocol(self) -> tuple[str, str | None]:
        """The type of the members' protocol, and the assignor, None without members."""
        return self.type, ASSIGNOR_NAME if self.members else None

    @property
    def is_delayed(self) -> bool:
        """Whether the group still gathers members before it assigns tasks."""
        return self.initial_delay_deadline_ms != NEVER

    def subscribes_to(self, topic: str) -> bool:
        """Return whether the members read a topic."""
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of

    def held(self, process_id: str) -> HeldByProcesses:
        """Return the tasks that members have or have not revoked yet, those of one process apart."""
        active: set[TaskId] = set()
        active_here: set[TaskId] = set()
        others_here: set[TaskId] = set()
        for member in self.members.values():
            is_here = member.value.process_id == process_id
            for held in (member.current.assigned, member.current.pending_revocation):
                active.update(held.active)
                if is_here:
                    active_here.update(held.active)
                    others_here.update(held.standby, held.warmup)
        return HeldByProcesses(frozenset(active), frozenset(active_here), frozenset(others_here))

    def may_commit(self, member: StreamsMember, member_epoch: int, places: Iterable[tuple[str, int]]) -> bool:
        """Return whether an offset commit at a member epoch may be stored for all these partitions
        (KIP-1251).

        The member's own epoch may commit any partition. An older one may commit partitions of tasks that the
        member has been assigned at that epoch or earlier. Source: Kafka's
        `StreamsGroup.validateOffsetCommit`.
        """
        if member_epoch >= member.current.member_epoch:
            return member_epoch == member.current.member_epoch
        subtopology_of = {} if self.topology is None else self.topology.subtopology_of
        for topic, partition in places:
            subtopology_id = subtopology_of.get(topic)
            task = None if subtopology_id is None else TaskId(subtopology_id, partition)
            epoch = None if task is None else member.assignment_epoch_of(task)
            if epoch is None or member_epoch < epoch:
                return False
        return True

    def check_fetch(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Return whether a member may fetch offsets: an error code, `none` when it may.

        Source: Kafka's StreamsGroup.validateOffsetFetch.
        """
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        is_current = member.current.member_epoch == member_epoch
        return ErrorCode.none if is_current else ErrorCode.stale_member_epoch

    def check_commit(
        self, member_id: str, member_epoch: int, places: Iterable[tuple[str, int]], *, has_member_epoch: bool
    ) -> ErrorCode:
        """Return whether a member may commit offsets of these partitions: an error code, `none` when it may.

        One partition that the member may not commit refuses the whole commit. Source: Kafka's
        StreamsGroup.validateOffsetCommit.
        """
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not has_member_epoch:
            return ErrorCode.unsupported_version
        may_commit = self.may_commit(member, member_epoch, places)
        return ErrorCode.none if may_commit else ErrorCode.stale_member_epoch

    def forget_what_is_not_stored(self) -> None:
        """Drop the fields that are not stored, as Kafka does after the first heartbeat of a new group.

        The next heartbeat computes them again.
        """
        self.configured = None
        self.shutdown_member_id = None
        self.endpoint_epoch = 0

    # --- records

    def replay(self, record: StreamsRecord, now_ms: int, session_timeout_ms: int) -> None:
        """Replay a record; it restarts its member's session and rebalance timeouts."""
        if isinstance(record, StreamsGroupRecord):
            self.value = record.value or NEW_GROUP
        elif isinstance(record, StreamsAssignmentRecord):
            self.assignment = record.value or NEVER_ASSIGNED
        elif isinstance(record, StreamsTopologyRecord):
            self.topology = record.topology
        elif isinstance(record, StreamsTargetRecord):
            if record.tasks is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.tasks
        elif record.value is None:
            if isinstance(record, StreamsMemberRecord):
                self._forget(record.member_id)
        else:
            self._replay_member(record, now_ms, session_timeout_ms)

    def _replay_member(
        self, record: StreamsMemberRecord | StreamsCurrentRecord, now_ms: int, session_timeout_ms: int
    ) -> None:
        member = self.members.get(record.member_id)
        if member is None:
            member = self.members[record.member_id] = StreamsMember(record.member_id)
        if isinstance(record.value, StreamsMemberValue):
            member.value = record.value
        elif record.value is not None:
            member.current = record.value
        member.session_deadline_ms = now_ms + session_timeout_ms
        has_to_revoke = member.current.state is MemberState.UNREVOKED_TASKS
        rebalance_timeout_ms = max(0, member.value.rebalance_timeout_ms)
        member.revocation_deadline_ms = now_ms + rebalance_timeout_ms if has_to_revoke else NEVER

    def _forget(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def record_of(self, kind: int, member_id: str) -> StreamsRecord | None:
        """Return the record of a key as it would be written now; None when its member or target no longer
        exists.
        """
        if kind == GROUP:
            return StreamsGroupRecord(self.group_id, self.value)
        if kind == ASSIGNMENT:
            return StreamsAssignmentRecord(self.group_id, self.assignment)
        if kind == TOPOLOGY:
            return StreamsTopologyRecord(self.group_id, self.topology)
        if kind == TARGET:
            target = self.targets.get(member_id)
            return None if target is None else StreamsTargetRecord(self.group_id, member_id, target)
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind == MEMBER:
            return StreamsMemberRecord(self.group_id, member_id, member.value)
        return StreamsCurrentRecord(self.group_id, member_id, member.current)
